//! Decodes the consistency of a rule: `consistency`, `lease`, `flush` and `split`.

use tidegate_core::lending::{LeaseBound, LeaseTerms, MIN_LEASE_TTL};
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::time::Micros;

use super::rule::ParsedRule;
use crate::consistency::{Consistency, ConsistencySetting, LeasedSetting};
use crate::decode::{Field, FieldMap};
use crate::diagnostic::FieldError;
use crate::rule::RuleLimit;

/// The terms of leases if the rule does not say.
const DEFAULT_TERMS: LeaseTerms =
    LeaseTerms { ttl: Micros::from_millis(100), bound: LeaseBound::Exact };

const DEFAULT_FLUSH: Micros = Micros::from_millis(100);
const MIN_FLUSH: Micros = Micros::from_millis(10);
const MAX_FLUSH: Micros = Micros::from_secs(10);

const MAX_PARTS: u64 = 64;

const BOUNDS: [(&str, LeaseBound); 2] = [
    (LeaseBound::Exact.name(), LeaseBound::Exact),
    (LeaseBound::PlusTtl.name(), LeaseBound::PlusTtl),
];

/// The value of `consistency`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Exact,
    Leased,
    Async,
}

const MODES: [(&str, Mode); 3] =
    [("exact", Mode::Exact), ("leased", Mode::Leased), ("async", Mode::Async)];

/// A consistency and the field to blame if the limit does not support it.
struct ReadSetting<'a> {
    setting: ConsistencySetting,
    blamed: Field<'a>,
}

/// Decodes the consistency of a rule whose other fields have been decoded. It is exact if there are
/// errors.
pub(super) fn read(fields: &mut FieldMap<'_>, rule: &ParsedRule) -> Consistency {
    let written = fields.take("consistency");
    let (lease, flush) = (fields.take("lease"), fields.take("flush"));
    let split = fields.take("split");
    let Some(mode) = written.as_ref().map_or(Some(Mode::Exact), |field| field.choice(&MODES))
    else {
        return Consistency::Exact;
    };
    report_misplaced(mode, &lease, &flush, &split);
    let read = match (mode, written, split) {
        (Mode::Leased, Some(written), _) => read_leased(lease.as_ref(), written),
        (Mode::Async, Some(written), _) => read_async(flush.as_ref(), written),
        (_, _, Some(split)) => read_split(split),
        _ => return Consistency::Exact,
    };
    let Some(ReadSetting { setting, blamed }) = read else { return Consistency::Exact };
    let is_countable = report_conflicts(setting, fields, rule, &blamed);
    let Some(limit) = rule.limit.filter(|_| is_countable) else { return Consistency::Exact };
    match (Consistency::new(setting, &limit), limit.policy()) {
        (Ok(consistency), policy) => {
            check_cost(&consistency, policy, fields, rule);
            consistency
        }
        (Err(error), Some(policy)) => {
            blamed.report(error.describe(policy));
            Consistency::Exact
        }
        (Err(_), None) => Consistency::Exact,
    }
}

fn report_misplaced(
    mode: Mode,
    lease: &Option<Field<'_>>,
    flush: &Option<Field<'_>>,
    split: &Option<Field<'_>>,
) {
    if let Some(field) = lease.as_ref().filter(|_| mode != Mode::Leased) {
        let error = FieldError::new("these settings are for `consistency: leased` only");
        field.report(error.with_hint("`consistency: leased` beside them, or leave them out"));
    }
    if let Some(field) = flush.as_ref().filter(|_| mode != Mode::Async) {
        let error = FieldError::new("this setting is for `consistency: async` only");
        field.report(error.with_hint("`consistency: async` beside it, or leave it out"));
    }
    if let Some(field) = split.as_ref().filter(|_| mode != Mode::Exact) {
        let error = FieldError::new("only an exact limit can be split");
        field.report(error.with_hint("`consistency: exact`, or leave `split` out"));
    }
}

fn read_leased<'a>(lease: Option<&Field<'a>>, written: Field<'a>) -> Option<ReadSetting<'a>> {
    let mut terms = DEFAULT_TERMS;
    let mut blamed = written;
    if let Some(lease) = lease {
        let mut fields = lease.fields()?;
        let (ttl, bound) = (fields.take("ttl"), fields.take("bound"));
        fields.finish();
        let read_ttl = ttl.as_ref().map_or(Some(terms.ttl), read_ttl);
        let bound = bound.map_or(Some(terms.bound), |field| field.choice(&BOUNDS));
        terms = LeaseTerms { ttl: read_ttl?, bound: bound? };
        blamed = ttl.unwrap_or(blamed);
    }
    let setting = ConsistencySetting::Leased(LeasedSetting { terms, borrow_ttl: None });
    Some(ReadSetting { setting, blamed })
}

