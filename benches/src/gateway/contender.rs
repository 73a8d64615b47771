//! The contenders of the gateway benchmark, and their turns.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::paced::{self, LoadPace};
use super::setup::{self, GatewayProcess};
use super::{GatewayTurn, cpu, wrk};

/// Number of concurrent connections.
pub const CONNECTIONS: u32 = 50;

/// The fixed rate, in requests per second over all connections.
pub const PER_SECOND: u32 = 5_000;

/// Length of one turn, in seconds, for both kinds of load.
pub const SECONDS: u64 = 1;

/// The contenders, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContenderKind {
    /// The upstream itself, without a proxy.
    Direct,
    /// A minimal hyper proxy, the baseline.
    BareProxy,
    /// The gateway without a rule.
    NoRule,
    /// The gateway with one rule.
    OneRule,
    /// The gateway with three rules.
    ThreeRules,
    /// The gateway with a rule that refuses every request.
    Refusing,
    /// nginx with `limit_req`.
    Nginx,
    /// HAProxy with a stick-table.
    Haproxy,
    /// Envoy with its local rate limit filter.
    Envoy,
}

impl ContenderKind {
    /// All contenders.
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

    /// Name in the results table.
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

    /// The status that every response must have.
    const fn expected_status(self) -> u16 {
        match self {
            Self::Refusing => 429,
            _ => 200,
        }
    }
}

/// A running contender.
#[derive(Debug)]
pub struct GatewayContender {
    kind: ContenderKind,
    running: Arc<GatewayProcess>,
}

impl GatewayContender {
    /// Starts a contender in front of an upstream.
    ///
    /// # Errors
    /// Returns the reason if the program is not installed on this machine.
    pub fn start(kind: ContenderKind, upstream: &Arc<GatewayProcess>) -> Result<Self, String> {
        let address = upstream.address();
        let running = match kind {
            ContenderKind::Direct => Arc::clone(upstream),
            ContenderKind::BareProxy => setup::bare_proxy(address).into(),
            ContenderKind::NoRule => {
                setup::tidegate(address, include_str!("setups/no_rule.yaml")).into()
            }
            ContenderKind::OneRule => {
                setup::tidegate(address, include_str!("setups/one_rule.yaml")).into()
            }
            ContenderKind::ThreeRules => {
                setup::tidegate(address, include_str!("setups/three_rules.yaml")).into()
            }
            ContenderKind::Refusing => {
                setup::tidegate(address, include_str!("setups/refusing.yaml")).into()
            }
            ContenderKind::Nginx => setup::nginx(address).into(),
            ContenderKind::Haproxy => setup::haproxy(address).into(),
            ContenderKind::Envoy => setup::envoy(address)?.into(),
        };
        Ok(Self { kind, running })
    }

    /// The address on which the contender listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Runs one turn under full load.
    ///
    /// # Panics
    /// When a response does not have the expected status.
    #[must_use]
    pub fn full_load_turn(&self) -> GatewayTurn {
        let before = cpu::cpu_time_us(self.pid());
        let report = wrk::run(self.address(), CONNECTIONS as usize, SECONDS);
        let cpu_us = cpu::cpu_time_us(self.pid()) - before;
        let wrong = match self.kind.expected_status() {
            200 => report.refused,
            _ => report.requests - report.refused,
        };
        assert_eq!(wrong, 0, "{:?} returned unexpected statuses: {report:?}", self.kind);
        GatewayTurn {
            per_second: report.per_second,
            cpu_us: cpu_us / report.requests as f64,
            latencies: report.latencies(),
        }
    }

    /// Runs one turn at the fixed rate.
    ///
    /// # Panics
    /// When a response does not have the expected status.
    #[must_use]
    pub fn paced_turn(&self) -> GatewayTurn {
        let duration = Duration::from_secs(SECONDS);
        let pace = LoadPace { connections: CONNECTIONS, per_second: PER_SECOND, duration };
        let before = cpu::cpu_time_us(self.pid());
        let (requests, latencies) = paced::run(self.address(), self.kind.expected_status(), pace);
        let cpu_us = cpu::cpu_time_us(self.pid()) - before;
        GatewayTurn { per_second: PER_SECOND.into(), cpu_us: cpu_us / requests as f64, latencies }
    }
}
