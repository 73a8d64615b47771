//! `tidegate keys`: the keys with the most requests and refusals now, or the counters of one
//! client.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::api::{AdminClient, block_on};
use super::client_selector::ClientSelector;
use super::pagination::QueryString;
use super::top::formatting;
use crate::cli::KeysArgs;
use crate::commands::check::format_millis;
use crate::table::format_table;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, escape_unprintable};

/// Maximum number of keys that the API returns.
const MAX_KEYS: u32 = 1_000;

#[derive(Deserialize)]
struct TopKeysResponse {
    top: Vec<KeyRow>,
}

#[derive(Deserialize)]
struct KeyRow {
    kind: String,
    rule: String,
    key: String,
    client: Option<String>,
    count: u64,
    error: u64,
    spread: u64,
}

/// Lists keys, or the counters of one client.
///
/// # Errors
/// If the arguments are wrong or the API returns an error.
pub(crate) fn run(args: &KeysArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    if !args.words.is_empty() || args.api_key.api_key_file.is_some() {
        return show_counters(&api, args);
    }
    let query = QueryString::default()
        .with_param("kind", args.kind.as_deref())
        .with_param("rule", args.rule.as_deref())
        .with_param("limit", Some(args.limit.max.min(MAX_KEYS)));
    let response = block_on(api.get(&format!("/v1/top{query}")))?;
    if api.json {
        output::print_text(&format!("{}\n", response.body))?;
        return Ok(CommandOutcome::Success);
    }
    let TopKeysResponse { top } = response.parse()?;
    if top.is_empty() {
        output::print_text("no requests in the last minute\n")?;
        return Ok(CommandOutcome::Success);
    }
    let mut rows = vec![["list", "times", "rule", "client"].map(str::to_owned).to_vec()];
    rows.extend(top.iter().map(KeyRow::table_row));
    output::print_text(&format_table(0, &rows))?;
    Ok(CommandOutcome::Success)
}

/// The counters of one client.
#[derive(Deserialize)]
struct CountersResponse {
    counters: Vec<CounterRow>,
}

#[derive(Deserialize)]
struct CounterRow {
    rule: String,
    key: BTreeMap<String, String>,
    limit: u64,
    used: u64,
    remaining: u64,
    reset_after_ms: u64,
    warnings: u64,
    banned_until: Option<String>,
}

fn show_counters(api: &AdminClient, args: &KeysArgs) -> Result<CommandOutcome, CommandError> {
    let client = ClientSelector::parse(&args.words, args.rule.as_deref(), &args.api_key)?;
    let response = block_on(client.query(api, "/v1/counters"))?;
    if api.json {
        output::print_text(&format!("{}\n", response.body))?;
        return Ok(CommandOutcome::Success);
    }
    let CountersResponse { counters } = response.parse()?;
    if counters.is_empty() {
        output::print_text("no rule counts by these facts; see `tidegate rules list`\n")?;
        return Ok(CommandOutcome::Success);
    }
    let head = ["rule", "key", "used", "left", "full again in", "warnings", "banned until"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(counters.iter().map(CounterRow::table_row));
    output::print_text(&format_table(0, &rows))?;
    Ok(CommandOutcome::Success)
}

impl CounterRow {
    fn table_row(&self) -> Vec<String> {
        // An API key may come from a file and must not appear on the screen.
        let part = |(name, value): (&String, &String)| match name.as_str() {
            "api_key" => name.clone(),
            _ => format!("{name}={value}"),
        };
        let key: Vec<String> = self.key.iter().map(part).collect();
        vec![
            escape_unprintable(&self.rule),
            if key.is_empty() {
                "shared by all clients".to_owned()
            } else {
                escape_unprintable(&key.join(" "))
            },
            format!("{} of {}", self.used, self.limit),
            self.remaining.to_string(),
            format_millis(self.reset_after_ms),
            self.warnings.to_string(),
            self.banned_until.as_deref().map_or_else(|| "-".to_owned(), escape_unprintable),
        ]
    }
}

impl KeyRow {
    fn table_row(&self) -> Vec<String> {
        let times = formatting::format_estimate(self.count, self.error, self.spread);
        let who = formatting::format_key_owner(self.client.as_deref(), &self.key);
        vec![escape_unprintable(&self.kind), times, escape_unprintable(&self.rule), who]
    }
}
