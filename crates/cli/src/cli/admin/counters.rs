//! `tidegate reset`, `tidegate keys`, `tidegate top`, `tidegate violations` and `tidegate db …` as typed.

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};
use tidegate_core::time::Micros;

use super::{AdminApiArgs, ApiKeyArgs, ChangeAuthorArgs, ConfirmArgs, ListLimitArgs};
use crate::cli::{OutputArgs, help};
use tidegate_server::config::parse_duration;

/// What to do with a rules database.
#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Make the tables, or bring them up to date, and say what was applied
    #[command(after_help = help::DB_MIGRATE)]
    Migrate(DbMigrateArgs),
}

/// `tidegate reset`.
#[derive(Args, Debug)]
pub(crate) struct ResetArgs {
    /// Whose counters: what is known of the client, such as `ip=203.0.113.7`; a rule's id before it
    /// leaves all other rules alone
    #[arg(value_name = "[RULE] FACT=VALUE")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    /// Of this rule alone
    #[arg(long, value_name = "ID", env = "TIDEGATE_RULE", hide_env_values = true)]
    pub(crate) rule: Option<String>,

    /// Every counter, warning and ban of the rule: an edit that gives it a new generation
    #[arg(
        long,
        env = "TIDEGATE_ALL",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate keys`.
#[derive(Args, Debug)]
pub(crate) struct KeysArgs {
    /// The counters of one client: what is known of it, such as `ip=203.0.113.7`
    #[arg(value_name = "FACT=VALUE")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    /// One list alone: those refused most, or those that ask most
    #[arg(
        long,
        conflicts_with_all = ["words", "api_key_file"],
        value_name = "LIST",
        value_parser = ["refused", "busiest"],
        env = "TIDEGATE_KIND",
        hide_env_values = true
    )]
    pub(crate) kind: Option<String>,

    /// Of this rule alone
    #[arg(long, value_name = "ID", env = "TIDEGATE_RULE", hide_env_values = true)]
    pub(crate) rule: Option<String>,

    #[command(flatten)]
    pub(crate) limit: ListLimitArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Tell one picture as text and end, as it does where there is no terminal
    #[arg(
        long,
        env = "TIDEGATE_ONCE",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate violations`.
#[derive(Args, Debug)]
pub(crate) struct ViolationsArgs {
    /// Not older than this, such as 1h
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        env = "TIDEGATE_SINCE",
        hide_env_values = true
    )]
    pub(crate) since: Option<Micros>,

    /// Of this rule alone
    #[arg(long, value_name = "ID", env = "TIDEGATE_RULE", hide_env_values = true)]
    pub(crate) rule: Option<String>,

    /// Of this user alone, by name or as the list shows it
    #[arg(long, value_name = "USER", env = "TIDEGATE_USER", hide_env_values = true)]
    pub(crate) user: Option<String>,

    /// From this address alone
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_IP", hide_env_values = true)]
    pub(crate) ip: Option<String>,

    #[command(flatten)]
    pub(crate) api_key: ViolationKeyArgs,

    /// Who was refused most, by which rule and how often
    #[arg(
        long,
        env = "TIDEGATE_TOP",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) top: bool,

    /// Go on with new ones as they come, until Ctrl-C
    #[arg(
        long,
        env = "TIDEGATE_FOLLOW",
        hide_env_values = true,
        value_parser = FalseyValueParser::new(),
        conflicts_with = "top"
    )]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) limit: ListLimitArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// Whose violations, by an API key.
#[derive(Args, Debug)]
pub(crate) struct ViolationKeyArgs {
    /// Of this API key alone
    #[arg(
        long = "api-key",
        value_name = "KEY",
        env = "TIDEGATE_API_KEY",
        hide_env_values = true,
        conflicts_with_all = ["api_key_file", "user"]
    )]
    pub(crate) typed: Option<String>,

    #[command(flatten)]
    pub(crate) file: ApiKeyArgs,
}

/// `tidegate db migrate`.
#[derive(Args, Debug)]
pub(crate) struct DbMigrateArgs {
    /// The database: sqlite:PATH, or postgres://user:password@host/database
    #[arg(long, value_name = "URL", env = "TIDEGATE_RULES_DB", hide_env_values = true)]
    pub(crate) rules_db: String,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
