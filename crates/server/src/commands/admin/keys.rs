//! `tidegate keys`: who asks most and who is refused most at present.

use serde::Deserialize;

use super::api::{Api, wait};
use super::pages::Query;
use super::top::words;
use crate::Outcome;
use crate::cli::KeysArgs;
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

impl Key {
    fn row(&self) -> Vec<String> {
        let times = words::times(self.count, self.error, self.spread);
        let who = words::who(self.who.as_deref(), &self.key);
        vec![printable(&self.kind), times, printable(&self.rule), who]
    }
}
