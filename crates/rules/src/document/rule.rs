//! Decodes one rule.

use tidegate_core::penalty::{BanPolicy, MAX_STRIKES};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::consistency;
use super::cost;
use super::facts::FactReference;
use super::key_by::{self, KeyBy};
use super::limit::ParsedLimit;
use super::regions::{self, ParsedRegions};
use super::{Spanned, match_section};
use crate::condition::{Condition, DescriptorMatcher};
use crate::consistency::Consistency;
use crate::cost::CostSource;
use crate::decode::{Field, FieldMap};
use crate::diagnostic::FieldError;
use crate::key::KeyPart;
use crate::rule::{ChargeWhen, FIRST_GENERATION, OnChange, OnFail, RuleLimit, RuleMode};
use crate::yaml::{SourceSpan, YamlValue};

const ON_FAIL: [(&str, OnFail); 3] =
    [("allow", OnFail::Allow), ("deny", OnFail::Deny), ("local", OnFail::Local)];

/// Maximum warnings per key before requests are refused. Each warning is stored separately.
const MAX_WARNINGS: u64 = 1_000;

/// The longest ban if the rule does not say.
const DEFAULT_MAX_BAN: Micros = Micros::from_secs(86_400);

/// A rule as written, without its invalid fields.
#[derive(Clone, Debug)]
pub(crate) struct ParsedRule {
    pub(crate) span: SourceSpan,
    pub(crate) path: String,
    pub(crate) id: Option<Spanned<String>>,
    pub(crate) description: Option<String>,
    pub(crate) active: bool,
    pub(crate) conditions: Vec<Spanned<Condition>>,
    /// The facts that it matches or keys by.
    pub(crate) referenced_facts: Vec<FactReference>,
    pub(crate) parts: Vec<KeyPart>,
    pub(crate) key_pattern: Option<Spanned<String>>,
    pub(crate) limit: Option<RuleLimit>,
    pub(crate) cost: CostSource,
    pub(crate) mode: RuleMode,
    pub(crate) on_fail: OnFail,
    pub(crate) charge: ChargeWhen,
    pub(crate) ban: Option<BanPolicy>,
    pub(crate) on_change: OnChange,
    pub(crate) generation: u32,
    pub(crate) consistency: Consistency,
    pub(crate) regions: Option<ParsedRegions>,
    /// The ids of the rules that this rule replaces wherever it applies.
    pub(crate) replaces: Vec<Spanned<String>>,
}

/// The document's defaults for fields that a rule does not set.
#[derive(Clone)]
pub(super) struct RuleDefaults {
    parts: Vec<KeyPart>,
    /// The facts in the default key.
    referenced_facts: Vec<FactReference>,
    on_fail: OnFail,
}

impl Default for RuleDefaults {
    fn default() -> Self {
        Self { parts: vec![KeyPart::Ip], referenced_facts: Vec::new(), on_fail: OnFail::Allow }
    }
}

impl RuleDefaults {
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let mut defaults = Self::default();
        if let Some(field) = fields.take("key_by")
            && let Some(parts) = key_by::read_key_by(&field)
        {
            defaults.referenced_facts = key_by::fact_references(&parts, &field);
            defaults.parts = parts;
        }
        let on_fail = fields.take("on_fail").and_then(|field| field.choice(&ON_FAIL));
        defaults.on_fail = on_fail.unwrap_or(defaults.on_fail);
        defaults
    }
}

/// Decodes a rule: a mapping, or only a shorthand limit.
pub(super) fn read(field: &Field<'_>, defaults: &RuleDefaults) -> Option<ParsedRule> {
    let mut rule = ParsedRule {
        span: field.span(),
        path: field.path().to_owned(),
        id: None,
        description: None,
        active: true,
        conditions: Vec::new(),
        referenced_facts: Vec::new(),
        parts: Vec::new(),
        key_pattern: None,
        limit: None,
        cost: CostSource::Fixed(1),
        mode: RuleMode::Enforce,
        on_fail: defaults.on_fail,
        charge: ChargeWhen::Admitted,
        ban: None,
        on_change: OnChange::Reset,
        generation: FIRST_GENERATION,
        consistency: Consistency::Exact,
        regions: None,
        replaces: Vec::new(),
    };
    if matches!(field.node().value, YamlValue::Scalar { .. }) {
        rule.set_key_and_limit(KeyBy::default(), ParsedLimit::read_shorthand(field), defaults);
        return Some(rule);
    }
    let mut fields = field.fields()?;
    rule.read_identity(&mut fields);
    rule.read_key_and_limit(&mut fields, defaults);
    rule.read_behavior(&mut fields);
    fields.finish();
    Some(rule)
}

