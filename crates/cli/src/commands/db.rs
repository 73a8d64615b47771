//! `tidegate db migrate`: creates or updates the tables of a rules database.

use serde_json::json;
use tidegate_rulestore::{RepositoryError, migrate};

use super::decision_query;
use crate::cli::DbMigrateArgs;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, GOOD};

/// Applies the missing migrations to a database and lists them.
///
/// # Errors
/// If the URL is invalid, the database is unreachable, or its tables belong to another program.
pub(crate) fn run(args: &DbMigrateArgs) -> Result<CommandOutcome, CommandError> {
    let applied = decision_query::block_on(async {
        migrate(&args.rules_db).await.map_err(|error| match error {
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
