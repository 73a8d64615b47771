//! `tidegate db migrate`: the tables of a rules database, made or brought up to date.

use serde_json::json;
use tidegate_rulestore::{RepositoryError, migrate};

use super::decision_query;
use crate::cli::DbMigrateArgs;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, GOOD};

/// Brings the schema of a database up to date and says what that took.
///
/// # Errors
/// When the address is none, nobody answers there, or what is there is not ours.
pub(crate) fn run(args: &DbMigrateArgs) -> Result<CommandOutcome, CommandError> {
    let applied = decision_query::block_on(async {
        migrate(&args.rules_db).await.map_err(|refused| match refused {
            RepositoryError::Invalid(why) => CommandError::Usage(format!("--rules-db: {why}")),
            other => CommandError::Failed(other.to_string()),
        })
    })?;
    if args.output.json {
        output::print_json(&json!({"applied": applied}))?;
        return Ok(CommandOutcome::Success);
    }
    let mut text: String =
        applied.iter().map(|migration| format!("{GOOD}applied{GOOD:#} {migration}\n")).collect();
    if applied.is_empty() {
        text.push_str("nothing to apply: the database is up to date\n");
    }
    output::print_text(&text)?;
    Ok(CommandOutcome::Success)
}