fn read_ttl(field: &Field<'_>) -> Option<Micros> {
    let ttl = field.duration()?;
    if ttl < MIN_LEASE_TTL {
        let error = FieldError::new("the ttl is too short");
        let error = error.with_found(field.scalar().unwrap_or_default());
        field.report(error.with_hint(format!("at least `{MIN_LEASE_TTL}`")));
        return None;
    }
    Some(ttl)
}

fn read_async<'a>(flush: Option<&Field<'a>>, written: Field<'a>) -> Option<ReadSetting<'a>> {
    let flush = match flush {
        None => DEFAULT_FLUSH,
        Some(field) => {
            let flush = field.duration()?;
            if !(MIN_FLUSH..=MAX_FLUSH).contains(&flush) {
                let error = FieldError::new("this flush interval is out of bounds");
                let error = error.with_found(field.scalar().unwrap_or_default());
                field.report(error.with_hint(format!("from `{MIN_FLUSH}` to `{MAX_FLUSH}`")));
                return None;
            }
            flush
        }
    };
    Some(ReadSetting { setting: ConsistencySetting::Async { flush }, blamed: written })
}

fn read_split(field: Field<'_>) -> Option<ReadSetting<'_>> {
    let parts = u32::try_from(field.integer(2, MAX_PARTS)?).ok()?;
    Some(ReadSetting { setting: ConsistencySetting::Split { parts }, blamed: field })
}

/// Reports features that need each request to be decided by one counter in the store. Returns
/// whether the limit itself supports the mode.
fn report_conflicts(
    setting: ConsistencySetting,
    fields: &FieldMap<'_>,
    rule: &ParsedRule,
    blamed: &Field<'_>,
) -> bool {
    let (mode, exact) = match setting {
        ConsistencySetting::Split { .. } => ("`split`".to_owned(), "leave `split` out"),
        other => (format!("`consistency: {}`", other.name()), "`consistency: exact`"),
    };
    let conflict = |what: &str| FieldError::new(format!("{what} cannot be combined with {mode}"));
    let has_word = |field: &Field<'_>, word: &str| {
        field.scalar().is_some_and(|text| text.eq_ignore_ascii_case(word))
    };
    if let Some(field) = fields.get("ban") {
        let hint = format!("the `ban` on an exact rule with the same `key_by`, or {exact}");
        field.report(conflict("`ban`").with_hint(hint));
    }
    if let Some(field) = fields.get("mode").filter(|field| has_word(field, "warn")) {
        let hint = format!("`mode: enforce` or `mode: shadow`, or {exact}");
        field.report(conflict("`mode: warn`").with_hint(hint));
    }
    if let Some(field) = fields.get("charge").filter(|field| has_word(field, "always")) {
        field.report(
            conflict("`charge: always`").with_hint(format!("`charge: admitted`, or {exact}")),
        );
    }
    let limit_conflict = match rule.limit.as_ref().and_then(RuleLimit::policy) {
        Some(policy) if policy.is_concurrency() => {
            conflict("`concurrent`").with_hint(format!("{exact}: the store counts every slot"))
        }
        Some(policy) if policy.algorithm() == Algorithm::LeakyBucket(LeakMode::Queue) => {
            conflict("`queue: true`").with_hint(format!("`queue: false`, or {exact}"))
        }
        _ => return true,
    };
    blamed.report(limit_conflict);
    false
}

/// Reports a cost that the limit admits, but its lending policy or one of its parts never does.
fn check_cost(
    consistency: &Consistency,
    policy: Option<&Policy>,
    fields: &FieldMap<'_>,
    rule: &ParsedRule,
) {
    let cost = rule.cost.base();
    let (max, message, remedy) = match consistency {
        Consistency::Leased(leased) => (
            leased.lending_policy().limit(),
            "a request costs {}, which is more than leases leave of the limit",
            "a larger limit, or `lease: { bound: plus_ttl }`",
        ),
        Consistency::Split(split) => (
            split.max_cost(),
            "a request costs {}, which is more than one part of the split limit admits",
            "a larger limit, or a smaller `split`",
        ),
        Consistency::Exact | Consistency::Async { .. } => return,
    };
    let is_within_limit = policy.is_some_and(|policy| cost <= policy.limit());
    if let Some(field) = fields.get("cost").filter(|_| is_within_limit && cost > max) {
        let error = FieldError::new(message.replace("{}", &cost.to_string()));
        field.report(error.with_hint(format!("at most {max}, {remedy}")));
    }
}
