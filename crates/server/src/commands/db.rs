//! `tidegate db migrate`: the tables of a rules database, made or brought up to date.

use serde_json::json;
use tidegate_control::{Refused, migrate};

use super::ask;
use crate::Outcome;
use crate::cli::DbMigrateArgs;
use crate::failure::Failure;
use crate::output::{self, GOOD};

/// Brings the schema of a database up to date and says what that took.
///
/// # Errors
/// When the address is none, nobody answers there, or what is there is not ours.
pub(crate) fn run(args: &DbMigrateArgs) -> Result<Outcome, Failure> {
    let applied = ask::wait(async {
        migrate(&args.rules_db).await.map_err(|refused| match refused {
            Refused::Unfit(why) => Failure::Usage(format!("--rules-db: {why}")),
            other => Failure::CouldNot(other.to_string()),
        })
    })?;
    if args.output.json {
        output::json(&json!({"applied": applied}))?;
        return Ok(Outcome::Well);
    }
    let mut text: String =
        applied.iter().map(|migration| format!("{GOOD}applied{GOOD:#} {migration}\n")).collect();
    if applied.is_empty() {
        text.push_str("nothing to apply: the database is up to date\n");
    }
    output::text(&text)?;
    Ok(Outcome::Well)
}
