//! Overrides: other numbers for one key of a rule, for good or until a date.

use std::collections::BTreeMap;

use http::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate_edge::date::{parse_rfc3339, rfc3339};
use tidegate_edge::path::percent_encoded;
use tidegate_edge::problem::Problem;
use tidegate_rules::{Facts, RuleSet};

use super::precondition::Seen;
use super::query::Query;
use super::reply::Reply;
use super::{Asked, body};
use crate::book::{Kept, Kind};
use crate::compile::Flaw;
use crate::edit::Entry;
use crate::office::Fault;
use crate::paper;
use crate::record::{self, Override, Requests};

/// The most overrides that one request sets.
const MOST: usize = 10_000;

/// The longest note.
const MAX_NOTE: usize = 500;

/// An override as somebody asks for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    rule: String,
    /// Whose: the facts that the rule counts by.
    key: BTreeMap<String, String>,
    requests: Requests,
    burst: Option<u64>,
    /// Until when, as RFC 3339.
    until: Option<String>,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<Json>),
    One(Json),
}

impl Asked<'_> {
    /// The overrides, of one rule if it is said.
    pub(super) fn overrides(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["after", "rule"])?;
        let rule = query.text("rule");
        let of_rule =
            |shown: &Json| rule.is_none_or(|rule| shown.get("rule") == Some(&rule.into()));
        self.page(Kind::Override, &query, of_rule, view)
    }

    pub(super) fn one_override(&self, id: &str) -> Result<Reply, Problem> {
        self.one(Kind::Override, id, view)
    }

    /// Sets one override or a list of them, as one version.
    pub(super) async fn put_overrides(&self) -> Result<Reply, Problem> {
        let (list, many) = match body::parse(self.body)? {
            OneOrMany::One(one) => (vec![one], false),
            OneOrMany::Many(list) if (1..=MOST).contains(&list.len()) => (list, true),
            OneOrMany::Many(_) => {
                let detail = format!("a list has from 1 to {MOST} overrides");
                return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
            }
        };
        let mut wanted = Vec::with_capacity(list.len());
        for (at, one) in list.into_iter().enumerate() {
            wanted.push(read(one).map_err(|problem| within(problem, at, many))?);
        }
        let (seen, ids) = (Seen::of(&self.head.headers)?, Mutex::new(Vec::new()));
        let done = self
            .change("override set", |book| {
                // Whose key is whose depends on the rules that are the latest.
                let rules = self.office.compile_rules(&paper::document(book));
                let rules = rules.map_err(|problems| {
                    Fault::Invalid(vec![Flaw::of_document(&problems.to_string())])
                })?;
                let known = wanted.iter().enumerate().map(|(at, wanted)| {
                    let known = made(wanted, &rules).map_err(|flaw| {
                        let field =
                            if many { format!("[{at}].{}", flaw.field) } else { flaw.field };
                        Fault::Invalid(vec![Flaw { field, ..*flaw }])
                    })?;
                    // A list is set as it stands.
                    if !many || seen != Seen::Unsaid {
                        seen.check(book.get(Kind::Override, &known.id()))?;
                    }
                    Ok(known.entry())
                });
                let entries = known.collect::<Result<Vec<_>, Fault>>()?;
                *ids.lock() = entries.iter().map(|entry| entry.id.clone()).collect();
                Ok(unique(entries))
            })
            .await?;
        done.or_told(|done| {
            let ids = ids.into_inner();
            let location = match ids.as_slice() {
                [one] => format!("/v1/overrides/{}", percent_encoded(one)),
                _ => "/v1/overrides".to_owned(),
            };
            let told = json!({"version": done.version, "ids": ids});
            Ok(Reply::created(&told, &location).tagged(done.version))
        })
    }

    pub(super) async fn delete_override(&self, id: &str) -> Result<Reply, Problem> {
        self.delete(Kind::Override, id).await
    }
}

fn read(one: Json) -> Result<Wanted, Problem> {
    let wrong = |field: &str, detail: String| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field(field)
    };
    let wanted: Wanted = serde_path_to_error::deserialize(one).map_err(|error| {
        let field = error.path().to_string();
        match field.split('.').next().unwrap_or_default() {
            "requests" => wrong(&field, "this is a whole number, `unlimited` or `deny`".to_owned()),
            // What stands there may be an API key.
            "key" => {
                let detail = "these are the facts that the rule counts by, each with its text";
                wrong("key", detail.to_owned())
            }
            _ => wrong(&field, error.inner().to_string()),
        }
    })?;
    if wanted.until.as_deref().is_some_and(|until| parse_rfc3339(until).is_none()) {
        let detail = "this is an instant such as 2026-12-31T23:59:59Z".to_owned();
        return Err(wrong("until", detail));
    }
    let note = wanted.note.as_deref().unwrap_or_default();
    if note.len() > MAX_NOTE || note.contains('\0') {
        return Err(wrong("note", format!("a note has at most {MAX_NOTE} bytes")));
    }
    Ok(wanted)
}

fn within(problem: Problem, at: usize, many: bool) -> Problem {
    if !many {
        return problem;
    }
    let field = format!("[{at}].{}", problem.field.as_deref().unwrap_or_default());
    problem.with_field(field)
}

/// The override of a key that a rule has.
fn made(wanted: &Wanted, rules: &RuleSet) -> Result<Override, Box<Flaw>> {
    let facts: Facts<'_> =
        wanted.key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let flaw = |field: &str, message: String| {
        Box::new(Flaw { of: None, field: field.to_owned(), found: None, message, hint: None })
    };
    let rule = rules.rules().iter().find(|rule| rule.id() == wanted.rule);
    let rule = rule.ok_or_else(|| flaw("rule", format!("there is no rule `{}`", wanted.rule)))?;
    let hash = rules.override_key(&wanted.rule, &facts);
    let hash = hash.map_err(|problem| flaw("key", problem.message))?;
    let key_by: Vec<String> = rule.key_by().map(str::to_owned).collect();
    if let Some(other) = wanted.key.keys().find(|name| !key_by.contains(name)) {
        let message = format!("rule `{}` does not count by `{other}`", wanted.rule);
        return Err(flaw("key", message));
    }
    let shown = wanted.key.iter().filter(|(name, _)| *name != "api_key");
    let until = wanted.until.as_deref().and_then(parse_rfc3339);
    Ok(Override {
        rule: wanted.rule.clone(),
        hash: hash.into(),
        key: shown.map(|(name, value)| (name.clone(), value.clone())).collect(),
        key_by,
        requests: wanted.requests,
        burst: wanted.burst,
        until_us: until.map(|secs| secs.saturating_mul(1_000_000)),
        note: wanted.note.clone(),
    })
}

/// Of a key that is there twice the last is meant.
fn unique(entries: Vec<Entry>) -> Vec<Entry> {
    let by_id: BTreeMap<String, Entry> =
        entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
    by_id.into_values().collect()
}

fn view(id: &str, kept: &Kept) -> Option<Json> {
    let known: Override = record::read(&kept.value)?;
    let until = known.until_us.map(|until| rfc3339(until / 1_000_000));
    Some(json!({
        "id": id, "version": kept.version, "rule": known.rule, "key": known.key, "key_by": known.key_by,
        "requests": known.requests, "burst": known.burst, "until": until, "note": known.note,
    }))
}
