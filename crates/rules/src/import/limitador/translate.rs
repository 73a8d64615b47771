//! Translates limits into rules.

use std::collections::{BTreeSet, HashMap};

use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::cel::{self, CelError, CelPredicate};
use super::constraints::MatchConstraints;
use super::read::{CelExpression, LimitadorLimit};
use crate::import::document_writer::{
    DocumentWriter, ImportedLimit, RuleBehavior, RuleYaml, WindowText, yaml_list, yaml_scalar,
};
use crate::import::rule_ids::{IdAllocator, RuleIdPath};
use crate::import::unsupported::{UnsupportedCollector, quote_text};

/// The fields by which the service identifies a limit.
type LimitIdentity<'l> = (&'l str, u64, BTreeSet<&'l str>, BTreeSet<&'l str>);

/// The parts of the rule for a limit.
struct TranslatedRule {
    constraints: MatchConstraints,
    key_by: Vec<String>,
    limit: ImportedLimit,
}

/// Writes a rule for every limit that has an equivalent, and lists the others.
pub(super) fn translate_limits(
    limits: &[LimitadorLimit],
    writer: &mut DocumentWriter,
    gaps: &mut UnsupportedCollector<'_>,
) {
    let mut ids = IdAllocator::default();
    let mut known: HashMap<LimitIdentity<'_>, usize> = HashMap::new();
    for limit in limits {
        if let Some(line) = known.insert(limit.identity(), limit.span.line) {
            let why = format!(
                "line {line} is the same limit with another number, and the service keeps only one of them"
            );
            gaps.note(limit.span, &limit.path, &why, "it is skipped; keep only the intended one");
            continue;
        }
        if let Some(rule) = limit.to_rule(gaps) {
            let id = assign_id(limit, &rule, &mut ids);
            writer.declare_facts(rule.constraints.names());
            writer.push_rule(&RuleYaml {
                id: &id,
                match_body: &format!(
                    "domain: {}{}",
                    yaml_scalar(&limit.namespace),
                    rule.constraints.to_yaml()
                ),
                key_by: Some(if rule.key_by.is_empty() {
                    "global".to_owned()
                } else {
                    yaml_list(&rule.key_by)
                }),
                limit: rule.limit,
                behavior: RuleBehavior::Standard,
                replaces: Vec::new(),
            });
        }
    }
}

impl LimitadorLimit {
    fn identity(&self) -> LimitIdentity<'_> {
        (
            &self.namespace,
            self.seconds,
            expression_texts(&self.conditions),
            expression_texts(&self.variables),
        )
    }

    /// The rule, or `None` after listing everything that has no equivalent.
    fn to_rule(&self, gaps: &mut UnsupportedCollector<'_>) -> Option<TranslatedRule> {
        let (mut constraints, mut key_by) = (MatchConstraints::default(), Vec::new());
        let before = gaps.list.len();
        for condition in &self.conditions {
            let claims = cel::parse_condition(&condition.text);
            let added = claims.and_then(|claims| {
                claims.into_iter().try_for_each(|(name, claim)| constraints.add(&name, claim))
            });
            note_unsupported(added, condition, gaps);
        }
        for variable in &self.variables {
            let named = cel::parse_variable(&variable.text);
            let added = named.and_then(|name| {
                constraints.add(&name, CelPredicate::Present)?;
                if !key_by.contains(&name) {
                    key_by.push(name);
                }
                Ok(())
            });
            note_unsupported(added, variable, gaps);
        }
        if self.namespace.contains('*') {
            let instead =
                "the limit is skipped; give the namespace another name, also in Envoy's filter";
            gaps.note(
                self.span,
                &self.path,
                "a `*` in a namespace is a wildcard in Tidegate",
                instead,
            );
        }
        let limit = constraints.simplify().and_then(|()| self.convert_limit()).map_err(|why| {
            let instead = "the limit is skipped; write a rule for the intended effect";
            gaps.note(self.span, &self.path, &why, instead);
        });
        (gaps.list.len() == before).then_some(TranslatedRule {
            constraints,
            key_by,
            limit: limit.ok()?,
        })
    }

    fn convert_limit(&self) -> Result<ImportedLimit, CelError> {
        let (requests, seconds) = (self.max_value, self.seconds);
        let micros = seconds.checked_mul(1_000_000).ok_or("the window is too long")?;
        let quota = Quota::new(requests.max(1), Micros::new(micros));
        Policy::new(Algorithm::FixedWindow, quota).map_err(|error| error.to_string())?;
        let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
        let unit = units.into_iter().find(|(size, _)| seconds % size == 0).unwrap_or((1, "s"));
        let window = WindowText(seconds / unit.0, unit.1);
        Ok(match requests {
            0 => ImportedLimit::DenyAll { window },
            requests => ImportedLimit::FixedWindow { requests, window },
        })
    }
}

fn expression_texts(expressions: &[CelExpression]) -> BTreeSet<&str> {
    expressions.iter().map(|expression| expression.text.as_str()).collect()
}

fn note_unsupported(
    added: Result<(), CelError>,
    expression: &CelExpression,
    gaps: &mut UnsupportedCollector<'_>,
) {
    if let Err(reason) = added {
        let why = format!("{}: {reason}", quote_text(&expression.text));
        let instead = "the limit is skipped; write a rule with `match` and `key_by` for it";
        gaps.note(expression.span, &expression.path, &why, instead);
    }
}

/// The `id` or `name` of the limit, or else an id derived from its content.
fn assign_id(limit: &LimitadorLimit, rule: &TranslatedRule, ids: &mut IdAllocator) -> String {
    if let Some(name) = limit.names.iter().find(|name| ids.claim(name)) {
        return name.clone();
    }
    let mut name = RuleIdPath::new(&limit.namespace);
    for words in rule.constraints.id_segments() {
        name = name.join("/", &words);
    }
    for key in &rule.key_by {
        name = name.join("/by-", key);
    }
    ids.allocate(&name.join("/", &format!("{}s", limit.seconds)))
}
