//! Limits as rules.

use std::collections::{BTreeSet, HashMap};

use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::asked::Asked;
use super::cel::{self, Claim, Reason};
use super::read::{Expression, TypedLimit};
use crate::import::gaps::{Gaps, quoted};
use crate::import::ids::{Ids, Name};
use crate::import::write::{Allows, Conduct, RuleText, Window, Writer, list, scalar};

/// What the service tells limits apart by.
type Identity<'l> = (&'l str, u64, BTreeSet<&'l str>, BTreeSet<&'l str>);

/// A limit in our words.
struct Rule {
    asked: Asked,
    key_by: Vec<String>,
    limit: Allows,
}

/// Writes a rule for every limit that can be said; the others are listed.
pub(super) fn all(limits: &[TypedLimit], writer: &mut Writer, gaps: &mut Gaps<'_>) {
    let mut ids = Ids::default();
    let mut known: HashMap<Identity<'_>, usize> = HashMap::new();
    for limit in limits {
        if let Some(line) = known.insert(limit.identity(), limit.span.line) {
            let why = format!(
                "line {line} is the same limit but for its number, and the service keeps one of them"
            );
            gaps.note(limit.span, &limit.path, &why, "it is left out; keep the one that is meant");
            continue;
        }
        if let Some(rule) = limit.rule(gaps) {
            let id = id(limit, &rule, &mut ids);
            writer.declare(rule.asked.names());
            writer.rule(&RuleText {
                id: &id,
                matched: &format!("domain: {}{}", scalar(&limit.namespace), rule.asked.text()),
                key_by: Some(if rule.key_by.is_empty() {
                    "global".to_owned()
                } else {
                    list(&rule.key_by)
                }),
                limit: rule.limit,
                conduct: Conduct::Usual,
                replaces: Vec::new(),
            });
        }
    }
}

impl TypedLimit {
    fn identity(&self) -> Identity<'_> {
        (&self.namespace, self.seconds, texts(&self.conditions), texts(&self.variables))
    }

    /// The rule, or nothing after noting why there is none. All that is in its way is noted.
    fn rule(&self, gaps: &mut Gaps<'_>) -> Option<Rule> {
        let (mut asked, mut key_by) = (Asked::default(), Vec::new());
        let before = gaps.list.len();
        for condition in &self.conditions {
            let claims = cel::condition(&condition.text);
            let added = claims.and_then(|claims| {
                claims.into_iter().try_for_each(|(name, claim)| asked.add(&name, claim))
            });
            note(added, condition, gaps);
        }
        for variable in &self.variables {
            let named = cel::variable(&variable.text);
            let added = named.and_then(|name| {
                asked.add(&name, Claim::Present)?;
                if !key_by.contains(&name) {
                    key_by.push(name);
                }
                Ok(())
            });
            note(added, variable, gaps);
        }
        if self.namespace.contains('*') {
            let instead =
                "the limit is left out; give the namespace another name, also in Envoy's filter";
            gaps.note(self.span, &self.path, "a `*` in a namespace is a wildcard here", instead);
        }
        let limit = asked.narrow().and_then(|()| self.allows()).map_err(|why| {
            let instead = "the limit is left out; write a rule for what is meant";
            gaps.note(self.span, &self.path, &why, instead);
        });
        (gaps.list.len() == before).then_some(Rule { asked, key_by, limit: limit.ok()? })
    }

    fn allows(&self) -> Result<Allows, Reason> {
        let (requests, seconds) = (self.max_value, self.seconds);
        if requests == 0 {
            return Ok(Allows::Nothing);
        }
        let micros = seconds.checked_mul(1_000_000).ok_or("the window is too long")?;
        let quota = Quota::new(requests, Micros::new(micros));
        Policy::new(Algorithm::FixedWindow, quota).map_err(|error| error.to_string())?;
        let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
        let unit = units.into_iter().find(|(size, _)| seconds % size == 0).unwrap_or((1, "s"));
        Ok(Allows::Windows { requests, window: Window(seconds / unit.0, unit.1) })
    }
}

fn texts(expressions: &[Expression]) -> BTreeSet<&str> {
    expressions.iter().map(|expression| expression.text.as_str()).collect()
}

fn note(added: Result<(), Reason>, expression: &Expression, gaps: &mut Gaps<'_>) {
    if let Err(reason) = added {
        let why = format!("{}: {reason}", quoted(&expression.text));
        let instead = "the limit is left out; write a rule with `match` and `key_by` for it";
        gaps.note(expression.span, &expression.path, &why, instead);
    }
}

/// What people call it, or what it is about.
fn id(limit: &TypedLimit, rule: &Rule, ids: &mut Ids) -> String {
    if let Some(name) = limit.names.iter().find(|name| ids.claim(name)) {
        return name.clone();
    }
    let mut name = Name::new(&limit.namespace);
    for words in rule.asked.words() {
        name = name.then("/", &words);
    }
    for key in &rule.key_by {
        name = name.then("/by-", key);
    }
    ids.give(&name.then("/", &format!("{}s", limit.seconds)))
}
