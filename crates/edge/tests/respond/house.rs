//! A limiter on a clock that stands still and a store that can be taken away, and header settings
//! as tests write them.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::Secret;
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_edge::respond::{HeaderSettings, HeaderStyle, ResetStyle};
use tidegate_engine::{Asked, Decision, Limiter, Question};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{BroughtLimit, Document, Facts, RuleSet};

/// 2023-11-14T22:13:20Z.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// One request an hour for each client.
pub(crate) const ONE: &str = "rules: [{ id: one, key_by: ip, limit: 1/h }]";

pub(crate) struct House {
    pub(crate) clock: ManualClock,
    limiter: Limiter<Fragile>,
}

impl House {
    pub(crate) fn new(rules: &str) -> Self {
        let document = Document::parse("rules.yaml", rules).unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let clock = ManualClock::new(START);
        let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
        let store = Fragile { store, gone: AtomicBool::new(false) };
        Self { clock, limiter: Limiter::new(store, rules) }
    }

    /// The store does not answer any more.
    pub(crate) fn lose_store(&self) {
        self.limiter.store().gone.store(true, Ordering::SeqCst);
    }

    pub(crate) async fn decide(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        self.limiter.decide(facts, cost).await
    }

    /// A request that brings its limit: so many in as many seconds.
    pub(crate) async fn decide_brought(
        &self,
        facts: &Facts<'_>,
        requests: u32,
        secs: u64,
    ) -> Decision {
        let limit = Some(BroughtLimit { requests, window: Micros::from_secs(secs) });
        let question = Question { facts, asked: Asked::Charge(1), limit };
        self.limiter.decide_together(&[question]).await.unwrap().remove(0)
    }

    /// The refusal of a client that is over the limit.
    pub(crate) async fn refuse(&self, facts: &Facts<'_>) -> Decision {
        loop {
            let decision = self.decide(facts, 1).await;
            if !decision.is_allowed() {
                return decision;
            }
        }
    }
}

struct Fragile {
    store: MemoryStore<ManualClock>,
    gone: AtomicBool,
}

impl Store for Fragile {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        match self.gone.load(Ordering::SeqCst) {
            true => Err(StoreError::nothing("redis-7.internal:6379: connection refused")),
            false => self.store.apply(op, charges, readings).await,
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }
}

pub(crate) fn client(ip: &str) -> Facts<'_> {
    let mut facts = Facts::new();
    facts.push("ip", ip);
    facts
}

/// Settings such as `style=legacy reset=delta jitter=10s expose`.
pub(crate) fn settings(text: &str) -> HeaderSettings {
    let mut settings = HeaderSettings::default();
    for word in text.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("style", style) => settings.style = named_style(style),
            ("reset", "delta") => settings.reset = ResetStyle::Delta,
            ("jitter", span) => {
                let secs = span.strip_suffix('s').unwrap().parse().unwrap();
                settings.retry_jitter = Some(Micros::from_secs(secs));
            }
            ("expose", "") => settings.expose = true,
            _ => panic!("no setting is called {word:?}"),
        }
    }
    settings
}

fn named_style(name: &str) -> HeaderStyle {
    match name {
        "all" => HeaderStyle::All,
        "x" => HeaderStyle::X,
        "ietf" => HeaderStyle::Ietf,
        "legacy" => HeaderStyle::Legacy,
        "none" => HeaderStyle::None,
        _ => panic!("no style is called {name:?}"),
    }
}