impl ParsedRule {
    /// The descriptor that the rule matches, if any.
    pub(crate) fn descriptor(&self) -> Option<&DescriptorMatcher> {
        self.conditions.iter().find_map(|condition| condition.value.descriptor())
    }

    fn read_identity(&mut self, fields: &mut FieldMap<'_>) {
        self.id =
            fields.take_any(&["id", "policy_id", "rule_id"]).and_then(|field| read_id(&field));
        let description = fields.take("description").and_then(|field| field.text());
        self.description = description.map(str::to_owned);
        let active = fields.take("is_active").and_then(|field| field.boolean());
        self.active = active.unwrap_or(true);
        // A column of rule tables (`--rules-table`), without effect.
        let _ = fields.take("created_at").and_then(|field| field.text());
        if let Some(field) = fields.take("match") {
            (self.conditions, self.referenced_facts) = match_section::read(&field);
        }
        if let Some(field) = fields.take("plan") {
            self.referenced_facts.push(FactReference::new("tier", field.span(), field.path()));
            self.conditions.extend(match_section::read_conditions(
                "tier",
                match_section::ValueSpelling::Any,
                &field,
            ));
        }
    }

    fn read_key_and_limit(&mut self, fields: &mut FieldMap<'_>, defaults: &RuleDefaults) {
        let key = KeyBy::read(fields);
        let allowed = ParsedLimit::read(fields);
        if key.is_present && allowed.key_parts.is_some() {
            let error = FieldError::new("the key of the counter is set twice");
            fields.report(error.with_hint("only `key_by`, without `by` in the limit"));
        }
        self.set_key_and_limit(key, allowed, defaults);
    }

    fn set_key_and_limit(&mut self, key: KeyBy, allowed: ParsedLimit, defaults: &RuleDefaults) {
        let by = allowed.key_parts.map(|parts| (parts, allowed.referenced_facts));
        let explicit = key.parts.map(|parts| (parts, key.referenced_facts)).or(by);
        let (parts, named) =
            explicit.unwrap_or_else(|| (defaults.parts.clone(), defaults.referenced_facts.clone()));
        self.parts = parts;
        self.referenced_facts.extend(named);
        self.conditions.extend(key.endpoint);
        self.key_pattern = key.pattern;
        self.limit = allowed.limit;
    }

    /// Decodes the fields other than match, key and limit.
    fn read_behavior(&mut self, fields: &mut FieldMap<'_>) {
        if let Some(cost) = fields.take("cost").and_then(|field| self.read_cost(&field)) {
            self.cost = cost;
        }
        if let Some(mode) = read_mode(fields) {
            self.mode = mode;
        }
        let on_fail = fields.take("on_fail").and_then(|field| field.choice(&ON_FAIL));
        self.on_fail = on_fail.unwrap_or(self.on_fail);
        self.charge =
            fields.take("charge").and_then(|field| self.read_charge(&field)).unwrap_or(self.charge);
        let on_change = fields.take("on_change").and_then(|field| {
            field.choice(&[("keep", OnChange::Keep), ("reset", OnChange::Reset)])
        });
        self.on_change = on_change.unwrap_or(self.on_change);
        let generation = fields
            .take("generation")
            .and_then(|field| field.integer(u64::from(FIRST_GENERATION), u64::from(u32::MAX)));
        let generation = generation.and_then(|number| u32::try_from(number).ok());
        self.generation = generation.unwrap_or(self.generation);
        self.ban = fields.take("ban").and_then(|field| read_ban(&field));
        if let Some(field) = fields.take("replaces") {
            self.replaces = field.non_empty_items().iter().filter_map(read_id).collect();
        }
        self.consistency = consistency::read(fields, self);
        self.regions = regions::read(fields, self);
    }

    fn read_cost(&self, field: &Field<'_>) -> Option<CostSource> {
        let cost = cost::read(field)?;
        if self.holds_slots() && cost.is_known_after_response() {
            let error = FieldError::new(
                "slots are taken when the request starts, so the cost must be known then",
            );
            field.report(error.with_hint("a number, or `header` with `max`"));
        }
        let limit = self.limit.as_ref().and_then(RuleLimit::policy).map_or(u64::MAX, Policy::limit);
        if cost.base() > limit {
            let message = format!(
                "a request costs {}, which is more than the limit ever admits",
                cost.base()
            );
            field.report(FieldError::new(message).with_hint(format!("at most {limit}")));
        }
        Some(cost)
    }

