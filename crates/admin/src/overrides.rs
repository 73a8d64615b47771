//! Overrides: a different limit for one key of a rule, permanently or until a given time.

use std::collections::BTreeMap;

use http::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate_rules::{Facts, RuleSet};
use tidegate_web::date::{format_rfc3339, parse_rfc3339};
use tidegate_web::percent::percent_encode;
use tidegate_web::problem::HttpError;

use super::precondition::Precondition;
use super::query::AdminQuery;
use super::reply::AdminReply;
use super::{AdminRequest, body};
use tidegate_rulestore::EditError;
use tidegate_rulestore::EntryUpdate;
use tidegate_rulestore::ValidationError;
use tidegate_rulestore::entry_value::{self, OverrideRequests, StoredOverride};
use tidegate_rulestore::rule_document;
use tidegate_rulestore::{EntryKind, StoredEntry};

/// The maximum number of overrides in one request.
const MAX_OVERRIDES: usize = 10_000;

/// The maximum length of a note.
const MAX_NOTE_BYTES: usize = 500;

/// An override in the body of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideRequest {
    rule: String,
    /// Values of the facts that the rule counts by.
    key: BTreeMap<String, String>,
    requests: OverrideRequests,
    burst: Option<u64>,
    /// When the override expires, as RFC 3339.
    until: Option<String>,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<Json>),
    One(Json),
}

impl AdminRequest<'_> {
    /// Lists the overrides, optionally of one rule.
    pub(super) fn overrides(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["after", "rule"])?;
        let rule = query.text("rule");
        let of_rule =
            |shown: &Json| rule.is_none_or(|rule| shown.get("rule") == Some(&rule.into()));
        self.list_entries(EntryKind::Override, &query, of_rule, override_view)
    }

    pub(super) fn get_override(&self, id: &str) -> Result<AdminReply, HttpError> {
        self.get_entry(EntryKind::Override, id, override_view)
    }

    /// Sets one override or a list of them, in a single new version.
    pub(super) async fn put_overrides(&self) -> Result<AdminReply, HttpError> {
        let (list, many) = match body::parse_json(self.body)? {
            OneOrMany::One(one) => (vec![one], false),
            OneOrMany::Many(list) if (1..=MAX_OVERRIDES).contains(&list.len()) => (list, true),
            OneOrMany::Many(_) => {
                let detail = format!("a list must have from 1 to {MAX_OVERRIDES} overrides");
                return Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
            }
        };
        let mut wanted = Vec::with_capacity(list.len());
        for (at, one) in list.into_iter().enumerate() {
            wanted.push(parse_override(one).map_err(|problem| prefix_field(problem, at, many))?);
        }
        let (seen, ids) = (Precondition::from_headers(&self.head.headers)?, Mutex::new(Vec::new()));
        let done = self
            .commit_change("override set", |config| {
                // The key's hash depends on the rule, so compile the latest rules.
                let rules = self.manager.compile_rules(&rule_document::render_document(config));
                let rules = rules.map_err(|problems| {
                    EditError::Invalid(vec![ValidationError::for_document(&problems.to_string())])
                })?;
                let updates = wanted.iter().enumerate().map(|(at, wanted)| {
                    let stored = build_override(wanted, &rules).map_err(|flaw| {
                        let field =
                            if many { format!("[{at}].{}", flaw.field) } else { flaw.field };
                        EditError::Invalid(vec![ValidationError { field, ..*flaw }])
                    })?;
                    // A list needs no precondition: it overwrites existing overrides.
                    if !many || seen != Precondition::Unspecified {
                        seen.check_entry(config.get(EntryKind::Override, &stored.id()))?;
                    }
                    Ok(stored.to_update())
                });
                let entries = updates.collect::<Result<Vec<_>, EditError>>()?;
                *ids.lock() = entries.iter().map(|entry| entry.id.clone()).collect();
                Ok(dedup_by_id(entries))
            })
            .await?;
        done.or_rejected(|done| {
            let ids = ids.into_inner();
            let location = match ids.as_slice() {
                [one] => format!("/v1/overrides/{}", percent_encode(one)),
                _ => "/v1/overrides".to_owned(),
            };
            let view = json!({"version": done.version, "ids": ids});
            Ok(AdminReply::created(&view, &location).with_etag(done.version))
        })
    }

    pub(super) async fn delete_override(&self, id: &str) -> Result<AdminReply, HttpError> {
        self.delete_entry(EntryKind::Override, id).await
    }
}

fn parse_override(one: Json) -> Result<OverrideRequest, HttpError> {
    let wrong = |field: &str, detail: String| {
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field(field)
    };
    let wanted: OverrideRequest = serde_path_to_error::deserialize(one).map_err(|error| {
        let field = error.path().to_string();
        match field.split('.').next().unwrap_or_default() {
            "requests" => wrong(&field, "must be a whole number, `unlimited` or `deny`".to_owned()),
            // The error must not quote the value, which may be an API key.
            "key" => {
                let detail = "must map each fact that the rule counts by to its value, a string";
                wrong("key", detail.to_owned())
            }
            _ => wrong(&field, error.inner().to_string()),
        }
    })?;
    if wanted.until.as_deref().is_some_and(|until| parse_rfc3339(until).is_none()) {
        let detail = "must be a time such as 2026-12-31T23:59:59Z".to_owned();
        return Err(wrong("until", detail));
    }
    let note = wanted.note.as_deref().unwrap_or_default();
    if note.len() > MAX_NOTE_BYTES || note.contains('\0') {
        return Err(wrong("note", format!("must be at most {MAX_NOTE_BYTES} bytes, without NUL")));
    }
    Ok(wanted)
}

fn prefix_field(problem: HttpError, at: usize, many: bool) -> HttpError {
    if !many {
        return problem;
    }
    let field = format!("[{at}].{}", problem.field.as_deref().unwrap_or_default());
    problem.with_field(field)
}

/// Resolves the requested key against its rule.
fn build_override(
    wanted: &OverrideRequest,
    rules: &RuleSet,
) -> Result<StoredOverride, Box<ValidationError>> {
    let facts: Facts<'_> =
        wanted.key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let flaw = |field: &str, message: String| {
        Box::new(ValidationError {
            entry: None,
            field: field.to_owned(),
            found: None,
            message,
            hint: None,
        })
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
    Ok(StoredOverride {
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

/// Keeps the last update of each ID.
fn dedup_by_id(entries: Vec<EntryUpdate>) -> Vec<EntryUpdate> {
    let by_id: BTreeMap<String, EntryUpdate> =
        entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
    by_id.into_values().collect()
}

fn override_view(id: &str, entry: &StoredEntry) -> Option<Json> {
    let stored: StoredOverride = entry_value::parse_value(&entry.value)?;
    let until = stored.until_us.map(|until| format_rfc3339(until / 1_000_000));
    Some(json!({
        "id": id, "version": entry.version, "rule": stored.rule, "key": stored.key,
        "key_by": stored.key_by, "requests": stored.requests, "burst": stored.burst,
        "until": until, "note": stored.note,
    }))
}
