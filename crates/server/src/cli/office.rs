//! The command line of the rule office: what is asked of the admin API of a running server.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand, ValueEnum};
use tidegate_core::time::Micros;

use super::{OutputArgs, help};
use crate::config::duration;

/// What to do with the rules of a running server.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// List the rules in force
    List(RulesListArgs),
    /// Print one rule as a rules document writes it
    Get(RulesGetArgs),
    /// Make the rules what a document says, after showing the difference
    #[command(after_help = help::RULES_APPLY)]
    Apply(RulesApplyArgs),
    /// Show what a document would change
    #[command(after_help = help::RULES_DIFF)]
    Diff(RulesDiffArgs),
    /// Remove a rule
    Delete(RulesDeleteArgs),
    /// Apply a rule again that was disabled
    Enable(RulesSwitchArgs),
    /// Keep a rule without applying it
    Disable(RulesSwitchArgs),
    /// List the versions: who changed something, when and why
    History(RulesHistoryArgs),
    /// Make everything what it was at a version, as a new version
    Rollback(RulesRollbackArgs),
    /// Print the rules as a document
    #[command(after_help = help::RULES_EXPORT)]
    Export(RulesExportArgs),
}

/// What to do with overrides.
#[derive(Debug, Subcommand)]
pub(crate) enum OverrideCommand {
    /// Give one key of a rule other numbers, for good or until a date
    #[command(after_help = help::OVERRIDE_SET)]
    Set(Box<OverrideSetArgs>),
    /// List overrides
    List(OverrideListArgs),
    /// Remove an override
    Rm(RemoveArgs),
}

/// What to do with subjects.
#[derive(Debug, Subcommand)]
pub(crate) enum SubjectCommand {
    /// Say what an API key or user brings, such as its tier
    #[command(after_help = help::SUBJECT_SET)]
    Set(SubjectSetArgs),
    /// List subjects; API keys are known by their hashes only
    List(SubjectListArgs),
    /// Remove a subject
    Rm(SubjectRmArgs),
}

/// What to do with a rules database.
#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Make the tables, or bring them up to date, and say what was applied
    #[command(after_help = help::DB_MIGRATE)]
    Migrate(DbMigrateArgs),
}

/// Which server is asked, and how it is answered.
#[derive(Args, Debug)]
pub(crate) struct OfficeArgs {
    /// The admin API of the running server
    #[arg(
        long,
        value_name = "URL",
        default_value = crate::client::ADMIN.url,
        env = "TIDEGATE_ADMIN_URL",
        hide_env_values = true
    )]
    pub(crate) admin: String,

    /// The file with the token that the server asks for
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub(crate) token_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is on record beside a change.
#[derive(Args, Debug)]
pub(crate) struct SignArgs {
    /// Who makes the change, for the history [default: your user name]
    #[arg(long, value_name = "NAME", env = "TIDEGATE_AUTHOR", hide_env_values = true)]
    pub(crate) author: Option<String>,

    /// Why, for the history
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_REASON", hide_env_values = true)]
    pub(crate) reason: Option<String>,
}

/// Whether to ask.
#[derive(Args, Debug)]
pub(crate) struct ConfirmArgs {
    /// Do not ask
    #[arg(
        long,
        short,
        env = "TIDEGATE_YES",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) yes: bool,
}

/// An API key that stays out of the shell's history.
#[derive(Args, Debug)]
pub(crate) struct ApiKeyArgs {
    /// Read the API key from a file, or from stdin with `-`, instead of writing api_key=…
    #[arg(long, value_name = "FILE", env = "TIDEGATE_API_KEY_FILE", hide_env_values = true)]
    pub(crate) api_key_file: Option<PathBuf>,
}

/// How many to list.
#[derive(Args, Debug)]
pub(crate) struct MostArgs {
    /// How many to list at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "TIDEGATE_MOST",
        hide_env_values = true
    )]
    pub(crate) most: u32,
}

