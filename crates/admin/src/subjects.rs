//! Subjects: attributes of API keys and users, such as their tier.

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_rules::SubjectRecord;
use tidegate_web::percent::percent_encode;
use tidegate_web::problem::HttpError;

use super::precondition::Precondition;
use super::query::{AdminQuery, invalid_param};
use super::reply::{self, AdminReply};
use super::rules::first_problem;
use super::{AdminRequest, body};
use tidegate_rulestore::EditError;
use tidegate_rulestore::EntryUpdate;
use tidegate_rulestore::entry_value::{self, StoredSubject};
use tidegate_rulestore::rule_document;
use tidegate_rulestore::{EntryKind, StoredEntry};

impl AdminRequest<'_> {
    /// Lists the subjects, or the one with a given fact and value. Values are looked up by hash,
    /// because API keys are stored only as hashes.
    pub(super) fn subjects(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["after", "fact", "value"])?;
        let id = match (query.text("fact"), query.text("value")) {
            (Some(fact), Some(value)) => {
                let hash = SubjectRecord::hash(self.manager.secret(), fact, value);
                Some(entry_value::subject_id(fact, hash.into()))
            }
            (None, None) => None,
            _ => return Err(invalid_param("give both `fact` and `value`, or neither", "fact")),
        };
        let matches = |view: &Json| id.as_ref().is_none_or(|id| view["id"] == **id);
        self.list_entries(EntryKind::Subject, &query, matches, subject_view)
    }

    pub(super) fn subject(&self, id: &str) -> Result<AdminReply, HttpError> {
        self.get_entry(EntryKind::Subject, id, subject_view)
    }

    /// Adds a subject, or replaces one if the precondition holds.
    pub(super) async fn put_subject(&self) -> Result<AdminReply, HttpError> {
        let body: Json = body::parse_json(self.body)?;
        let config = self.manager.config();
        let identity = config.get(EntryKind::Setting, "identity");
        let identity =
            identity.and_then(|entry| entry_value::parse_value(&entry.value)).unwrap_or(json!({}));
        let by = identity.pointer("/tier/subject").and_then(Json::as_str);
        let subject = rule_document::parse_subject(body.clone(), by, self.manager.secret());
        let subject = subject.filter(|subject| !subject.facts.is_empty()).ok_or_else(|| {
            let detail = "give the fact that identifies the subject and its attributes, such as \
                          {\"api_key\": \"…\", \"tier\": \"paid\"}";
            HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field("api_key")
        })?;
        // Compile a document with only this subject to validate the rest.
        let document = json!({"identity": identity, "subjects": [body], "rules": []}).to_string();
        self.manager
            .compile_rules(&document)
            .map_err(|problems| first_problem(problems, "subjects[0]"))?;
        let (id, seen) = (subject.id(), Precondition::from_headers(&self.head.headers)?);
        let done = self
            .commit_change("subject set", |config| {
                seen.check_entry(config.get(EntryKind::Subject, &id))?;
                Ok(vec![subject.to_update()])
            })
            .await?;
        done.or_rejected(|done| {
            let view = json!({"version": done.version, "id": id});
            let location = format!("/v1/subjects/{}", percent_encode(&id));
            Ok(AdminReply::created(&view, &location).with_etag(done.version))
        })
    }

    pub(super) async fn delete_subject(&self, id: &str) -> Result<AdminReply, HttpError> {
        self.delete_entry(EntryKind::Subject, id).await
    }

    /// Removes an entry if the precondition holds.
    pub(super) async fn delete_entry(
        &self,
        kind: EntryKind,
        id: &str,
    ) -> Result<AdminReply, HttpError> {
        let seen = Precondition::from_headers(&self.head.headers)?;
        let done = self
            .commit_change(&format!("{} removed", kind.name()), |config| {
                let entry = config.get(kind, id);
                let entry =
                    entry.ok_or_else(|| EditError::NotFound(format!("{} `{id}`", kind.name())))?;
                seen.check_entry(Some(entry))?;
                Ok(vec![EntryUpdate::remove(kind, id)])
            })
            .await?;
        done.or_rejected(|done| {
            Ok(AdminReply::ok(&json!({"version": done.version, "deleted": id})))
        })
    }

    /// A page of the entries of one kind whose view matches `wanted`.
    pub(super) fn list_entries(
        &self,
        kind: EntryKind,
        query: &AdminQuery,
        wanted: impl Fn(&Json) -> bool,
        view: impl Fn(&str, &StoredEntry) -> Option<Json>,
    ) -> Result<AdminReply, HttpError> {
        let limit = query.limit()? as usize;
        let config = self.manager.config();
        let mut list: Vec<Json> = Vec::new();
        let mut next = None;
        for (id, entry) in config.entries(kind, query.text("after")) {
            let Some(shown) = view(id, entry).filter(&wanted) else { continue };
            if list.len() == limit {
                next = list.last().and_then(|last| last.get("id")).cloned();
                break;
            }
            list.push(shown);
        }
        let page =
            json!({"version": config.version(), format!("{}s", kind.name()): list, "next": next});
        Ok(AdminReply::ok(&page).with_etag(config.version()))
    }

    /// One entry, with its version as the ETag.
    pub(super) fn get_entry(
        &self,
        kind: EntryKind,
        id: &str,
        view: impl Fn(&str, &StoredEntry) -> Option<Json>,
    ) -> Result<AdminReply, HttpError> {
        let config = self.manager.config();
        let entry = config.get(kind, id);
        let shown = entry.and_then(|entry| Some((view(id, entry)?, entry.version)));
        let (shown, version) =
            shown.ok_or_else(|| reply::not_found(&format!("{} `{id}`", kind.name())))?;
        Ok(AdminReply::ok(&shown).with_etag(version))
    }
}

fn subject_view(id: &str, entry: &StoredEntry) -> Option<Json> {
    let StoredSubject { fact, value, facts, .. } = entry_value::parse_value(&entry.value)?;
    let version = entry.version;
    Some(json!({"id": id, "version": version, "fact": fact, "value": value, "facts": facts}))
}
