//! `tidegate keys`: who asks most and who is refused most at present, or the counters of one client.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::api::{Api, wait};
use super::client::Client;
use super::pages::Query;
use super::top::words;
use crate::Outcome;
use crate::cli::KeysArgs;
use crate::commands::check::span;
use crate::failure::Failure;
use crate::output::{self, printable};

/// The most that the API tells at once.
const MOST: u32 = 1_000;

#[derive(Deserialize)]
struct Top {
    top: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    kind: String,
    rule: String,
    key: String,
    who: Option<String>,
    count: u64,
    error: u64,
    spread: u64,
}

/// Lists keys.
///
/// # Errors
/// When nobody tells.
pub(crate) fn run(args: &KeysArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    if !args.words.is_empty() || args.api_key.api_key_file.is_some() {
        return counters(&api, args);
    }
    let query = Query::default()
        .with("kind", args.kind.as_deref())
        .with("rule", args.rule.as_deref())
        .with("limit", Some(args.most.most.min(MOST)));
    let told = wait(api.get(&format!("/v1/top{query}")))?;
    if api.json {
        output::text(&format!("{}\n", told.body))?;
        return Ok(Outcome::Well);
    }
    let Top { top } = told.read()?;
    if top.is_empty() {
        output::text("nobody asked in the last minute\n")?;
        return Ok(Outcome::Well);
    }
    let mut rows = vec![["list", "times", "rule", "who"].map(str::to_owned).to_vec()];
    rows.extend(top.iter().map(Key::row));
    output::text(&output::table(0, &rows))?;
    Ok(Outcome::Well)
}

/// The counters of one client.
#[derive(Deserialize)]
struct Counters {
    counters: Vec<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    rule: String,
    key: BTreeMap<String, String>,
    limit: u64,
    used: u64,
    remaining: u64,
    reset_after_ms: u64,
    warnings: u64,
    banned_until: Option<String>,
}

fn counters(api: &Api, args: &KeysArgs) -> Result<Outcome, Failure> {
    let client = Client::typed(&args.words, args.rule.as_deref(), &args.api_key)?;
    let told = wait(client.ask(api, "/v1/counters"))?;
    if api.json {
        output::text(&format!("{}\n", told.body))?;
        return Ok(Outcome::Well);
    }
    let Counters { counters } = told.read()?;
    if counters.is_empty() {
        output::text("no rule counts this; `tidegate rules list` shows what they count by\n")?;
        return Ok(Outcome::Well);
    }
    let head = ["rule", "key", "used", "left", "full again in", "warnings", "banned until"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(counters.iter().map(Counter::row));
    output::text(&output::table(0, &rows))?;
    Ok(Outcome::Well)
}

impl Counter {
    fn row(&self) -> Vec<String> {
        // An API key that was read from a file is not for the screen.
        let part = |(name, value): (&String, &String)| match name.as_str() {
            "api_key" => name.clone(),
            _ => format!("{name}={value}"),
        };
        let key: Vec<String> = self.key.iter().map(part).collect();
        vec![
            printable(&self.rule),
            if key.is_empty() { "one for all".to_owned() } else { printable(&key.join(" ")) },
            format!("{} of {}", self.used, self.limit),
            self.remaining.to_string(),
            span(self.reset_after_ms),
            self.warnings.to_string(),
            self.banned_until.as_deref().map_or_else(|| "-".to_owned(), printable),
        ]
    }
}

impl Key {
    fn row(&self) -> Vec<String> {
        let times = words::times(self.count, self.error, self.spread);
        let who = words::who(self.who.as_deref(), &self.key);
        vec![printable(&self.kind), times, printable(&self.rule), who]
    }
}