/// `tidegate rules list`.
#[derive(Args, Debug)]
pub(crate) struct RulesListArgs {
    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// `tidegate rules get`.
#[derive(Args, Debug)]
pub(crate) struct RulesGetArgs {
    /// The rule
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// `tidegate rules apply`.
#[derive(Args, Debug)]
pub(crate) struct RulesApplyArgs {
    #[command(flatten)]
    pub(crate) diff: RulesDiffArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// `tidegate rules diff`.
#[derive(Args, Debug)]
pub(crate) struct RulesDiffArgs {
    /// The rules document, in YAML or JSON
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// `tidegate rules delete`.
#[derive(Args, Debug)]
pub(crate) struct RulesDeleteArgs {
    #[command(flatten)]
    pub(crate) rule: RulesGetArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// `tidegate rules enable` and `tidegate rules disable`.
#[derive(Args, Debug)]
pub(crate) struct RulesSwitchArgs {
    #[command(flatten)]
    pub(crate) rule: RulesGetArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,
}

/// `tidegate rules history`.
#[derive(Args, Debug)]
pub(crate) struct RulesHistoryArgs {
    #[command(flatten)]
    pub(crate) most: MostArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// `tidegate rules rollback`.
#[derive(Args, Debug)]
pub(crate) struct RulesRollbackArgs {
    /// The version to go back to; `tidegate rules history` lists them
    #[arg(value_name = "VERSION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) version: u64,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// `tidegate rules export`.
#[derive(Args, Debug)]
pub(crate) struct RulesExportArgs {
    /// How it is written
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "yaml",
        env = "TIDEGATE_FORMAT",
        hide_env_values = true
    )]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// How a document is written. Plain comments: help stays short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // For people
    Yaml,
    // For programs
    Json,
}

/// `tidegate override set`.
#[derive(Args, Debug)]
pub(crate) struct OverrideSetArgs {
    /// The rule
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,

    /// Whose: the facts that the rule counts by, such as `user_id=42`
    #[arg(value_name = "FACT=VALUE", value_parser = crate::facts::parse)]
    pub(crate) key: Vec<(String, String)>,

    /// How many requests in the rule's window: a number, `unlimited` or `deny`
    #[arg(
        long,
        value_name = "N",
        value_parser = requests,
        env = "TIDEGATE_REQUESTS",
        hide_env_values = true
    )]
    pub(crate) requests: serde_json::Value,

    /// How many at once, where the rule has a bucket
    #[arg(long, value_name = "N", env = "TIDEGATE_BURST", hide_env_values = true)]
    pub(crate) burst: Option<u64>,

    /// Until when: an instant such as 2026-12-31T12:00:00Z, or a day, with all of it (UTC)
    #[arg(
        long,
        value_name = "DATE",
        value_parser = super::when::until,
        env = "TIDEGATE_UNTIL",
        hide_env_values = true,
        conflicts_with = "lasting"
    )]
    pub(crate) until: Option<String>,

    /// For how long, such as 30d
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = duration,
        env = "TIDEGATE_FOR",
        hide_env_values = true
    )]
    pub(crate) lasting: Option<Micros>,

    /// A note for whoever reads the list
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_NOTE", hide_env_values = true)]
    pub(crate) note: Option<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// `tidegate override list`.
#[derive(Args, Debug)]
pub(crate) struct OverrideListArgs {
    /// Of this rule alone
    #[arg(long, value_name = "ID", env = "TIDEGATE_RULE", hide_env_values = true)]
    pub(crate) rule: Option<String>,

    #[command(flatten)]
    pub(crate) most: MostArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// `tidegate override rm`.
#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Its id, as the list shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,
}

/// `tidegate subject set`.
#[derive(Args, Debug)]
pub(crate) struct SubjectSetArgs {
    /// What identifies it and what it brings, such as `user_id=42 tier=paid`
    #[arg(value_name = "FACT=VALUE", value_parser = crate::facts::parse, required = true)]
    pub(crate) facts: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// `tidegate subject list`.
#[derive(Args, Debug)]
pub(crate) struct SubjectListArgs {
    #[command(flatten)]
    pub(crate) most: MostArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// `tidegate subject rm`.
#[derive(Args, Debug)]
pub(crate) struct SubjectRmArgs {
    /// Its id, as the list shows it, or what identifies it, such as `user_id=42`
    #[arg(value_name = "ID_OR_FACT", required_unless_present = "api_key_file")]
    pub(crate) subject: Option<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,

    #[command(flatten)]
    pub(crate) sign: SignArgs,
}

/// `tidegate reset`.
#[derive(Args, Debug)]
pub(crate) struct ResetArgs {
    /// Whose counters: what is known of a request, such as `ip=203.0.113.7`; a rule's id before it
    /// leaves all other rules alone
    #[arg(value_name = "[RULE] FACT=VALUE")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
}

/// `tidegate violations`.
#[derive(Args, Debug)]
pub(crate) struct ViolationsArgs {
    /// Not older than this, such as 1h
    #[arg(
        long,
        value_name = "TIME",
        value_parser = duration,
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
    pub(crate) most: MostArgs,

    #[command(flatten)]
    pub(crate) office: OfficeArgs,
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

/// Reads how many requests an override allows.
fn requests(text: &str) -> Result<serde_json::Value, String> {
    match (text, text.parse::<u64>()) {
        ("unlimited" | "deny", _) => Ok(text.into()),
        (_, Ok(number @ 1..)) => Ok(number.into()),
        _ => Err("this is a whole number from 1, `unlimited` or `deny`".to_owned()),
    }
}
