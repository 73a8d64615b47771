//! `tidegate subject …`: facts assigned to API keys and users.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;

use super::api::{AdminClient, block_on};
use super::apply;
use super::overrides::{put_entry, remove_entry};
use super::pagination::{self, PagedList, QueryString};
use super::rules::{more_entries_hint, parse_list};
use crate::cli::{SubjectCommand, SubjectListArgs, SubjectRmArgs, SubjectSetArgs};
use crate::table::format_table;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, escape_unprintable};

const SUBJECTS: PagedList = PagedList { path: "/v1/subjects", field: "subjects", cursor: "after" };

#[derive(Deserialize)]
struct SubjectsResponse {
    subjects: Vec<SubjectRow>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct SubjectRow {
    id: String,
    fact: String,
    value: Option<String>,
    pub facts: BTreeMap<String, String>,
}

/// Runs a command on subjects.
///
/// # Errors
/// If the command fails.
pub(crate) fn run(command: &SubjectCommand) -> Result<CommandOutcome, CommandError> {
    match command {
        SubjectCommand::Set(args) => set(args),
        SubjectCommand::List(args) => list(args),
        SubjectCommand::Rm(args) => remove(args),
    }
}

fn set(args: &SubjectSetArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::with_author(&args.admin_api, &args.authorship)?;
    let facts = Json::Object(args.api_key.merge_with_facts(&args.facts)?);
    let response = block_on(put_entry(&api, SUBJECTS.path, &facts, &args.confirm, None))?;
    apply::report_version(&api, &response, "set")
}

fn list(args: &SubjectListArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let list =
        block_on(pagination::fetch_list(&api, SUBJECTS, &QueryString::default(), args.limit.max))?;
    if api.json {
        output::print_json(&list)?;
        return Ok(CommandOutcome::Success);
    }
    let SubjectsResponse { subjects, next } = parse_list(list)?;
    if subjects.is_empty() {
        output::print_text("no subjects\n")?;
        return Ok(CommandOutcome::Success);
    }
    let mut rows = vec![["subject", "facts", "id"].map(str::to_owned).to_vec()];
    rows.extend(subjects.iter().map(SubjectRow::table_row));
    output::print_text(&format!(
        "{}{}",
        format_table(0, &rows),
        more_entries_hint(next.is_some())
    ))?;
    Ok(CommandOutcome::Success)
}

impl SubjectRow {
    fn table_row(&self) -> Vec<String> {
        let value = self.value.as_deref().map_or_else(|| "…".to_owned(), escape_unprintable);
        let facts = self.facts.iter().map(|(name, value)| format!("{name}={value}"));
        let facts = escape_unprintable(&facts.collect::<Vec<_>>().join(" "));
        vec![
            format!("{}={value}", escape_unprintable(&self.fact)),
            facts,
            escape_unprintable(&self.id),
        ]
    }
}

fn remove(args: &SubjectRmArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::with_author(&args.admin_api, &args.authorship)?;
    let key = args.api_key.read_key()?.map(|key| ("api_key".to_owned(), key));
    let typed = args.subject.as_deref();
    let fact = match (key, typed) {
        (Some(_), Some(_)) => {
            let text = "--api-key-file already identifies the subject\n  write: one or the other";
            return Err(CommandError::Usage(text.to_owned()));
        }
        (Some(key), None) => Some(key),
        // An argument with `=` is a fact: IDs never contain `=`, because fact names and hashes do
        // not.
        (None, typed) => typed.and_then(|typed| crate::facts::parse(typed).ok()),
    };
    let response = block_on(async {
        let id = match &fact {
            Some((fact, value)) => find_subject_id(&api, fact, value).await?,
            None => typed.unwrap_or_default().to_owned(),
        };
        remove_entry(&api, SUBJECTS.path, &id).await
    })?;
    apply::report_version(&api, &response, "removed")
}

/// Finds the ID of the subject that a fact identifies.
async fn find_subject_id(
    api: &AdminClient,
    fact: &str,
    value: &str,
) -> Result<String, CommandError> {
    let query =
        QueryString::default().with_param("fact", Some(fact)).with_param("value", Some(value));
    let SubjectsResponse { subjects, .. } =
        parse_list(pagination::fetch_list(api, SUBJECTS, &query, 1).await?)?;
    let found = subjects.into_iter().next().map(|subject| subject.id);
    found.ok_or_else(|| {
        CommandError::Rejected(format!(
            "there is no subject with this {}",
            escape_unprintable(fact)
        ))
    })
}
