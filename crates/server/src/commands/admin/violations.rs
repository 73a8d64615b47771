//! `tidegate violations`: who was refused, by which rule, how often.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;
use tidegate_edge::date::rfc3339;

use super::api::{Api, wait};
use super::pages::{self, List, Query};
use super::rules::{more, read};
use crate::Outcome;
use crate::cli::ViolationsArgs;
use crate::failure::Failure;
use crate::office::wall_clock;
use crate::output::{self, DIM, printable};

const VIOLATIONS: List = List { path: "/v1/violations", field: "violations", cursor: "before" };

/// How often somebody who follows looks.
const LOOK: Duration = Duration::from_secs(1);

/// The most that are looked at for new ones.
const NEW: u32 = 1_000;

#[derive(Deserialize)]
struct Listed {
    violations: Vec<Violation>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct Top {
    top: Vec<Violation>,
    counted: u64,
    complete: bool,
}

#[derive(Deserialize)]
struct Violation {
    number: u64,
    at: String,
    rule: String,
    user_id: Option<String>,
    ip: Option<String>,
    endpoint: Option<String>,
    enforced: bool,
    #[serde(default)]
    count: u64,
}

/// Lists violations.
///
/// # Errors
/// When nobody tells.
pub(crate) fn run(args: &ViolationsArgs) -> Result<Outcome, Failure> {
    let (api, query) = (Api::new(&args.office)?, query(args)?);
    match (args.top, args.follow) {
        (true, _) => top(&api, &query, args.most.most),
        (_, true) => wait(follow(&api, &query, args.most.most)),
        _ => list(&api, &query, args.most.most),
    }
}

fn query(args: &ViolationsArgs) -> Result<Query, Failure> {
    let since = args.since.map(|span| {
        let from = wall_clock()().minus(span).as_micros();
        rfc3339(from / 1_000_000)
    });
    let key = match &args.api_key.typed {
        Some(typed) => Some(typed.clone()),
        None => args.api_key.file.read()?,
    };
    Ok(Query::default()
        .with("since", since)
        .with("rule", args.rule.as_deref())
        .with("user_id", args.user.as_deref())
        .with("ip", args.ip.as_deref())
        .with("api_key", key))
}

fn list(api: &Api, query: &Query, most: u32) -> Result<Outcome, Failure> {
    let told = wait(pages::of(api, VIOLATIONS, query, most))?;
    if api.json {
        output::json(&told)?;
        return Ok(Outcome::Well);
    }
    let Listed { violations, next } = read(told)?;
    if violations.is_empty() {
        output::text("no violations\n")?;
        return Ok(Outcome::Well);
    }
    let mut rows = vec![["when", "rule", "user", "ip", "endpoint", ""].map(str::to_owned).to_vec()];
    rows.extend(violations.iter().map(Violation::row));
    output::text(&format!("{}{}", output::table(0, &rows), more(next.is_some())))?;
    Ok(Outcome::Well)
}

fn top(api: &Api, query: &Query, most: u32) -> Result<Outcome, Failure> {
    let query = query.clone().with("limit", Some(most.min(NEW)));
    let told = wait(api.get(&format!("{}/top{query}", VIOLATIONS.path)))?;
    if api.json {
        output::text(&format!("{}\n", told.body))?;
        return Ok(Outcome::Well);
    }
    let Top { top, counted, complete } = told.read()?;
    if top.is_empty() {
        output::text("no violations\n")?;
        return Ok(Outcome::Well);
    }
    let head = ["times", "last", "rule", "user", "ip", "endpoint", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(top.iter().map(|violation| {
        let mut row = vec![violation.count.to_string()];
        row.extend(violation.row());
        row
    }));
    let mut text = output::table(0, &rows);
    if !complete {
        text.push_str(&format!("{DIM}of the newest {counted}; --since narrows it{DIM:#}\n"));
    }
    output::text(&text)?;
    Ok(Outcome::Well)
}

/// Tells what there is, oldest first, and then what comes, a line each, until somebody stops it.
async fn follow(api: &Api, query: &Query, most: u32) -> Result<Outcome, Failure> {
    let (mut last, mut look) = (0, most);
    loop {
        let mut told = pages::of(api, VIOLATIONS, query, look).await?;
        let Json::Array(found) = told[VIOLATIONS.field].take() else { return Ok(Outcome::Well) };
        if found
            .first()
            .and_then(|newest| newest["number"].as_u64())
            .is_some_and(|newest| newest < last)
        {
            // The rules went from the file to a database, which counts from the beginning.
            last = 0;
        }
        for entry in found.into_iter().rev() {
            let violation: Violation = read(entry.clone())?;
            if violation.number <= last {
                continue;
            }
            last = violation.number;
            match api.json {
                true => output::json(&entry)?,
                false => output::text(&format!("{}\n", violation.row().join("  ").trim_end()))?,
            }
        }
        look = NEW;
        tokio::time::sleep(LOOK).await;
    }
}

impl Violation {
    fn row(&self) -> Vec<String> {
        let text =
            |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), printable);
        let shadow = if self.enforced { "" } else { "not enforced" };
        vec![
            printable(&self.at),
            printable(&self.rule),
            text(&self.user_id),
            text(&self.ip),
            text(&self.endpoint),
            shadow.to_owned(),
        ]
    }
}
