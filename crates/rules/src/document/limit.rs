//! Decodes the limit of a rule in any of its forms.
//!
//! `limit: { requests, window, … }`, `limit: 10/s burst 20`, `limit: 100` with `window_seconds`
//! next to it, `rate_per_second` with `burst_capacity`, or `limit: { concurrent: 20 }`.

use tidegate_core::policy::{Algorithm, LeakMode, MAX_SLOTS, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::facts::FactReference;
use super::key_by;
use crate::decode::{Field, FieldMap};
use crate::diagnostic::FieldError;
use crate::key::KeyPart;
use crate::rule::RuleLimit;
use crate::value_syntax::rate;
use crate::value_syntax::shorthand::{ALGORITHMS, LimitShorthand};
use crate::yaml::YamlValue;

const LIMIT_SYNTAX: &str = "`limit: { requests: 100, window: 1m }` or `limit: 100/min burst 20`";

/// How long a slot is held without renewal if the rule does not say.
const DEFAULT_HOLD: Micros = Micros::from_secs(30);

/// Minimum hold time of a slot: the holder must have time to renew it.
const MIN_HOLD: Micros = Micros::from_secs(1);

/// The limit of a rule.
#[derive(Debug, Default)]
pub(super) struct ParsedLimit {
    /// The limit, or `None` if it has errors.
    pub(super) limit: Option<RuleLimit>,
    /// The key in a shorthand.
    pub(super) key_parts: Option<Vec<KeyPart>>,
    /// The facts that the key names.
    pub(super) referenced_facts: Vec<FactReference>,
}

/// The settings of a limit, in `limit` or next to it.
struct Settings<'a> {
    window: Option<Field<'a>>,
    window_seconds: Option<Field<'a>>,
    algorithm: Option<Field<'a>>,
    burst: Option<Field<'a>>,
    queue: Option<Field<'a>>,
}

impl ParsedLimit {
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let (limit, rate) = (fields.take("limit"), fields.take("rate_per_second"));
        let beside = Settings::take(fields);
        match (limit, rate) {
            (Some(limit), Some(rate)) => {
                let error = FieldError::new("the limit is set twice, by `limit` and by this field");
                rate.report(error.with_hint("one of them"));
                Self::read_limit(&limit, &beside)
            }
            (Some(limit), None) => Self::read_limit(&limit, &beside),
            (None, Some(rate)) => Self::from_limit(read_rate(&rate, &beside)),
            (None, None) => {
                fields.report_missing("limit", LIMIT_SYNTAX);
                Self::default()
            }
        }
    }

    /// Decodes a shorthand limit, which may be a whole rule.
    pub(super) fn read_shorthand(field: &Field<'_>) -> Self {
        let Some(short) =
            field.text().and_then(|text| field.ok_or_report(LimitShorthand::parse(text)))
        else {
            return Self::default();
        };
        let algorithm = short.algorithm.unwrap_or(Algorithm::TokenBucket);
        let quota = Quota { requests: short.requests, window: short.window, burst: short.burst };
        let limit = Policy::new(algorithm, quota)
            .map_err(|error| field.report(FieldError::new(error.to_string())))
            .ok();
        let by = short.key.map(|text| field.ok_or_report(key_by::parse(text)).unwrap_or_default());
        let named =
            by.as_ref().map(|parts| key_by::fact_references(parts, field)).unwrap_or_default();
        Self { limit: limit.map(RuleLimit::Policy), key_parts: by, referenced_facts: named }
    }

    fn read_limit(field: &Field<'_>, beside: &Settings<'_>) -> Self {
        match &field.node().value {
            YamlValue::Map(_) => {
                beside.report_misplaced();
                Self::from_limit(field.fields().and_then(read_map))
            }
            YamlValue::Scalar { text, .. } => match (parse_limit_word(text), text.parse::<u64>()) {
                (Some(limit), _) => Self::from_limit(Some(limit)),
                (None, Ok(_)) => {
                    if beside.has_no_window() {
                        let hint = "`window: 1m` beside it, or `limit: 100/min`";
                        field.report(
                            FieldError::new("the window of this limit is missing").with_hint(hint),
                        );
                    }
                    Self::from_limit(beside.read(field))
                }
                (None, Err(_)) => {
                    beside.report_misplaced();
                    Self::read_shorthand(field)
                }
            },
            YamlValue::List(_) => {
                field.report_wrong_kind(LIMIT_SYNTAX);
                Self::default()
            }
        }
    }

    const fn from_limit(limit: Option<RuleLimit>) -> Self {
        Self { limit, key_parts: None, referenced_facts: Vec::new() }
    }
}

