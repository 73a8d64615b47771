//! The part of an allowed decision that the headers of the response need, kept while the upstream
//! handles the request. The decision itself is large and would have left the CPU cache by then.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderValue};
use tidegate_limiter::{Decision, RuleReading};
use tidegate_rules::RuleSet;

use super::header_writer::HeaderWriter;
use super::summary::{LimitSummary, tightest_visible};
use super::{HeaderSettings, HeaderStyle, WARNING, warning_header, write_summary};

/// The data of an allowed decision for the headers of its response.
#[derive(Debug)]
pub struct PendingHeaders {
    /// The rule that the headers describe.
    tightest: Option<(Arc<RuleSet>, RuleReading)>,
    /// The warning header; boxed because it is rare.
    warnings: Option<Box<HeaderValue>>,
}

impl PendingHeaders {
    /// Extracts the data from a decision that allows its request; `None` if it adds no headers.
    pub fn from_decision(decision: &Decision, settings: &HeaderSettings) -> Option<Self> {
        if settings.style == HeaderStyle::None {
            return None;
        }
        let tightest =
            tightest_visible(decision).map(|reading| (Arc::clone(decision.rules()), *reading));
        let warnings = warning_header(decision).map(Box::new);
        (tightest.is_some() || warnings.is_some()).then_some(Self { tightest, warnings })
    }

    /// Adds the headers to the response, replacing existing headers of the same names.
    pub fn write(self, settings: &HeaderSettings, headers: &mut HeaderMap) {
        let mut writer = HeaderWriter::new(headers, settings.expose);
        if let Some((rules, reading)) = &self.tightest {
            write_summary(&LimitSummary::for_allowed(rules, reading), settings, &mut writer);
        }
        if let Some(warnings) = self.warnings {
            writer.put(WARNING, *warnings);
        }
        writer.finish();
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

    /// Compares the two ways to write headers, with no, one and two warning rules, in every style.
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
                let mut upstream = HeaderMap::new();
                upstream.insert("x-ratelimit-limit", HeaderValue::from_static("the upstream's"));
                let (mut direct, mut deferred) = (upstream.clone(), upstream);
                respond::write_headers(&decision, &settings, 0, &mut direct);
                if let Some(pending) = PendingHeaders::from_decision(&decision, &settings) {
                    pending.write(&settings, &mut deferred);
                }
                assert_eq!(deferred, direct, "{settings:?}");
                if style == HeaderStyle::All && !expose {
                    warned.push(deferred.get(WARNING).cloned());
                }
            }
        }
        let warned: Vec<_> = warned.iter().flatten().collect();
        assert_eq!(warned, ["narrow", "narrow, too"]);
    }
}
