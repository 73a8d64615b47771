//! All rules at once, as a document: read, put in place of those there are, or only tried.

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

/// The name under which problems of a document are told.
const DOCUMENT_NAME: &str = "document";

impl AdminRequest<'_> {
    /// The document that the book in force makes.
    pub(super) fn document(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["format"])?;
        let book = self.manager.config();
        let fields = Json::Object(rule_document::document_fields(&book));
        let reply = match query.text("format") {
            None | Some("json") => AdminReply::ok(&fields),
            Some("yaml") => AdminReply::text("application/yaml", yaml_writer::render_yaml(&fields)),
            Some(_) => return Err(invalid_param("this is json or yaml", "format")),
        };
        Ok(reply.with_etag(book.version()))
    }

    /// Puts the rules and settings of a document in place of those there are. Subjects that it lists are
    /// added or changed; others, and overrides, stay.
    pub(super) async fn apply_document(&self) -> Result<AdminReply, HttpError> {
        let entries = match self.parse_document().await? {
            Ok(entries) => entries,
            Err(flaws) => return reply::from_edit_error(&EditError::Invalid(flaws)),
        };
        let seen = Precondition::from_headers(&self.head.headers)?;
        let before = self.manager.config();
        let done = self
            .commit_change("applied a document", |book| {
                seen.check_version(book.version())?;
                Ok(replacement_entries(book, &entries))
            })
            .await?;
        done.or_rejected(|done| {
            let changes = diff::diff_configs(&before, &done.config);
            let told = json!({"version": done.version, "changes": change_views(&changes)});
            Ok(AdminReply::ok(&told).with_etag(done.version))
        })
    }

    /// What a document would change, and whom that concerns; nothing is changed.
    pub(super) async fn validate_document(&self) -> Result<AdminReply, HttpError> {
        let book = self.manager.latest_config().await.map_err(database_problem)?;
        let flaws = match self.parse_document().await? {
            Ok(entries) => {
                let next = Arc::new(book.with_updates(&replacement_entries(&book, &entries)));
                match self.manager.compile(Arc::clone(&next)).await {
                    Ok(_) => {
                        let changes = diff::diff_configs(&book, &next);
                        let told = json!({
                            "valid": true,
                            "version": book.version(),
                            "changes": change_views(&changes),
                            "affects": affected_overrides(&book, &changes),
                        });
                        return Ok(AdminReply::ok(&told));
                    }
                    Err(flaws) => flaws,
                }
            }
            Err(flaws) => flaws,
        };
        let errors: Vec<Json> = flaws.iter().map(reply::validation_error_view).collect();
        Ok(AdminReply::ok(&json!({"valid": false, "errors": errors})))
    }

    /// The entries that the document in the body makes, or what is wrong with it.
    async fn parse_document(
        &self,
    ) -> Result<Result<Vec<EntryUpdate>, Vec<ValidationError>>, HttpError> {
        let text = body::body_text(self.body)?;
        if text.trim().is_empty() {
            let detail = "the body is a rules document, in YAML or JSON";
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

/// The edit that makes a book say what these entries say, except for subjects and overrides.
pub(crate) fn replacement_entries(book: &RuleConfig, entries: &[EntryUpdate]) -> Vec<EntryUpdate> {
    let said: BTreeSet<(EntryKind, &str)> =
        entries.iter().map(|entry| (entry.kind, entry.id.as_str())).collect();
    let gone = [EntryKind::Setting, EntryKind::Rule].into_iter().flat_map(|kind| {
        book.entries(kind, None)
            .filter(|(id, _)| !said.contains(&(kind, *id)))
            .map(move |(id, _)| EntryUpdate::remove(kind, id))
            .collect::<Vec<_>>()
    });
    gone.chain(entries.iter().cloned()).collect()
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

/// Changes as callers are told.
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

/// Who is known by name that changes of rules concern: the keys with numbers of their own.
fn affected_overrides(book: &RuleConfig, changes: &[VersionChange]) -> Json {
    let rules: BTreeSet<&str> = changes
        .iter()
        .filter(|change| change.kind == EntryKind::Rule)
        .map(|change| change.id.as_str())
        .collect();
    let all = book.entries(EntryKind::Override, None);
    let concerned = all.filter_map(|(id, kept)| {
        let known: StoredOverride = entry_value::parse_value(&kept.value)?;
        rules.contains(known.rule.as_str()).then_some(id)
    });
    let (mut shown, mut count) = (Vec::new(), 0_usize);
    for id in concerned {
        count += 1;
        if shown.len() < 100 {
            shown.push(id);
        }
    }
    json!({"rules": rules, "overrides": count, "first_overrides": shown})
}