fn parse_limit_word(text: &str) -> Option<RuleLimit> {
    match text {
        "unlimited" => Some(RuleLimit::Unlimited),
        "deny" => Some(RuleLimit::Deny { window: None }),
        _ => None,
    }
}

fn read_map(mut fields: FieldMap<'_>) -> Option<RuleLimit> {
    if let Some(slots) = fields.take("concurrent") {
        return read_slots(&slots, fields);
    }
    let requests =
        fields.require("requests", "`requests: 100`, `requests: unlimited` or `requests: deny`");
    let settings = Settings::take(&mut fields);
    let mut limit = requests.as_ref().and_then(Field::scalar).and_then(parse_limit_word);
    if let Some(RuleLimit::Deny { window }) = &mut limit {
        *window = settings.window();
    }
    if limit.is_none() {
        if settings.has_no_window() {
            fields.report_missing("window", "`window: 1m`");
        }
        limit = requests.and_then(|requests| settings.read(&requests));
    }
    fields.finish();
    limit
}

/// Decodes a limit on concurrent requests.
fn read_slots(slots: &Field<'_>, mut fields: FieldMap<'_>) -> Option<RuleLimit> {
    let hold = fields.take("hold");
    let requests = fields.take("requests");
    let settings = Settings::take(&mut fields);
    fields.finish();
    for field in requests.iter().chain(settings.all_fields()) {
        let error =
            FieldError::new("this cannot be combined with `concurrent`, which has no window");
        field.report(error.with_hint("a separate rule for it, or leave it out"));
    }
    let slots = slots.integer(1, MAX_SLOTS);
    let hold = hold.map_or(Some(DEFAULT_HOLD), |field| {
        let hold = field.duration()?;
        if hold < MIN_HOLD {
            let error = FieldError::new("a slot could expire before its holder renews it");
            let found = error.with_found(field.scalar().unwrap_or_default());
            field.report(found.with_hint(format!("at least `{MIN_HOLD}`")));
            return None;
        }
        Some(hold)
    });
    let policy = Policy::new(Algorithm::Concurrent, Quota::new(slots?, hold?));
    policy.ok().map(RuleLimit::Policy)
}

fn read_rate(field: &Field<'_>, beside: &Settings<'_>) -> Option<RuleLimit> {
    for window in [&beside.window, &beside.window_seconds].into_iter().flatten() {
        let error = FieldError::new("a rate per second has no window beside it");
        window.report(error.with_hint("`limit: { requests: …, window: … }` instead of the rate"));
    }
    let (requests, window) = field.ok_or_report(rate::parse(field.text()?))?;
    let burst = beside.burst.as_ref().map(|burst| burst.integer(0, u64::MAX));
    let algorithm = beside.algorithm();
    let burst = burst.map_or(Some(None), |burst| burst.map(Some))?;
    beside.policy(algorithm?, Quota { requests, window, burst }, field)
}

impl<'a> Settings<'a> {
    fn take(fields: &mut FieldMap<'a>) -> Self {
        Self {
            window: fields.take("window"),
            window_seconds: fields.take("window_seconds"),
            algorithm: fields.take("algorithm"),
            burst: fields.take_any(&["burst", "burst_capacity"]),
            queue: fields.take("queue"),
        }
    }

