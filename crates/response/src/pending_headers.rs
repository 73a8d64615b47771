//! What an answer will say of the decision that lets its request pass. It is worked out when that is made, and kept while the
//! upstream works: a decision is large, and would be in no near cache any more.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderValue};
use tidegate_limiter::{Decision, RuleReading};
use tidegate_rules::RuleSet;

use super::header_writer::HeaderWriter;
use super::summary::{LimitSummary, tightest_visible};
use super::{HeaderSettings, HeaderStyle, WARNING, warning_header, write_summary};

/// What is left of a decision for the headers of an answer.
#[derive(Debug)]
pub struct PendingHeaders {
    /// The rule that is told of, and what it said.
    tightest: Option<(Arc<RuleSet>, RuleReading)>,
    /// Seldom any.
    warnings: Option<Box<HeaderValue>>,
}

impl PendingHeaders {
    /// What is to be said of a decision by which a request passes; nothing where there is nothing to say.
    pub fn from_decision(decision: &Decision, settings: &HeaderSettings) -> Option<Self> {
        if settings.style == HeaderStyle::None {
            return None;
        }
        let told =
            tightest_visible(decision).map(|reading| (Arc::clone(decision.rules()), *reading));
        let warnings = warning_header(decision).map(Box::new);
        (told.is_some() || warnings.is_some()).then_some(Self { tightest: told, warnings })
    }

    /// Adds it to the headers of the answer; of those that are there already, ours count.
    pub fn write(self, settings: &HeaderSettings, headers: &mut HeaderMap) {
        let mut lines = HeaderWriter::new(headers, settings.expose);
        if let Some((rules, reading)) = &self.tightest {
            write_summary(&LimitSummary::for_allowed(rules, reading), settings, &mut lines);
        }
        if let Some(warnings) = self.warnings {
            lines.put(WARNING, *warnings);
        }
        lines.finish();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_core::time::{ManualClock, Timestamp};
    use tidegate_limiter::Limiter;
    use tidegate_memory::MemoryStore;
    use tidegate_rules::{Document, Facts};

    use super::*;
    use crate as respond;

    const RULES: &str = "rules:
  - { id: watching, key_by: global, limit: 1/h, mode: shadow }
  - { id: wide, match: { tier: pro }, key_by: user_id, limit: 9/min }
  - { id: narrow, match: { tier: pro }, key_by: user_id, limit: 2/min, mode: warn, warn: { allow: 5, period: 1h } }
  - { id: too, match: { tier: pro }, key_by: global, limit: 3/min, mode: warn, warn: { allow: 5, period: 1h } }
";

    /// As it is without a notice between: from all allowed to two that warn, also where nothing is told.
    #[tokio::test]
    async fn pending_headers_equal_decision_headers() {
        let store = MemoryStore::with_shards(
            ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000)),
            1 << 20,
            2,
        );
        let document = Document::parse("rules.yaml", RULES).unwrap();
        let limiter = Limiter::new(store, RuleSet::compile(&document, Secret::UNSET).unwrap());
        let styles = [
            HeaderStyle::All,
            HeaderStyle::X,
            HeaderStyle::Ietf,
            HeaderStyle::Legacy,
            HeaderStyle::None,
        ];
        let mut warned = Vec::new();
        for tier in ["free", "pro", "pro", "pro", "pro"] {
            let facts: Facts<'_> = [("tier", tier), ("user_id", "7")].into_iter().collect();
            let decision = limiter.decide(&facts, 1).await;
            assert!(decision.is_allowed());
            for (style, expose) in
                styles.into_iter().flat_map(|style| [(style, false), (style, true)])
            {
                let settings = HeaderSettings { style, expose, ..HeaderSettings::default() };
                let mut theirs = HeaderMap::new();
                theirs.insert("x-ratelimit-limit", HeaderValue::from_static("the upstream's"));
                let (mut direct, mut noticed) = (theirs.clone(), theirs);
                respond::write_headers(&decision, &settings, 0, &mut direct);
                if let Some(notice) = PendingHeaders::from_decision(&decision, &settings) {
                    notice.write(&settings, &mut noticed);
                }
                assert_eq!(noticed, direct, "{settings:?}");
                if style == HeaderStyle::All && !expose {
                    warned.push(noticed.get(WARNING).cloned());
                }
            }
        }
        let warned: Vec<_> = warned.iter().flatten().collect();
        assert_eq!(warned, ["narrow", "narrow, too"]);
    }
}
