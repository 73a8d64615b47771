//! All rules as one document: read it, replace it, or validate a new one.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_rules::FactDeclarations;
use tidegate_rules::diagnostic::DocumentError;
use tidegate_web::problem::HttpError;

use super::precondition::Precondition;
use super::query::{AdminQuery, invalid_param};
use super::reply::{self, AdminReply, database_problem};
use super::{AdminRequest, body};
use tidegate_rules::yaml_writer;
use tidegate_rulestore::EditError;
use tidegate_rulestore::ValidationError;
use tidegate_rulestore::diff;
use tidegate_rulestore::entry_value::{self, StoredOverride};
use tidegate_rulestore::rule_document;
use tidegate_rulestore::{EntryKind, RuleConfig};
use tidegate_rulestore::{EntryUpdate, VersionChange};

/// The name of the document in error messages.
const DOCUMENT_NAME: &str = "document";

impl AdminRequest<'_> {
    /// The active configuration as a document.
    pub(super) fn document(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["format"])?;
        let config = self.manager.config();
        let fields = Json::Object(rule_document::document_fields(&config));
        let reply = match query.text("format") {
            None | Some("json") => AdminReply::ok(&fields),
            Some("yaml") => AdminReply::text("application/yaml", yaml_writer::render_yaml(&fields)),
            Some(_) => return Err(invalid_param("must be `json` or `yaml`", "format")),
        };
        Ok(reply.with_etag(config.version()))
    }

    /// Replaces all rules and settings with those of a document. Adds or changes the subjects that
    /// it lists; other subjects, and all overrides, stay.
    pub(super) async fn apply_document(&self) -> Result<AdminReply, HttpError> {
        let entries = match self.parse_document().await? {
            Ok(entries) => entries,
            Err(flaws) => return reply::from_edit_error(&EditError::Invalid(flaws)),
        };
        let seen = Precondition::from_headers(&self.head.headers)?;
        let before = self.manager.config();
        let done = self
            .commit_change("applied a document", |config| {
                seen.check_version(config.version())?;
                Ok(replacement_entries(config, &entries))
            })
            .await?;
        done.or_rejected(|done| {
            let changes = diff::diff_configs(&before, &done.config);
            let view = json!({"version": done.version, "changes": change_views(&changes)});
            Ok(AdminReply::ok(&view).with_etag(done.version))
        })
    }

    /// Reports what a document would change and which overrides that affects, without applying it.
    pub(super) async fn validate_document(&self) -> Result<AdminReply, HttpError> {
        let config = self.manager.latest_config().await.map_err(database_problem)?;
        let flaws = match self.parse_document().await? {
            Ok(entries) => {
                let next = Arc::new(config.with_updates(&replacement_entries(&config, &entries)));
                match self.manager.compile(Arc::clone(&next)).await {
                    Ok(_) => {
                        let changes = diff::diff_configs(&config, &next);
                        let view = json!({
                            "valid": true,
                            "version": config.version(),
                            "changes": change_views(&changes),
                            "affects": affected_overrides(&config, &changes),
                        });
                        return Ok(AdminReply::ok(&view));
                    }
                    Err(flaws) => flaws,
                }
            }
            Err(flaws) => flaws,
        };
        let errors: Vec<Json> = flaws.iter().map(reply::validation_error_view).collect();
        Ok(AdminReply::ok(&json!({"valid": false, "errors": errors})))
    }

    /// Parses the document in the body into entries. The inner error lists what is invalid in it.
    async fn parse_document(
        &self,
    ) -> Result<Result<Vec<EntryUpdate>, Vec<ValidationError>>, HttpError> {
        let text = body::body_text(self.body)?;
        if text.trim().is_empty() {
            let detail = "the body is empty; send a rules document in YAML or JSON";
            return Err(HttpError::new(StatusCode::BAD_REQUEST, detail));
        }
        let secret = self.manager.secret();
        let entries = self.manager.compile_document(text.to_owned(), move |text, compiled| {
            rule_document::document_entries(
                DOCUMENT_NAME,
                text,
                &[],
                &FactDeclarations::default(),
                compiled,
                secret,
            )
        });
        Ok(entries.await.map_err(|problems| to_validation_errors(&problems)))
    }
}

/// The updates that replace all rules and settings of `config` with those in `entries`. Subjects
/// and overrides that are not in `entries` stay.
pub(crate) fn replacement_entries(
    config: &RuleConfig,
    entries: &[EntryUpdate],
) -> Vec<EntryUpdate> {
    let listed: BTreeSet<(EntryKind, &str)> =
        entries.iter().map(|entry| (entry.kind, entry.id.as_str())).collect();
    let removed = [EntryKind::Setting, EntryKind::Rule].into_iter().flat_map(|kind| {
        config
            .entries(kind, None)
            .filter(|(id, _)| !listed.contains(&(kind, *id)))
            .map(move |(id, _)| EntryUpdate::remove(kind, id))
            .collect::<Vec<_>>()
    });
    removed.chain(entries.iter().cloned()).collect()
}

fn to_validation_errors(problems: &DocumentError) -> Vec<ValidationError> {
    let flaw = |problem: &tidegate_rules::diagnostic::Diagnostic| ValidationError {
        entry: None,
        field: match problem.line {
            0 => problem.field.clone(),
            line => format!("{} (line {line}, column {})", problem.field, problem.column),
        },
        found: problem.found.clone(),
        message: problem.message.clone(),
        hint: problem.hint.clone(),
    };
    problems.list.iter().map(flaw).collect()
}

/// The JSON form of changes.
pub(super) fn change_views(changes: &[VersionChange]) -> Vec<Json> {
    let value = |text: &Option<String>| {
        text.as_deref().and_then(entry_value::parse_value::<Json>).unwrap_or(Json::Null)
    };
    let view = |change: &VersionChange| {
        json!({
            "kind": change.kind.name(), "id": change.id, "before": value(&change.before),
            "after": value(&change.after),
        })
    };
    changes.iter().map(view).collect()
}

/// The overrides that belong to changed rules.
fn affected_overrides(config: &RuleConfig, changes: &[VersionChange]) -> Json {
    let rules: BTreeSet<&str> = changes
        .iter()
        .filter(|change| change.kind == EntryKind::Rule)
        .map(|change| change.id.as_str())
        .collect();
    let all = config.entries(EntryKind::Override, None);
    let affected = all.filter_map(|(id, stored)| {
        let parsed: StoredOverride = entry_value::parse_value(&stored.value)?;
        rules.contains(parsed.rule.as_str()).then_some(id)
    });
    let (mut shown, mut count) = (Vec::new(), 0_usize);
    for id in affected {
        count += 1;
        if shown.len() < 100 {
            shown.push(id);
        }
    }
    json!({"rules": rules, "overrides": count, "first_overrides": shown})
}
