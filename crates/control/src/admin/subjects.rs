//! Subjects: what is known of API keys and users.

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_edge::path::percent_encoded;
use tidegate_edge::problem::Problem;
use tidegate_rules::SubjectRecord;

use super::precondition::Seen;
use super::query::{Query, wrong};
use super::reply::{self, Reply};
use super::rules::first_flaw;
use super::{Asked, body};
use crate::book::{Kept, Kind};
use crate::edit::Entry;
use crate::office::Fault;
use crate::paper;
use crate::record::{self, Subject};

impl Asked<'_> {
    /// The subjects, or the one that a value of a fact identifies: of secrets only the hashes are known.
    pub(super) fn subjects(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["after", "fact", "value"])?;
        let id = match (query.text("fact"), query.text("value")) {
            (Some(fact), Some(value)) => {
                let hash = SubjectRecord::hash(self.office.secret(), fact, value);
                Some(record::subject_id(fact, hash.into()))
            }
            (None, None) => None,
            _ => return Err(wrong("fact and value identify a subject together", "fact")),
        };
        let asked = |shown: &Json| id.as_ref().is_none_or(|id| shown["id"] == **id);
        self.page(Kind::Subject, &query, asked, view)
    }

    pub(super) fn subject(&self, id: &str) -> Result<Reply, Problem> {
        self.one(Kind::Subject, id, view)
    }

    /// Adds a subject, or changes one that the editor has seen.
    pub(super) async fn put_subject(&self) -> Result<Reply, Problem> {
        let body: Json = body::parse(self.body)?;
        let book = self.office.book();
        let identity = book.get(Kind::Setting, "identity");
        let identity = identity.and_then(|kept| record::read(&kept.value)).unwrap_or(json!({}));
        let by = identity.pointer("/tier/subject").and_then(Json::as_str);
        let subject = paper::subject_of(body.clone(), by, self.office.secret());
        let subject = subject.filter(|subject| !subject.brings.is_empty()).ok_or_else(|| {
            let detail = "write what identifies it and what it brings, such as \
                          {\"api_key\": \"…\", \"tier\": \"paid\"}";
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field("api_key")
        })?;
        // The rest is checked as in a document.
        let document = json!({"identity": identity, "subjects": [body], "rules": []}).to_string();
        self.office
            .compile_rules(&document)
            .map_err(|problems| first_flaw(problems, "subjects[0]"))?;
        let (id, seen) = (subject.id(), Seen::of(&self.head.headers)?);
        let done = self
            .change("subject set", |book| {
                seen.check(book.get(Kind::Subject, &id))?;
                Ok(vec![subject.entry()])
            })
            .await?;
        done.or_told(|done| {
            let told = json!({"version": done.version, "id": id});
            let location = format!("/v1/subjects/{}", percent_encoded(&id));
            Ok(Reply::created(&told, &location).tagged(done.version))
        })
    }

    pub(super) async fn delete_subject(&self, id: &str) -> Result<Reply, Problem> {
        self.delete(Kind::Subject, id).await
    }

    /// Removes an entry that the editor has seen.
    pub(super) async fn delete(&self, kind: Kind, id: &str) -> Result<Reply, Problem> {
        let seen = Seen::of(&self.head.headers)?;
        let done = self
            .change(&format!("{} removed", kind.name()), |book| {
                let kept = book.get(kind, id);
                let kept = kept.ok_or_else(|| Fault::Missing(format!("{} `{id}`", kind.name())))?;
                seen.check(Some(kept))?;
                Ok(vec![Entry::remove(kind, id)])
            })
            .await?;
        done.or_told(|done| Ok(Reply::ok(&json!({"version": done.version, "deleted": id}))))
    }

    /// A page of entries.
    pub(super) fn page(
        &self,
        kind: Kind,
        query: &Query,
        wanted: impl Fn(&Json) -> bool,
        view: impl Fn(&str, &Kept) -> Option<Json>,
    ) -> Result<Reply, Problem> {
        let limit = query.limit()? as usize;
        let book = self.office.book();
        let mut list: Vec<Json> = Vec::new();
        let mut next = None;
        for (id, kept) in book.all(kind, query.text("after")) {
            let Some(shown) = view(id, kept).filter(&wanted) else { continue };
            if list.len() == limit {
                next = list.last().and_then(|last| last.get("id")).cloned();
                break;
            }
            list.push(shown);
        }
        let told =
            json!({"version": book.version(), format!("{}s", kind.name()): list, "next": next});
        Ok(Reply::ok(&told).tagged(book.version()))
    }

    /// One entry.
    pub(super) fn one(
        &self,
        kind: Kind,
        id: &str,
        view: impl Fn(&str, &Kept) -> Option<Json>,
    ) -> Result<Reply, Problem> {
        let book = self.office.book();
        let kept = book.get(kind, id);
        let shown = kept.and_then(|kept| Some((view(id, kept)?, kept.version)));
        let (shown, version) =
            shown.ok_or_else(|| reply::missing(&format!("{} `{id}`", kind.name())))?;
        Ok(Reply::ok(&shown).tagged(version))
    }
}

fn view(id: &str, kept: &Kept) -> Option<Json> {
    let Subject { fact, value, brings, .. } = record::read(&kept.value)?;
    let version = kept.version;
    Some(json!({"id": id, "version": version, "fact": fact, "value": value, "brings": brings}))
}
