//! What a rule allows, in any of the forms that documents use for it.
//!
//! `limit: { requests, window, … }`, `limit: 10/s burst 20`, `limit: 100` with `window_seconds`
//! beside it, `rate_per_second` with `burst_capacity`, or `limit: { concurrent: 20 }`.

use tidegate_core::policy::{Algorithm, Leak, MAX_SLOTS, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::facts::NamedFact;
use super::key_by;
use crate::decode::{Field, Fields};
use crate::key::KeyPart;
use crate::problem::Remark;
use crate::rule::Limit;
use crate::text::rate;
use crate::text::shorthand::{ALGORITHMS, Shorthand};
use crate::yaml::Value;

const FORMS: &str = "`limit: { requests: 100, window: 1m }` or `limit: 100/min burst 20`";

/// How long a slot is held that is not renewed, when the rule does not say.
const LEASE: Micros = Micros::from_secs(30);

/// The shortest lease: a holder has to renew well before it ends.
const SHORTEST_LEASE: Micros = Micros::from_secs(1);

/// What a rule says of its limit.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    /// The limit, unless something is wrong with it.
    pub(super) limit: Option<Limit>,
    /// The key that a shorthand names.
    pub(super) by: Option<Vec<KeyPart>>,
    /// The facts that this key names.
    pub(super) named: Vec<NamedFact>,
}

/// The settings that go with a number of requests, in `limit` or beside it.
struct Settings<'a> {
    window: Option<Field<'a>>,
    window_seconds: Option<Field<'a>>,
    algorithm: Option<Field<'a>>,
    burst: Option<Field<'a>>,
    queue: Option<Field<'a>>,
}

impl Allowed {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let (limit, rate) = (fields.take("limit"), fields.take("rate_per_second"));
        let beside = Settings::take(fields);
        match (limit, rate) {
            (Some(limit), Some(rate)) => {
                let remark = Remark::new("the limit is said twice, by `limit` and by this");
                rate.refuse(remark.write("one of them"));
                Self::read_limit(&limit, &beside)
            }
            (Some(limit), None) => Self::read_limit(&limit, &beside),
            (None, Some(rate)) => Self::of(read_rate(&rate, &beside)),
            (None, None) => {
                fields.missing("limit", FORMS);
                Self::default()
            }
        }
    }

    /// A limit on its own, as a whole rule in shorthand has it.
    pub(super) fn read_shorthand(field: &Field<'_>) -> Self {
        let Some(short) = field.text().and_then(|text| field.accept(Shorthand::parse(text))) else {
            return Self::default();
        };
        let algorithm = short.algorithm.unwrap_or(Algorithm::TokenBucket);
        let quota = Quota { requests: short.requests, window: short.window, burst: short.burst };
        let limit = Policy::new(algorithm, quota)
            .map_err(|error| field.refuse(Remark::new(error.to_string())))
            .ok();
        let by = short.by.map(|text| field.accept(key_by::parse(text)).unwrap_or_default());
        let named = by.as_ref().map(|parts| key_by::named(parts, field)).unwrap_or_default();
        Self { limit: limit.map(Limit::Policy), by, named }
    }

    fn read_limit(field: &Field<'_>, beside: &Settings<'_>) -> Self {
        match &field.node().value {
            Value::Map(_) => {
                beside.refuse_all();
                Self::of(field.fields().and_then(read_map))
            }
            Value::Scalar { text, .. } => match (word(text), text.parse::<u64>()) {
                (Some(limit), _) => Self::of(Some(limit)),
                (None, Ok(_)) => {
                    if beside.has_no_window() {
                        let hint = "`window: 1m` beside it, or `limit: 100/min`";
                        field
                            .refuse(Remark::new("the window of this limit is missing").write(hint));
                    }
                    Self::of(beside.read(field))
                }
                (None, Err(_)) => {
                    beside.refuse_all();
                    Self::read_shorthand(field)
                }
            },
            Value::List(_) => {
                field.wrong_kind(FORMS);
                Self::default()
            }
        }
    }

    const fn of(limit: Option<Limit>) -> Self {
        Self { limit, by: None, named: Vec::new() }
    }
}

fn word(text: &str) -> Option<Limit> {
    match text {
        "unlimited" => Some(Limit::Unlimited),
        "deny" => Some(Limit::Deny),
        _ => None,
    }
}

fn read_map(mut fields: Fields<'_>) -> Option<Limit> {
    if let Some(slots) = fields.take("concurrent") {
        return read_slots(&slots, fields);
    }
    let requests =
        fields.require("requests", "`requests: 100`, `requests: unlimited` or `requests: deny`");
    let settings = Settings::take(&mut fields);
    let mut limit = requests.as_ref().and_then(Field::scalar).and_then(word);
    if limit.is_none() {
        if settings.has_no_window() {
            fields.missing("window", "`window: 1m`");
        }
        limit = requests.and_then(|requests| settings.read(&requests));
    }
    fields.finish();
    limit
}