    const fn has_no_window(&self) -> bool {
        self.window.is_none() && self.window_seconds.is_none()
    }

    fn all_fields(&self) -> impl Iterator<Item = &Field<'a>> {
        let all = [&self.window, &self.window_seconds, &self.algorithm, &self.burst, &self.queue];
        all.into_iter().flatten()
    }

    /// Reports settings next to a limit that must be inside it.
    fn report_misplaced(&self) {
        for field in self.all_fields() {
            let error = FieldError::new("this belongs inside `limit`");
            field.report(error.with_hint("it as a field of `limit`"));
        }
    }

    /// Decodes all settings before checking any, so that every error is reported.
    fn read(&self, requests: &Field<'a>) -> Option<RuleLimit> {
        if let [Some(_), Some(twice)] = [&self.window, &self.window_seconds] {
            twice.report(FieldError::new("the window is set twice").with_hint("only `window`"));
        }
        let count = match requests.scalar() {
            Some(text) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                let error = FieldError::new("this is not a number of requests").with_found(text);
                requests.report(error.with_hint("a whole number, `unlimited` or `deny`"));
                None
            }
            _ => requests.integer(0, u64::MAX),
        };
        let window = self.window();
        let burst = self.burst.as_ref().map(|burst| burst.integer(0, u64::MAX));
        let algorithm = self.algorithm();
        let burst = burst.map_or(Some(None), |burst| burst.map(Some))?;
        let algorithm = algorithm?;
        let (Some(count), Some(window)) = (count, window) else {
            // Without its numbers there is no policy to detect this error, so check it here.
            if let Some(field) = self.burst.as_ref().filter(|_| !algorithm.is_bucket()) {
                field.report(FieldError::new(PolicyError::BurstOnWindow(algorithm).to_string()));
            }
            return None;
        };
        self.policy(algorithm, Quota { requests: count, window, burst }, requests)
    }

    fn window(&self) -> Option<Micros> {
        match (&self.window, &self.window_seconds) {
            (Some(window), _) => window.duration(),
            (None, Some(seconds)) => seconds.integer(0, u64::MAX).map(Micros::from_secs),
            (None, None) => None,
        }
    }

    fn algorithm(&self) -> Option<Algorithm> {
        let algorithm = match &self.algorithm {
            Some(field) => field.choice(&ALGORITHMS)?,
            None => Algorithm::TokenBucket,
        };
        let queue = self.queue.as_ref().map(Field::boolean);
        match (algorithm, queue) {
            (_, Some(None)) => None,
            (Algorithm::LeakyBucket(_), Some(Some(true))) => {
                Some(Algorithm::LeakyBucket(LeakMode::Queue))
            }
            (algorithm, Some(Some(true))) => {
                let error = FieldError::new(format!("{algorithm} cannot queue"));
                if let Some(field) = &self.queue {
                    field
                        .report(error.with_hint("`algorithm: leaky_bucket`, or leave `queue` out"));
                }
                None
            }
            (algorithm, _) => Some(algorithm),
        }
    }

    /// The policy, or `None` after reporting an error at the invalid number.
    fn policy(
        &self,
        algorithm: Algorithm,
        quota: Quota,
        requests: &Field<'_>,
    ) -> Option<RuleLimit> {
        let error = match Policy::new(algorithm, quota) {
            Ok(policy) => return Some(RuleLimit::Policy(policy)),
            Err(error) => error,
        };
        let blamed = match error {
            PolicyError::ZeroWindow | PolicyError::WindowTooLong => {
                self.window.as_ref().or(self.window_seconds.as_ref())
            }
            PolicyError::ZeroBurst
            | PolicyError::BurstOnWindow(_)
            | PolicyError::BucketTooLarge => self.burst.as_ref(),
            _ => None,
        };
        blamed.unwrap_or(requests).report(FieldError::new(error.to_string()));
        None
    }
}
