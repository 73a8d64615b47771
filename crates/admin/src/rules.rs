//! Operations on single rules: list, create, replace, patch, enable, disable and delete.

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_rules::diagnostic::DocumentError;
use tidegate_web::percent::percent_encode;
use tidegate_web::problem::HttpError;

use super::confirmation::check_not_emptied;
use super::precondition::Precondition;
use super::query::AdminQuery;
use super::reply::{self, AdminReply};
use super::rule_consistency::ConsistencyView;
use super::{AdminRequest, body};
use tidegate_rulestore::EntryUpdate;
use tidegate_rulestore::entry_value::{self, PositionedRule};
use tidegate_rulestore::rule_document;
use tidegate_rulestore::{CommittedEdit, EditError};
use tidegate_rulestore::{EntryKind, RuleConfig};

impl AdminRequest<'_> {
    /// A page of the rules, in order.
    pub(super) fn rules(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["after"])?;
        let (after, limit) = (query.text("after"), query.limit()? as usize);
        let config = self.manager.config();
        let rules = rule_document::ordered_rules(&config);
        let from = match after {
            None => 0,
            Some(after) => {
                let at = rules.iter().position(|(id, _)| *id == after);
                at.map(|at| at + 1)
                    .ok_or_else(|| reply::not_found("rule with the ID in `after`"))?
            }
        };
        let page = &rules[from..rules.len().min(from + limit)];
        let counting = ConsistencyView::new(self.counters);
        let views: Vec<Json> = page
            .iter()
            .filter_map(|(id, _)| rule_view(&config, id, &counting).map(|(view, _)| view))
            .collect();
        let next = page.last().filter(|_| from + page.len() < rules.len()).map(|(id, _)| *id);
        let total = rules.len();
        let view =
            json!({"version": config.version(), "total": total, "rules": views, "next": next});
        Ok(AdminReply::ok(&view).with_etag(config.version()))
    }

    pub(super) fn rule(&self, id: &str) -> Result<AdminReply, HttpError> {
        self.rule_response(&self.manager.config(), id)
    }

    pub(super) async fn create_rule(&self) -> Result<AdminReply, HttpError> {
        let rule: Json = body::parse_json(self.body)?;
        let id = self.resolve_rule_id(&rule)?;
        // Store a derived ID, so that later changes of the rule do not change its ID.
        let rule = rule_document::with_rule_id(rule, &id);
        let done = self
            .commit_change("created", |config| {
                if config.get(EntryKind::Rule, &id).is_some() {
                    return Err(EditError::AlreadyExists(format!("rule `{id}`")));
                }
                Ok(vec![rule_update(config, &id, &rule)])
            })
            .await?;
        done.or_rejected(|done| {
            let counting = ConsistencyView::new(self.counters);
            let (view, version) =
                rule_view(&done.config, &id, &counting).ok_or_else(|| rule_not_found(&id))?;
            Ok(AdminReply::created(&view, &format!("/v1/rules/{}", percent_encode(&id)))
                .with_etag(version))
        })
    }

    pub(super) async fn put_rule(&self, id: &str) -> Result<AdminReply, HttpError> {
        let rule: Json = body::parse_json(self.body)?;
        let rule = rule_document::with_rule_id(rule, id);
        let body_id = self.resolve_rule_id(&rule)?;
        if body_id != id {
            let detail = format!("the body has the ID `{body_id}`, but the path has `{id}`");
            return Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field("id"));
        }
        let seen = Precondition::from_headers(&self.head.headers)?;
        self.change_rule(id, "replaced", |config| {
            seen.check_entry(config.get(EntryKind::Rule, id))?;
            Ok(vec![rule_update(config, id, &rule)])
        })
        .await
    }

    /// A JSON merge patch (RFC 7396).
    pub(super) async fn patch_rule(&self, id: &str) -> Result<AdminReply, HttpError> {
        let patch: serde_json::Map<String, Json> = body::parse_json(self.body)?;
        let mut ids =
            rule_document::ID_FIELDS.into_iter().filter_map(|name| Some((name, patch.get(name)?)));
        if let Some((name, _)) = ids.find(|(_, patch_id)| *patch_id != id) {
            let detail = "a rule's ID cannot change; create a new rule and delete this one";
            return Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field(name));
        }
        let patch = Json::Object(patch);
        let seen = Precondition::from_headers(&self.head.headers)?;
        self.change_rule(id, "patched", |config| {
            let PositionedRule { mut rule, .. } = find_rule(config, id)?;
            seen.check_entry(config.get(EntryKind::Rule, id))?;
            merge_patch(&mut rule, &patch);
            Ok(vec![rule_update(config, id, &rule)])
        })
        .await
    }

    pub(super) async fn switch_rule(
        &self,
        id: &str,
        active: bool,
    ) -> Result<AdminReply, HttpError> {
        let why = if active { "enabled" } else { "disabled" };
        let seen = Precondition::from_headers(&self.head.headers)?;
        self.change_rule(id, why, |config| {
            let PositionedRule { mut rule, .. } = find_rule(config, id)?;
            seen.check_entry(config.get(EntryKind::Rule, id))?;
            if let Json::Object(fields) = &mut rule {
                fields.insert("is_active".to_owned(), active.into());
            }
            Ok(vec![rule_update(config, id, &rule)])
        })
        .await
    }

    pub(super) async fn delete_rule(&self, id: &str) -> Result<AdminReply, HttpError> {
        let seen = Precondition::from_headers(&self.head.headers)?;
        let done = self
            .commit_change("deleted", |config| {
                find_rule(config, id)?;
                seen.check_entry(config.get(EntryKind::Rule, id))?;
                Ok(vec![EntryUpdate::remove(EntryKind::Rule, id)])
            })
            .await?;
        done.or_rejected(|done| {
            Ok(AdminReply::ok(&json!({"version": done.version, "deleted": id})))
        })
    }

    /// Commits the updates that `make` returns. `why` is the reason if the request has none.
    pub(super) async fn commit_change(
        &self,
        why: &str,
        make: impl Fn(&RuleConfig) -> Result<Vec<EntryUpdate>, EditError>,
    ) -> Result<EditOutcome, HttpError> {
        let confirmed = self.confirms_empty()?;
        let make = |config: &RuleConfig| {
            let entries = make(config)?;
            if !confirmed {
                check_not_emptied(config, &entries)?;
            }
            Ok(entries)
        };
        match self.manager.edit(&self.change_author(why)?, make).await {
            Ok(done) => Ok(EditOutcome::Committed(done)),
            Err(fault) => reply::from_edit_error(&fault).map(EditOutcome::Rejected),
        }
    }

    async fn change_rule(
        &self,
        id: &str,
        why: &str,
        make: impl Fn(&RuleConfig) -> Result<Vec<EntryUpdate>, EditError>,
    ) -> Result<AdminReply, HttpError> {
        let edited = self.commit_change(why, make).await?;
        edited.or_rejected(|done| self.rule_response(&done.config, id))
    }

    fn rule_response(&self, config: &RuleConfig, id: &str) -> Result<AdminReply, HttpError> {
        let counting = ConsistencyView::new(self.counters);
        let (view, version) = rule_view(config, id, &counting).ok_or_else(|| rule_not_found(id))?;
        Ok(AdminReply::ok(&view).with_etag(version))
    }

    /// The ID of a rule: the one in the body, or else the one derived from its content.
    fn resolve_rule_id(&self, rule: &Json) -> Result<String, HttpError> {
        // These settings declare the facts that the rule may refer to.
        let config = self.manager.config();
        let setting = |name: &str| {
            config
                .get(EntryKind::Setting, name)
                .and_then(|entry| entry_value::parse_value::<Json>(&entry.value))
        };
        let (identity, facts) = (setting("identity"), setting("facts"));
        let document = json!({"identity": identity, "facts": facts, "rules": [rule]}).to_string();
        // An explicit ID is validated later, with the rest of the rule.
        let id = rule_document::ID_FIELDS.into_iter().find_map(|name| rule.get(name)?.as_str());
        if let Some(id) = id {
            return Ok(id.to_owned());
        }
        match self.manager.compile_rules(&document) {
            Ok(rules) => Ok(rules.rules().first().map_or("", |rule| rule.id()).to_owned()),
            Err(problems) => Err(first_problem(problems, "rules[0]")),
        }
    }
}

