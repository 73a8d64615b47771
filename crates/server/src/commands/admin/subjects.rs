//! `tidegate subject …`: what is known of API keys and users.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;

use super::api::{Api, wait};
use super::apply;
use super::overrides::{put, removed};
use super::pages::{self, List, Query};
use super::rules::{more, read};
use crate::Outcome;
use crate::cli::{SubjectCommand, SubjectListArgs, SubjectRmArgs, SubjectSetArgs};
use crate::failure::Failure;
use crate::output::{self, printable};

const SUBJECTS: List = List { path: "/v1/subjects", field: "subjects", cursor: "after" };

#[derive(Deserialize)]
struct Listed {
    subjects: Vec<Subject>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Subject {
    id: String,
    fact: String,
    value: Option<String>,
    brings: BTreeMap<String, String>,
}

/// Does what is asked with subjects.
///
/// # Errors
/// When it is not done.
pub(crate) fn run(command: &SubjectCommand) -> Result<Outcome, Failure> {
    match command {
        SubjectCommand::Set(args) => set(args),
        SubjectCommand::List(args) => list(args),
        SubjectCommand::Rm(args) => remove(args),
    }
}

fn set(args: &SubjectSetArgs) -> Result<Outcome, Failure> {
    let api = Api::signed(&args.office, &args.sign)?;
    let facts = Json::Object(args.api_key.among(&args.facts)?);
    let told = wait(put(&api, SUBJECTS.path, &facts, &args.confirm, None))?;
    apply::done(&api, &told, "set")
}

fn list(args: &SubjectListArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    let told = wait(pages::of(&api, SUBJECTS, &Query::default(), args.most.most))?;
    if api.json {
        output::json(&told)?;
        return Ok(Outcome::Well);
    }
    let Listed { subjects, next } = read(told)?;
    if subjects.is_empty() {
        output::text("no subjects\n")?;
        return Ok(Outcome::Well);
    }
    let mut rows = vec![["subject", "brings", "id"].map(str::to_owned).to_vec()];
    rows.extend(subjects.iter().map(Subject::row));
    output::text(&format!("{}{}", output::table(0, &rows), more(next.is_some())))?;
    Ok(Outcome::Well)
}

impl Subject {
    fn row(&self) -> Vec<String> {
        let value = self.value.as_deref().map_or_else(|| "…".to_owned(), printable);
        let brings = self.brings.iter().map(|(name, value)| format!("{name}={value}"));
        let brings = printable(&brings.collect::<Vec<_>>().join(" "));
        vec![format!("{}={value}", printable(&self.fact)), brings, printable(&self.id)]
    }
}

fn remove(args: &SubjectRmArgs) -> Result<Outcome, Failure> {
    let api = Api::signed(&args.office, &args.sign)?;
    let key = args.api_key.read()?.map(|key| ("api_key".to_owned(), key));
    let typed = args.subject.as_deref();
    let fact = match (key, typed) {
        (Some(_), Some(_)) => {
            let text = "--api-key-file says which subject it is\n  write: one or the other";
            return Err(Failure::Usage(text.to_owned()));
        }
        (Some(key), None) => Some(key),
        // An id has no `=`, because names of facts and hashes have none.
        (None, typed) => typed.and_then(|typed| crate::facts::parse(typed).ok()),
    };
    let told = wait(async {
        let id = match &fact {
            Some((fact, value)) => identified(&api, fact, value).await?,
            None => typed.unwrap_or_default().to_owned(),
        };
        removed(&api, SUBJECTS.path, &id).await
    })?;
    apply::done(&api, &told, "removed")
}

/// The id of the subject that a value of a fact identifies.
async fn identified(api: &Api, fact: &str, value: &str) -> Result<String, Failure> {
    let query = Query::default().with("fact", Some(fact)).with("value", Some(value));
    let Listed { subjects, .. } = read(pages::of(api, SUBJECTS, &query, 1).await?)?;
    let found = subjects.into_iter().next().map(|subject| subject.id);
    found.ok_or_else(|| Failure::No(format!("nothing is known of this {}", printable(fact))))
}
