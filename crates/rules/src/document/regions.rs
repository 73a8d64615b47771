//! Decodes the `regions` of a rule, and checks them with the rule's other fields.

use tidegate_core::policy::Policy;
use tidegate_core::time::Micros;

use super::Document;
use super::rule::ParsedRule;
use crate::consistency::Consistency;
use crate::decode::{Diagnostics, Field, FieldMap};
use crate::diagnostic::FieldError;
use crate::regions::{BorrowTerms, RegionShares, is_region_name, share_of};
use crate::rule::RuleLimit;
use crate::value_syntax::percentage::Percentage;
use crate::yaml::SourceSpan;

/// How regions borrow if the rule does not say.
const DEFAULT_TERMS: BorrowTerms = BorrowTerms {
    ttl: Micros::from_millis(500),
    every: Micros::from_millis(100),
    keep: Percentage::FIFTY,
};

/// The shortest time between two requests to a region.
const MIN_EVERY: Micros = Micros::from_millis(10);

/// The `regions` of a rule, and their location.
#[derive(Clone, Debug)]
pub(crate) struct ParsedRegions {
    pub(crate) shares: RegionShares,
    span: SourceSpan,
    path: String,
}

/// Decodes `regions` of a rule whose limit, cost and consistency have been decoded. If the regions
/// borrow from each other, the rule's consistency is changed so that it leaves room for that.
pub(super) fn read(fields: &mut FieldMap<'_>, rule: &mut ParsedRule) -> Option<ParsedRegions> {
    let field = fields.take("regions")?;
    let mut settings = field.fields()?;
    let shares = settings.require("shares", "`shares: { eu: 50%, us: 50% }`");
    let (tolerance, borrow) = (settings.take("tolerance"), settings.take("borrow"));
    settings.finish();
    let borrow = match borrow {
        Some(field) => Some(read_borrow(&field, fields, rule)?),
        None => None,
    };
    let tolerance = tolerance.map_or(Some(Percentage::ZERO), |field| read_percentage(&field));
    let listed: Vec<(&str, Field<'_>)> =
        shares?.fields()?.all_fields().map(|(name, _, field)| (name, field)).collect();
    let read = |(name, field): &(&str, Field<'_>)| {
        if !is_region_name(name) {
            let error = FieldError::new("this is not the name of a region").with_found(name);
            field
                .report(error.with_hint("letters, digits, dashes and underscores, such as `eu-1`"));
            return None;
        }
        Some(((*name).to_owned(), read_percentage(field)?))
    };
    // Read all of them first, so that all errors are reported.
    let read: Vec<Option<(String, Percentage)>> = listed.iter().map(read).collect();
    let shares = read.into_iter().collect::<Option<Vec<_>>>()?;
    let shares = RegionShares::new(shares, tolerance?, borrow);
    check_sum(&shares, &field);
    check_lenders(&shares, &field);
    match rule.limit {
        Some(RuleLimit::Policy(policy)) => {
            for ((_, share), (_, written)) in shares.iter().zip(&listed) {
                check_share(&policy, share, rule, written);
            }
        }
        Some(RuleLimit::Unlimited | RuleLimit::Deny { .. }) => {
            let error = FieldError::new("this rule has no limit to divide among regions");
            field.report(error.with_hint("a limit, or leave `regions` out"));
        }
        None => {}
    }
    Some(ParsedRegions { shares, span: field.span(), path: field.path().to_owned() })
}

/// Decodes `borrow`, and makes room in the rule's limit for it.
fn read_borrow(
    field: &Field<'_>,
    fields: &FieldMap<'_>,
    rule: &mut ParsedRule,
) -> Option<BorrowTerms> {
    let mut settings = field.fields()?;
    let (ttl, every) = (settings.take("ttl"), settings.take("every"));
    let keep = settings.take("keep");
    settings.finish();
    let blamed = ttl.as_ref().unwrap_or(field);
    let ttl = match &ttl {
        Some(field) => read_duration(field, None),
        None => Some(DEFAULT_TERMS.ttl),
    };
    let keep = keep.map_or(Some(DEFAULT_TERMS.keep), |field| read_percentage(&field));
    let every = match (&every, ttl) {
        (Some(field), ttl) => read_duration(field, ttl),
        (None, Some(ttl)) => {
            let fifth = Micros::new(ttl.get() / 5);
            Some(DEFAULT_TERMS.every.min(fifth.max(MIN_EVERY)))
        }
        (None, None) => None,
    };
    let terms = BorrowTerms { ttl: ttl?, every: every?, keep: keep? };
    match rule.consistency.lent_to_regions(&rule.limit?, terms.ttl) {
        Some(Ok(consistency)) => rule.consistency = consistency,
        Some(Err(error)) => {
            blamed.report(error.describe(rule.limit?.policy()?));
            return None;
        }
        None => report_not_leased(field, fields),
    }
    Some(terms)
}

/// A time of at least 10 ms, and at most `ttl`.
fn read_duration(field: &Field<'_>, ttl: Option<Micros>) -> Option<Micros> {
    let duration = field.duration()?;
    if duration >= MIN_EVERY && ttl.is_none_or(|ttl| duration <= ttl) {
        return Some(duration);
    }
    let hint = match ttl {
        None => format!("at least `{MIN_EVERY}`"),
        Some(ttl) => format!("from `{MIN_EVERY}` to the `ttl`, `{ttl}`"),
    };
    let error = FieldError::new("this time is out of bounds");
    field.report(error.with_found(field.scalar().unwrap_or_default()).with_hint(hint));
    None
}

/// Reports that a rule borrows, but its units are not leased. A wrong value of `consistency` has
/// been reported already.
fn report_not_leased(field: &Field<'_>, fields: &FieldMap<'_>) {
    let is_other = |field: Field<'_>| {
        let is = |mode: &str| field.scalar().is_some_and(|text| text.eq_ignore_ascii_case(mode));
        is("exact") || is("async")
    };
    if fields.get("consistency").is_none_or(is_other) {
        let error = FieldError::new("regions borrow units of leased rules only");
        let hint = "`consistency: leased` beside `regions`, or leave `borrow` out";
        field.report(error.with_hint(hint));
    }
}