/// The first error of a document with a single entry, with its field relative to that entry.
pub(super) fn first_problem(problems: DocumentError, entry: &str) -> HttpError {
    let first = problems.list.into_iter().next();
    let (message, field) =
        first.map_or_else(Default::default, |first| (first.message, first.field));
    let field = field.trim_start_matches(entry).trim_start_matches('.').to_owned();
    HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, message).with_field(field)
}

/// The result of an edit.
pub(super) enum EditOutcome {
    Committed(CommittedEdit),
    /// Nothing was changed; the response gives the reason.
    Rejected(AdminReply),
}

impl EditOutcome {
    pub(super) fn or_rejected(
        self,
        respond: impl FnOnce(CommittedEdit) -> Result<AdminReply, HttpError>,
    ) -> Result<AdminReply, HttpError> {
        match self {
            Self::Committed(done) => respond(done),
            Self::Rejected(reply) => Ok(reply),
        }
    }
}

fn rule_not_found(id: &str) -> HttpError {
    reply::not_found(&format!("rule `{id}`"))
}

fn rule_view(config: &RuleConfig, id: &str, counting: &ConsistencyView) -> Option<(Json, u64)> {
    let entry = config.get(EntryKind::Rule, id)?;
    let PositionedRule { position, rule } = entry_value::parse_value(&entry.value)?;
    let view = json!({
        "id": id,
        "version": entry.version,
        "position": position,
        "rule": rule,
        "consistency": counting.of_rule(id),
    });
    Some((view, entry.version))
}

fn find_rule(config: &RuleConfig, id: &str) -> Result<PositionedRule, EditError> {
    let rule =
        config.get(EntryKind::Rule, id).and_then(|entry| entry_value::parse_value(&entry.value));
    rule.ok_or_else(|| EditError::NotFound(format!("rule `{id}`")))
}

/// The update that stores a rule at its current position, or after all others if it is new.
fn rule_update(config: &RuleConfig, id: &str, rule: &Json) -> EntryUpdate {
    let position = find_rule(config, id).map(|placed| placed.position).unwrap_or_else(|_| {
        let rules = rule_document::ordered_rules(config);
        rules.last().map_or(0, |(_, placed)| placed.position + 1)
    });
    EntryUpdate::put(EntryKind::Rule, id, &PositionedRule { position, rule: rule.clone() })
}

fn merge_patch(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Json::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.shift_remove(name);
        } else {
            merge_patch(fields.entry(name.clone()).or_insert(Json::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7396, appendix A, whose target is an object.
    #[test]
    fn merge_patch_follows_rfc_7396() {
        for (target, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":"c"}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
        ] {
            let mut merged = target;
            merge_patch(&mut merged, &patch);
            assert_eq!(merged, result);
        }
    }
}