    fn read_charge(&self, field: &Field<'_>) -> Option<ChargeWhen> {
        let words = [("always", ChargeWhen::Always), ("admitted", ChargeWhen::Admitted)];
        let charge = field.choice(&words)?;
        if charge == ChargeWhen::Always && self.holds_slots() {
            let error = FieldError::new("a refused request holds no slot, so it cannot be charged");
            field.report(error.with_found("always").with_hint("`admitted`, or leave it out"));
        }
        Some(charge)
    }

    fn holds_slots(&self) -> bool {
        let policy = self.limit.as_ref().and_then(RuleLimit::policy);
        policy.is_some_and(Policy::is_concurrency)
    }
}

fn read_id(field: &Field<'_>) -> Option<Spanned<String>> {
    let id = field.non_empty_text()?;
    let printable = id.bytes().all(|byte| (0x20..=0x7E).contains(&byte));
    if !printable || id.trim() != id || id.len() > 128 {
        // Ids appear in structured HTTP fields (RFC 9651), which are printable ASCII.
        let error =
            FieldError::new("an id is at most 128 printable ASCII characters").with_found(id);
        field.report(error.with_hint("for instance `free-writes`"));
        return None;
    }
    Some(Spanned { value: id.to_owned(), span: field.span() })
}

fn read_mode(fields: &mut FieldMap<'_>) -> Option<RuleMode> {
    #[derive(Clone, Copy)]
    enum ModeWord {
        Enforce,
        Shadow,
        Warn,
    }
    let words =
        [("enforce", ModeWord::Enforce), ("shadow", ModeWord::Shadow), ("warn", ModeWord::Warn)];
    let word = fields.take("mode").map(|field| field.choice(&words));
    let warn = fields.take("warn");
    match (word, warn) {
        (Some(Some(ModeWord::Warn)), warn) => read_warn(warn.as_ref()),
        (Some(None), _) => None,
        (word, warn) => {
            if let Some(warn) = warn {
                let error = FieldError::new("these settings are for `mode: warn` only");
                warn.report(error.with_hint("`mode: warn` beside them, or leave them out"));
            }
            Some(if matches!(word, Some(Some(ModeWord::Shadow))) {
                RuleMode::Shadow
            } else {
                RuleMode::Enforce
            })
        }
    }
}

fn read_warn(field: Option<&Field<'_>>) -> Option<RuleMode> {
    let (mut allow, mut period) = (Some(1), Some(Micros::from_secs(60)));
    if let Some(field) = field {
        let mut fields = field.fields()?;
        if let Some(field) = fields.take("allow") {
            allow = field.integer(1, MAX_WARNINGS);
        }
        if let Some(field) = fields.take("period") {
            period = field.duration();
        }
        fields.finish();
    }
    let policy = Policy::new(Algorithm::SlidingWindowLog, Quota::new(allow?, period?));
    policy.ok().map(RuleMode::Warn)
}

fn read_ban(field: &Field<'_>) -> Option<BanPolicy> {
    let mut fields = field.fields()?;
    let after = fields.require("after", "`after: 10` refusals");
    let within = fields.require("within", "`within: 1m`");
    let lasts = fields.require("for", "`for: 5m`");
    let (factor, longest) = (fields.take("factor"), fields.take("max"));
    fields.finish();
    let after = after.and_then(|field| field.integer(1, u64::from(MAX_STRIKES)));
    let within = within.and_then(|field| field.duration());
    let lasts = lasts.and_then(|field| field.duration());
    let factor = factor.map_or(Some(2), |field| field.integer(1, u64::from(u32::MAX)));
    let most = longest.as_ref().map(Field::duration);
    if let (Some(field), Some(Some(most)), Some(lasts)) = (&longest, most, lasts)
        && most < lasts
    {
        let error = FieldError::new("the longest ban is shorter than the first one");
        field.report(error.with_hint(format!("at least `{lasts}`, or leave `max` out")));
    }
    let most = most.unwrap_or_else(|| Some(DEFAULT_MAX_BAN.max(lasts?)));
    let small = |number: u64| u32::try_from(number).ok();
    Some(BanPolicy::new(small(after?)?, within?, lasts?, small(factor?)?, most?))
}