fn read_percentage(field: &Field<'_>) -> Option<Percentage> {
    field.ok_or_report(Percentage::parse(field.text()?))
}

fn check_sum(shares: &RegionShares, field: &Field<'_>) {
    if shares.iter().next().is_none() {
        let error = FieldError::new("no region has a share");
        field.report(error.with_hint("`shares: { eu: 50%, us: 50% }`"));
    }
    let sum = shares.sum();
    let max = Percentage::ONE_HUNDRED.plus(shares.tolerance());
    if sum > max {
        let error = FieldError::new(format!("the shares add up to {sum}, which is above {max}"));
        let excess = sum.minus(Percentage::ONE_HUNDRED);
        let hint = format!(
            "smaller shares, or `tolerance: {excess}` if all regions together may admit that much \
             more than the limit"
        );
        field.report(error.with_hint(hint));
    }
}

/// Reports a rule that borrows while no other region has a share.
fn check_lenders(shares: &RegionShares, field: &Field<'_>) {
    let mut regions = shares.iter();
    if let (Some(_), Some((only, _)), None) =
        (shares.borrow_terms(), regions.next(), regions.next())
    {
        let error = FieldError::new(format!("only {only} has a share, so no region can lend"));
        field.report(error.with_hint("the share of another region, or leave `borrow` out"));
    }
}

/// Reports a share by which the rule cannot work. All shares are checked on all nodes, so that a
/// document is valid in all regions or in none.
fn check_share(whole: &Policy, share: Percentage, rule: &ParsedRule, written: &Field<'_>) {
    let policy = match share_of(whole, share) {
        Ok(policy) => policy,
        Err(error) => return written.report(error.describe()),
    };
    let consistency = match rule.consistency.for_limit(&RuleLimit::Policy(policy)) {
        Ok(consistency) => consistency,
        Err(error) => {
            let mut error = error.describe_share(&policy, share);
            error.message = format!("this share of the limit: {}", error.message);
            return written.report(error);
        }
    };
    let max_cost = |limit: &Policy, by: &Consistency| by.max_cost().unwrap_or(limit.limit());
    let (cost, max) = (rule.cost.base(), max_cost(&policy, &consistency));
    if cost > max && cost <= max_cost(whole, &rule.consistency) {
        let message = format!("a request costs {cost}, which is more than this share ever admits");
        let hint = format!("a cost of at most {max}, or a larger share");
        written.report(FieldError::new(message).with_hint(hint));
    }
}

impl Document {
    /// Sets the region of this node. The node enforces the share of that region of each rule with
    /// `regions`.
    pub fn set_region(&mut self, region: Option<&str>) {
        self.region = region.map(str::to_owned);
    }

    /// The region of this node.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Reports rules that are divided among regions, but have no share for the region of this node.
    pub(crate) fn check_regions(&self, diagnostics: &Diagnostics<'_>) {
        if self.declared.any_fact {
            return;
        }
        for regions in self.rules.iter().filter_map(|rule| rule.regions.as_ref()) {
            let error = match self.region() {
                None => {
                    let example = regions.shares.iter().next().map_or("eu", |(name, _)| name);
                    let hint = format!("`--region {example}` or `server: {{ region: {example} }}`");
                    FieldError::new("this node has no region, so it has no share of the limit")
                        .with_hint(hint)
                }
                Some(region) if regions.shares.share(region).is_none() => {
                    FieldError::new(format!("this node's region `{region}` has no share"))
                        .with_hint(format!("`{region}` in `shares`, or another `--region`"))
                }
                Some(_) => continue,
            };
            diagnostics.report(regions.span, &regions.path, error);
        }
    }
}
