//! Who is compared.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::paced::{self, Pace};
use super::setup::{self, Running};
use super::{Turn, cpu, wrk};

/// Connections that ask at once.
pub const CONNECTIONS: u32 = 50;

/// The fixed rate, over all connections.
pub const PER_SECOND: u32 = 5_000;

/// How long a turn lasts, of either load.
pub const SECONDS: u64 = 1;

/// Who is compared, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The upstream itself.
    Direct,
    /// Our floor.
    BareProxy,
    /// The gateway without a rule.
    NoRule,
    /// The gateway with one rule.
    OneRule,
    /// The gateway with three rules.
    ThreeRules,
    /// The gateway when it refuses.
    Refusing,
    /// nginx with `limit_req`.
    Nginx,
    /// HAProxy with a stick-table.
    Haproxy,
    /// Envoy with its local rate limit.
    Envoy,
}

impl Who {
    /// Everybody.
    pub const ALL: [Self; 9] = [
        Self::Direct,
        Self::BareProxy,
        Self::NoRule,
        Self::OneRule,
        Self::ThreeRules,
        Self::Refusing,
        Self::Nginx,
        Self::Haproxy,
        Self::Envoy,
    ];

    /// As the table calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct, no proxy",
            Self::BareProxy => "bare hyper proxy, no limiter",
            Self::NoRule => "**tidegate**, no rule",
            Self::OneRule => "**tidegate**, one rule",
            Self::ThreeRules => "**tidegate**, three rules",
            Self::Refusing => "**tidegate**, all refused (429)",
            Self::Nginx => "nginx + limit_req",
            Self::Haproxy => "HAProxy + stick-table",
            Self::Envoy => "Envoy + local rate limit",
        }
    }

    const fn status(self) -> u16 {
        match self {
            Self::Refusing => 429,
            _ => 200,
        }
    }
}

/// Someone who is compared, running.
#[derive(Debug)]
pub struct Contender {
    who: Who,
    running: Arc<Running>,
}

impl Contender {
    /// Starts one in front of an upstream.
    ///
    /// # Errors
    /// Why it is not on this machine.
    pub fn start(who: Who, upstream: &Arc<Running>) -> Result<Self, String> {
        let at = upstream.address();
        let running = match who {
            Who::Direct => Arc::clone(upstream),
            Who::BareProxy => setup::bare_proxy(at).into(),
            Who::NoRule => setup::tidegate(at, include_str!("setups/no_rule.yaml")).into(),
            Who::OneRule => setup::tidegate(at, include_str!("setups/one_rule.yaml")).into(),
            Who::ThreeRules => setup::tidegate(at, include_str!("setups/three_rules.yaml")).into(),
            Who::Refusing => setup::tidegate(at, include_str!("setups/refusing.yaml")).into(),
            Who::Nginx => setup::nginx(at).into(),
            Who::Haproxy => setup::haproxy(at).into(),
            Who::Envoy => setup::envoy(at)?.into(),
        };
        Ok(Self { who, running })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// One turn under full load.
    ///
    /// # Panics
    /// When it does not answer as it should.
    #[must_use]
    pub fn full(&self) -> Turn {
        let before = cpu::taken_us(self.pid());
        let told = wrk::run(self.address(), CONNECTIONS as usize, SECONDS);
        let taken = cpu::taken_us(self.pid()) - before;
        let wrong = match self.who.status() {
            200 => told.refused,
            _ => told.requests - told.refused,
        };
        assert_eq!(wrong, 0, "{:?} did not answer as it should: {told:?}", self.who);
        Turn {
            per_second: told.per_second,
            cpu_us: taken / told.requests as f64,
            latencies: told.latencies(),
        }
    }

    /// One turn at the fixed rate.
    ///
    /// # Panics
    /// When it does not answer as it should.
    #[must_use]
    pub fn paced(&self) -> Turn {
        let lasts = Duration::from_secs(SECONDS);
        let pace = Pace { connections: CONNECTIONS, per_second: PER_SECOND, lasts };
        let before = cpu::taken_us(self.pid());
        let (requests, latencies) = paced::run(self.address(), self.who.status(), pace);
        let taken = cpu::taken_us(self.pid()) - before;
        Turn { per_second: PER_SECOND.into(), cpu_us: taken / requests as f64, latencies }
    }
}