/// How many requests may be under way at once.
fn read_slots(slots: &Field<'_>, mut fields: Fields<'_>) -> Option<Limit> {
    let lease = fields.take("lease");
    let requests = fields.take("requests");
    let settings = Settings::take(&mut fields);
    fields.finish();
    for field in requests.iter().chain(settings.all()) {
        let remark = Remark::new("this does not go with `concurrent`, which has no window");
        field.refuse(remark.write("a rule of its own for it, or leave it out"));
    }
    let slots = slots.integer(1, MAX_SLOTS);
    let lease = lease.map_or(Some(LEASE), |field| {
        let lease = field.duration()?;
        if lease < SHORTEST_LEASE {
            let remark = Remark::new("a slot could lapse before its holder has renewed it");
            let found = remark.found(field.scalar().unwrap_or_default());
            field.refuse(found.write(format!("at least `{SHORTEST_LEASE}`")));
            return None;
        }
        Some(lease)
    });
    let policy = Policy::new(Algorithm::Concurrent, Quota::new(slots?, lease?));
    policy.ok().map(Limit::Policy)
}

fn read_rate(field: &Field<'_>, beside: &Settings<'_>) -> Option<Limit> {
    for window in [&beside.window, &beside.window_seconds].into_iter().flatten() {
        let remark = Remark::new("a rate per second has no window beside it");
        window.refuse(remark.write("`limit: { requests: …, window: … }` instead of the rate"));
    }
    let (requests, window) = field.accept(rate::parse(field.text()?))?;
    let burst = beside.burst.as_ref().map(|burst| burst.integer(0, u64::MAX));
    let algorithm = beside.algorithm();
    let burst = burst.map_or(Some(None), |burst| burst.map(Some))?;
    beside.policy(algorithm?, Quota { requests, window, burst }, field)
}

impl<'a> Settings<'a> {
    fn take(fields: &mut Fields<'a>) -> Self {
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

    fn all(&self) -> impl Iterator<Item = &Field<'a>> {
        let all = [&self.window, &self.window_seconds, &self.algorithm, &self.burst, &self.queue];
        all.into_iter().flatten()
    }

    /// What stands beside a limit that is complete in itself.
    fn refuse_all(&self) {
        for field in self.all() {
            let remark = Remark::new("this belongs inside `limit`");
            field.refuse(remark.write("it among the fields of `limit`"));
        }
    }

    /// Reads them all before judging any, so that every fault is noted.
    fn read(&self, requests: &Field<'a>) -> Option<Limit> {
        if let [Some(_), Some(twice)] = [&self.window, &self.window_seconds] {
            twice.refuse(Remark::new("the window is said twice").write("only `window`"));
        }
        let count = match requests.scalar() {
            Some(text) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                let remark = Remark::new("this is not a number of requests").found(text);
                requests.refuse(remark.write("a whole number, `unlimited` or `deny`"));
                None
            }
            _ => requests.integer(0, u64::MAX),
        };
        let window = match (&self.window, &self.window_seconds) {
            (Some(window), _) => window.duration(),
            (None, Some(seconds)) => seconds.integer(0, u64::MAX).map(Micros::from_secs),
            (None, None) => None,
        };
        let burst = self.burst.as_ref().map(|burst| burst.integer(0, u64::MAX));
        let algorithm = self.algorithm();
        let burst = burst.map_or(Some(None), |burst| burst.map(Some))?;
        let algorithm = algorithm?;
        let (Some(count), Some(window)) = (count, window) else {
            // Without its numbers there is no policy to say so, and all problems come at once.
            if let Some(field) = self.burst.as_ref().filter(|_| !algorithm.is_bucket()) {
                field.refuse(Remark::new(PolicyError::BurstOnWindow(algorithm).to_string()));
            }
            return None;
        };
        self.policy(algorithm, Quota { requests: count, window, burst }, requests)
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
                Some(Algorithm::LeakyBucket(Leak::Queue))
            }
            (algorithm, Some(Some(true))) => {
                let remark = Remark::new(format!("{algorithm} cannot queue"));
                if let Some(field) = &self.queue {
                    field.refuse(remark.write("`algorithm: leaky_bucket`, or leave `queue` out"));
                }
                None
            }
            (algorithm, _) => Some(algorithm),
        }
    }

    /// The policy, or a note at the number that is wrong.
    fn policy(&self, algorithm: Algorithm, quota: Quota, requests: &Field<'_>) -> Option<Limit> {
        let error = match Policy::new(algorithm, quota) {
            Ok(policy) => return Some(Limit::Policy(policy)),
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
        blamed.unwrap_or(requests).refuse(Remark::new(error.to_string()));
        None
    }
}
