//! All rules at once, as a document: read, put in place of those there are, or only tried.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_edge::problem::Problem;
use tidegate_rules::Declarations;
use tidegate_rules::problem::Problems;

use super::precondition::Seen;
use super::query::{Query, wrong};
use super::reply::{self, Reply};
use super::{Asked, body};
use crate::book::{Book, Kind};
use crate::compile::Flaw;
use crate::diff;
use crate::edit::{Change, Entry};
use crate::office::Fault;
use crate::paper;
use crate::record::{self, Override};
use crate::yaml_text;

/// The name under which problems of a document are told.
const NAME: &str = "document";

impl Asked<'_> {
    /// The document that the book in force makes.
    pub(super) fn document(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["format"])?;
        let book = self.office.book();
        let fields = Json::Object(paper::document_fields(&book));
        let reply = match query.text("format") {
            None | Some("json") => Reply::ok(&fields),
            Some("yaml") => Reply::text("application/yaml", yaml_text::document(&fields)),
            Some(_) => return Err(wrong("this is json or yaml", "format")),
        };
        Ok(reply.tagged(book.version()))
    }

    /// Puts the rules and settings of a document in place of those there are. Subjects that it lists are
    /// added or changed; others, and overrides, stay.
    pub(super) async fn apply(&self) -> Result<Reply, Problem> {
        let entries = match self.entries().await? {
            Ok(entries) => entries,
            Err(flaws) => return reply::fault(&Fault::Invalid(flaws)),
        };
        let seen = Seen::of(&self.head.headers)?;
        let before = self.office.book();
        let done = self
            .change("applied a document", |book| {
                seen.check_version(book.version())?;
                Ok(in_place(book, &entries))
            })
            .await?;
        done.or_told(|done| {
            let changes = diff::between(&before, &done.book);
            let told = json!({"version": done.version, "changes": views(&changes)});
            Ok(Reply::ok(&told).tagged(done.version))
        })
    }

    /// What a document would change, and whom that concerns; nothing is changed.
    pub(super) async fn validate(&self) -> Result<Reply, Problem> {
        let book = self.office.latest().await?;
        let flaws = match self.entries().await? {
            Ok(entries) => {
                let next = Arc::new(book.with(&in_place(&book, &entries)));
                match self.office.compile(Arc::clone(&next)).await {
                    Ok(_) => {
                        let changes = diff::between(&book, &next);
                        let told = json!({
                            "valid": true,
                            "version": book.version(),
                            "changes": views(&changes),
                            "affects": affects(&book, &changes),
                        });
                        return Ok(Reply::ok(&told));
                    }
                    Err(flaws) => flaws,
                }
            }
            Err(flaws) => flaws,
        };
        let errors: Vec<Json> = flaws.iter().map(reply::flaw).collect();
        Ok(Reply::ok(&json!({"valid": false, "errors": errors})))
    }

    /// The entries that the document in the body makes, or what is wrong with it.
    async fn entries(&self) -> Result<Result<Vec<Entry>, Vec<Flaw>>, Problem> {
        let text = body::text(self.body)?;
        if text.trim().is_empty() {
            let detail = "the body is a rules document, in YAML or JSON";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        let secret = self.office.secret();
        let entries = self.office.compile_document(text.to_owned(), move |text, compiled| {
            paper::entries(NAME, text, &[], &Declarations::default(), compiled, secret)
        });
        Ok(entries.await.map_err(|problems| flaws(&problems)))
    }
}

/// The edit that makes a book say what these entries say, except for subjects and overrides.
pub(crate) fn in_place(book: &Book, entries: &[Entry]) -> Vec<Entry> {
    let said: BTreeSet<(Kind, &str)> =
        entries.iter().map(|entry| (entry.kind, entry.id.as_str())).collect();
    let gone = [Kind::Setting, Kind::Rule].into_iter().flat_map(|kind| {
        book.all(kind, None)
            .filter(|(id, _)| !said.contains(&(kind, *id)))
            .map(move |(id, _)| Entry::remove(kind, id))
            .collect::<Vec<_>>()
    });
    gone.chain(entries.iter().cloned()).collect()
}

fn flaws(problems: &Problems) -> Vec<Flaw> {
    let flaw = |problem: &tidegate_rules::problem::Problem| Flaw {
        of: None,
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
pub(super) fn views(changes: &[Change]) -> Vec<Json> {
    let value = |text: &Option<String>| {
        text.as_deref().and_then(record::read::<Json>).unwrap_or(Json::Null)
    };
    let view = |change: &Change| {
        json!({
            "kind": change.kind.name(), "id": change.id, "before": value(&change.before),
            "after": value(&change.after),
        })
    };
    changes.iter().map(view).collect()
}

/// Who is known by name that changes of rules concern: the keys with numbers of their own.
fn affects(book: &Book, changes: &[Change]) -> Json {
    let rules: BTreeSet<&str> = changes
        .iter()
        .filter(|change| change.kind == Kind::Rule)
        .map(|change| change.id.as_str())
        .collect();
    let all = book.all(Kind::Override, None);
    let concerned = all.filter_map(|(id, kept)| {
        let known: Override = record::read(&kept.value)?;
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
