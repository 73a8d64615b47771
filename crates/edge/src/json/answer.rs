//! Decisions and explanations as JSON: views that write themselves, without copies.
//!
//! Spans are whole milliseconds, rounded up: a wait that is told must be long enough.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};
use tidegate_core::decision::Retry;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::Timestamp;
use tidegate_engine::{Decision, Explained, Explanation, RuleReading};
use tidegate_rules::{Mode, Rule};

/// A decision as JSON.
#[must_use]
pub const fn decision(decision: &Decision) -> DecisionView<'_> {
    DecisionView(decision)
}

/// The answer to a batch as JSON, `{"results":[…]}`.
#[must_use]
pub const fn decisions(decisions: &[Decision]) -> DecisionsView<'_> {
    DecisionsView(decisions)
}

/// An explanation as JSON.
#[must_use]
pub const fn explanation(explanation: &Explanation) -> ExplanationView<'_> {
    ExplanationView(explanation)
}

/// See [`decision`].
#[derive(Clone, Copy, Debug)]
pub struct DecisionView<'a>(&'a Decision);

/// See [`decisions`].
#[derive(Clone, Copy, Debug)]
pub struct DecisionsView<'a>(&'a [Decision]);

/// See [`explanation`].
#[derive(Clone, Copy, Debug)]
pub struct ExplanationView<'a>(&'a Explanation);

impl Serialize for DecisionView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let decision = self.0;
        let tightest = decision.tightest();
        let numbers = tightest.and_then(|(_, reading)| reading.numbers);
        let retry = match tightest {
            Some((_, reading)) if !decision.is_allowed() => reading.retry(),
            _ => Retry::Now,
        };
        let delay_ms = if decision.is_allowed() { decision.delay().as_millis_ceil() } else { 0 };
        let mut object = serializer.serialize_struct("Decision", 10)?;
        object.serialize_field("allowed", &decision.is_allowed())?;
        object.serialize_field("rule", &tightest.map(|(rule, _)| rule.id()))?;
        object.serialize_field("limit", &numbers.map(|numbers| numbers.limit))?;
        object.serialize_field("remaining", &numbers.map(|numbers| numbers.remaining))?;
        let reset_after = numbers.map(|numbers| numbers.reset_after).unwrap_or_default();
        object.serialize_field("reset_after_ms", &reset_after.as_millis_ceil())?;
        object.serialize_field("retry_after_ms", &retry_after_ms(retry))?;
        object.serialize_field("delay_ms", &delay_ms)?;
        let charged_at = decision.charged_at().map(Timestamp::as_micros);
        object.serialize_field("charged_at_us", &charged_at)?;
        object.serialize_field("answered_by", decision.answered_by().name())?;
        object.serialize_field("rules", &ReadingsView(decision))?;
        object.end()
    }
}

impl Serialize for DecisionsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let results: Vec<_> = self.0.iter().map(DecisionView).collect();
        let mut object = serializer.serialize_struct("Decisions", 1)?;
        object.serialize_field("results", &results)?;
        object.end()
    }
}

/// Every rule of a decision.
struct ReadingsView<'a>(&'a Decision);

impl Serialize for ReadingsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.readings().map(|(rule, reading)| ReadingView(rule, reading)))
    }
}

struct ReadingView<'a>(&'a Rule, &'a RuleReading);

impl Serialize for ReadingView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(rule, reading) = self;
        let mut object = serializer.serialize_struct("Reading", 8)?;
        object.serialize_field("id", rule.id())?;
        object.serialize_field("verdict", reading.verdict.name())?;
        object.serialize_field("mode", mode_name(rule.mode()))?;
        object.serialize_field("limit", &reading.numbers.map(|numbers| numbers.limit))?;
        serialize_numbers::<S>(&mut object, reading)?;
        object.end()
    }
}

impl Serialize for ExplanationView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Explanation { facts, decision, rules, deciding, why } = self.0;
        let explained = rules.iter().zip(decision.readings());
        let rules: Vec<_> =
            explained.map(|(rule, (_, reading))| ExplainedView(rule, reading)).collect();
        let mut object = serializer.serialize_struct("Explanation", 5)?;
        object.serialize_field("facts", &Pairs(facts))?;
        object.serialize_field("deciding", deciding)?;
        object.serialize_field("why", why)?;
        object.serialize_field("rules", &rules)?;
        object.serialize_field("decision", &DecisionView(decision))?;
        object.end()
    }
}

struct ExplainedView<'a>(&'a Explained, &'a RuleReading);

impl Serialize for ExplainedView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Explained { id, matched, key, fingerprint, limit, why }, reading) = self;
        let hex = |Fingerprint { hi, lo }: Fingerprint| format!("{hi:016x}{lo:016x}");
        let mut object = serializer.serialize_struct("Explained", 11)?;
        object.serialize_field("id", id)?;
        object.serialize_field("matched", matched)?;
        object.serialize_field("key", &Pairs(key))?;
        object.serialize_field("fingerprint", &fingerprint.map(hex))?;
        object.serialize_field("limit", limit)?;
        object.serialize_field("why", why)?;
        object.serialize_field("verdict", reading.verdict.name())?;
        serialize_numbers::<S>(&mut object, reading)?;
        object.end()
    }
}

/// An object of names and values; of a name that is repeated the first counts, as it does in rules.
struct Pairs<'a>(&'a [(String, String)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (at, (name, value)) in self.0.iter().enumerate() {
            if self.0[..at].iter().all(|(known, _)| known != name) {
                object.serialize_entry(name, value)?;
            }
        }
        object.end()
    }
}

fn serialize_numbers<S: Serializer>(
    object: &mut S::SerializeStruct,
    reading: &RuleReading,
) -> Result<(), S::Error> {
    let numbers = reading.numbers.unwrap_or_default();
    object.serialize_field("remaining", &reading.numbers.map(|numbers| numbers.remaining))?;
    object.serialize_field("reset_after_ms", &numbers.reset_after.as_millis_ceil())?;
    object.serialize_field("retry_after_ms", &retry_after_ms(reading.retry()))?;
    object.serialize_field("delay_ms", &numbers.delay.as_millis_ceil())
}

pub(crate) const fn retry_after_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(wait.as_millis_ceil()),
        Retry::Never => None,
    }
}

const fn mode_name(mode: &Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Warn(_) => "warn",
    }
}
