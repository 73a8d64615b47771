//! Arguments of `tidegate reset`, `keys`, `top`, `violations` and `db …`.

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};
use tidegate_core::time::Micros;

use super::{AdminApiArgs, ApiKeyArgs, ChangeAuthorArgs, ConfirmArgs, ListLimitArgs};
use crate::cli::{OutputArgs, help};
use tidegate_server::config::parse_duration;

/// `tidegate db …`.
#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Create or update the tables and list the migrations applied
    #[command(after_help = help::DB_MIGRATE)]
    Migrate(DbMigrateArgs),
}

/// `tidegate reset`.
#[derive(Args, Debug)]
pub(crate) struct ResetArgs {
    /// Facts of the client, such as `ip=203.0.113.7`; put a rule ID first to reset only that rule
    #[arg(value_name = "[RULE] FACT=VALUE")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    /// Reset only this rule
    #[arg(long, value_name = "ID", env = "TIDEGATE_RULE", hide_env_values = true)]
    pub(crate) rule: Option<String>,

    /// Reset every counter, warning and ban of the rule, by giving it a new generation
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
    /// Facts of one client, such as `ip=203.0.113.7`: show its counters
    #[arg(value_name = "FACT=VALUE")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    /// Show only the keys with the most refusals, or only those with the most requests
    #[arg(
        long,
        conflicts_with_all = ["words", "api_key_file"],
        value_name = "LIST",
        value_parser = ["refused", "busiest"],
        env = "TIDEGATE_KIND",
        hide_env_values = true
    )]
    pub(crate) kind: Option<String>,

    /// Show only this rule
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
    /// Print one snapshot as text and exit; the default when there is no terminal
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
    /// Only violations not older than this, such as 1h
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        env = "TIDEGATE_SINCE",
        hide_env_values = true
    )]
    pub(crate) since: Option<Micros>,

    /// Only violations of this rule
    #[arg(long, value_name = "ID", env = "TIDEGATE_RULE", hide_env_values = true)]
    pub(crate) rule: Option<String>,

    /// Only violations by this user, by ID or as shown in the list
    #[arg(long, value_name = "USER", env = "TIDEGATE_USER", hide_env_values = true)]
    pub(crate) user: Option<String>,

    /// Only violations from this address
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_IP", hide_env_values = true)]
    pub(crate) ip: Option<String>,

    #[command(flatten)]
    pub(crate) api_key: ViolationKeyArgs,

    /// List the clients refused most, by which rule and how often
    #[arg(
        long,
        env = "TIDEGATE_TOP",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) top: bool,

    /// Keep printing new violations until Ctrl-C
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

/// Selects violations by API key.
#[derive(Args, Debug)]
pub(crate) struct ViolationKeyArgs {
    /// Only violations by this API key
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
