//! Test fixture: a limiter with a manual clock and a store that can be made to fail, and a parser
//! for header settings.

use tidegate_core::time::{ManualClock, Micros};
use tidegate_fixtures::faulty_store::{StoreFault, TestNode, single_node};
use tidegate_fixtures::server::START_TIME;
use tidegate_limiter::{Decision, DecisionQuery, QueryAction};
use tidegate_response::{HeaderSettings, HeaderStyle, ResetStyle};
use tidegate_rules::{Facts, InlineLimit};

/// One request an hour for each client.
pub(crate) const ONE_PER_HOUR: &str = "rules: [{ id: one, key_by: ip, limit: 1/h }]";

pub(crate) struct ResponseFixture {
    pub(crate) clock: ManualClock,
    node: TestNode,
}

impl ResponseFixture {
    pub(crate) fn new(rules: &str) -> Self {
        let clock = ManualClock::new(START_TIME);
        let node = single_node(rules, &clock);
        Self { clock, node }
    }

    /// Makes every later store call fail.
    pub(crate) fn fail_store(&self) {
        self.node.store.set_fault(StoreFault::Unreachable);
    }

    pub(crate) async fn decide(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        self.node.limiter.decide(facts, cost).await
    }

    /// Decides a request with an inline limit of `requests` in `secs` seconds.
    pub(crate) async fn decide_inline(
        &self,
        facts: &Facts<'_>,
        requests: u32,
        secs: u64,
    ) -> Decision {
        let limit = Some(InlineLimit { requests, window: Micros::from_secs(secs) });
        let query = DecisionQuery { facts, action: QueryAction::Charge(1), inline_limit: limit };
        self.node.limiter.decide_batch(&[query]).await.unwrap().remove(0)
    }

    /// Sends requests until one is refused, and returns that decision.
    pub(crate) async fn exhaust_limit(&self, facts: &Facts<'_>) -> Decision {
        loop {
            let decision = self.decide(facts, 1).await;
            if !decision.is_allowed() {
                return decision;
            }
        }
    }
}

pub(crate) fn facts_for_ip(ip: &str) -> Facts<'_> {
    let mut facts = Facts::new();
    facts.push("ip", ip);
    facts
}

/// Parses settings such as `style=legacy reset=delta jitter=10s expose`.
pub(crate) fn parse_settings(text: &str) -> HeaderSettings {
    let mut settings = HeaderSettings::default();
    for word in text.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("style", style) => settings.style = parse_style(style),
            ("reset", "delta") => settings.reset = ResetStyle::Delta,
            ("jitter", span) => {
                let secs = span.strip_suffix('s').unwrap().parse().unwrap();
                settings.retry_jitter = Some(Micros::from_secs(secs));
            }
            ("expose", "") => settings.expose = true,
            _ => panic!("unknown setting {word:?}"),
        }
    }
    settings
}

fn parse_style(name: &str) -> HeaderStyle {
    match name {
        "all" => HeaderStyle::All,
        "x" => HeaderStyle::X,
        "ietf" => HeaderStyle::Ietf,
        "legacy" => HeaderStyle::Legacy,
        "none" => HeaderStyle::None,
        _ => panic!("unknown style {name:?}"),
    }
}
