//! `tidegate override …`: other numbers for one key of a rule.

use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tidegate_edge::date::{parse_rfc3339, rfc3339};
use tidegate_edge::path::percent_encoded;

use super::api::{Api, Told, wait};
use super::pages::{self, List, Query};
use super::refusal::{self, Problem};
use super::rules::{more, read};
use super::{apply, confirm};
use crate::Outcome;
use crate::cli::{ConfirmArgs, OverrideCommand, OverrideListArgs, OverrideSetArgs, RemoveArgs};
use crate::failure::Failure;
use crate::office::wall_clock;
use crate::output::{self, printable};

const OVERRIDES: List = List { path: "/v1/overrides", field: "overrides", cursor: "after" };

/// Does what is asked with overrides.
///
/// # Errors
/// When it is not done.
pub(crate) fn run(command: &OverrideCommand) -> Result<Outcome, Failure> {
    match command {
        OverrideCommand::Set(args) => set(args),
        OverrideCommand::List(args) => list(args),
        OverrideCommand::Rm(args) => remove(args),
    }
}

fn set(args: &OverrideSetArgs) -> Result<Outcome, Failure> {
    let api = Api::signed(&args.office, &args.sign)?;
    let key = args.api_key.among(&args.key)?;
    if key.is_empty() {
        return Err(Failure::Usage(format!(
            "whose limit is it?\n  write: tidegate override set {} FACT=VALUE …, with the facts that the rule \
             counts by",
            args.rule
        )));
    }
    let now = wall_clock()();
    let until = args.lasting.map(|span| rfc3339(now.plus(span).as_micros().div_ceil(1_000_000)));
    let until = args.until.clone().or(until);
    if until
        .as_deref()
        .and_then(parse_rfc3339)
        .is_some_and(|end| end <= now.as_micros() / 1_000_000)
    {
        return Err(Failure::Usage("--until names an instant that is over already".to_owned()));
    }
    let mut wanted = json!({"rule": args.rule, "key": key, "requests": args.requests});
    let more = [
        ("burst", args.burst.map(Json::from)),
        ("until", until.map(Json::from)),
        ("note", args.note.clone().map(Json::from)),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            wanted[name] = value;
        }
    }
    let told = wait(put(&api, OVERRIDES.path, &wanted, &args.confirm, Some(&args.rule)))?;
    apply::done(&api, &told, "set")
}

/// Sets an entry; one that is there already only after asking.
///
/// # Errors
/// When it is not set.
pub(super) async fn put(
    api: &Api,
    path: &str,
    wanted: &Json,
    args: &ConfirmArgs,
    rule: Option<&str>,
) -> Result<Told, Failure> {
    let body = wanted.to_string();
    let answer = api.ask(Method::POST, path, body.clone(), None).await?;
    if answer.status == StatusCode::PRECONDITION_REQUIRED {
        confirm::ask("There is one already. Replace it?", args)?;
        return api.change(Method::POST, path, body, Some(HeaderValue::from_static("*"))).await;
    }
    if let Some(rule) = rule
        && Problem::of(&answer).field.as_deref() == Some("rule")
    {
        return Err(refusal::no_rule(api, rule).await);
    }
    api.understood(answer).await
}

#[derive(Deserialize)]
struct Listed {
    overrides: Vec<Override>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Override {
    id: String,
    rule: String,
    key: Map<String, Json>,
    key_by: Vec<String>,
    requests: Json,
    burst: Option<u64>,
    until: Option<String>,
    note: Option<String>,
}

fn list(args: &OverrideListArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    let query = Query::default().with("rule", args.rule.as_deref());
    let told = wait(pages::of(&api, OVERRIDES, &query, args.most.most))?;
    if api.json {
        output::json(&told)?;
        return Ok(Outcome::Well);
    }
    let Listed { overrides, next } = read(told)?;
    if overrides.is_empty() {
        output::text("no overrides\n")?;
        return Ok(Outcome::Well);
    }
    let head = ["rule", "key", "requests", "burst", "until", "id", "note"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(overrides.iter().map(Override::row));
    output::text(&format!("{}{}", output::table(0, &rows), more(next.is_some())))?;
    Ok(Outcome::Well)
}

impl Override {
    fn row(&self) -> Vec<String> {
        let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), printable);
        // Of an API key only the hash is known.
        let key = self.key_by.iter().map(|name| match self.key.get(name) {
            Some(value) => format!("{}={}", printable(name), text(value)),
            None => format!("{}=…", printable(name)),
        });
        vec![
            printable(&self.rule),
            key.collect::<Vec<_>>().join(" "),
            text(&self.requests),
            self.burst.map_or_else(|| "-".to_owned(), |burst| burst.to_string()),
            self.until.clone().unwrap_or_else(|| "for good".to_owned()),
            printable(&self.id),
            self.note.as_deref().map(printable).unwrap_or_default(),
        ]
    }
}

fn remove(args: &RemoveArgs) -> Result<Outcome, Failure> {
    let api = Api::signed(&args.office, &args.sign)?;
    let told = wait(removed(&api, OVERRIDES.path, &args.id))?;
    apply::done(&api, &told, "removed")
}

/// Removes an entry as it is now.
///
/// # Errors
/// When there is none, or it is not removed.
pub(super) async fn removed(api: &Api, list: &str, id: &str) -> Result<Told, Failure> {
    let path = format!("{list}/{}", percent_encoded(id));
    let seen = api.get(&path).await?.tag;
    api.change(Method::DELETE, &path, String::new(), seen).await
}
