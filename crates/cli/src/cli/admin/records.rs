//! Arguments of `tidegate override …` and `tidegate subject …`.

use clap::{Args, Subcommand};
use tidegate_core::time::Micros;

use super::{AdminApiArgs, ApiKeyArgs, ChangeAuthorArgs, ConfirmArgs, ListLimitArgs};
use crate::cli::{help, timestamp};
use tidegate_server::config::parse_duration;

/// `tidegate override …`.
#[derive(Debug, Subcommand)]
pub(crate) enum OverrideCommand {
    /// Set a different limit for one key of a rule, permanently or until a date
    #[command(after_help = help::OVERRIDE_SET)]
    Set(Box<OverrideSetArgs>),
    /// List overrides
    List(OverrideListArgs),
    /// Remove an override
    Rm(OverrideRmArgs),
}

/// `tidegate subject …`.
#[derive(Debug, Subcommand)]
pub(crate) enum SubjectCommand {
    /// Assign facts, such as a tier, to an API key or user
    #[command(after_help = help::SUBJECT_SET)]
    Set(SubjectSetArgs),
    /// List subjects; API keys are stored only as hashes
    List(SubjectListArgs),
    /// Remove a subject
    Rm(SubjectRmArgs),
}

/// `tidegate override set`.
#[derive(Args, Debug)]
pub(crate) struct OverrideSetArgs {
    /// ID of the rule
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,

    /// The key: the facts that the rule counts by, such as `user_id=42`
    #[arg(value_name = "FACT=VALUE", value_parser = crate::facts::parse)]
    pub(crate) key: Vec<(String, String)>,

    /// Requests per window of the rule: a number, `unlimited` or `deny`
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_requests,
        env = "TIDEGATE_REQUESTS",
        hide_env_values = true
    )]
    pub(crate) requests: serde_json::Value,

    /// Burst size, if the rule uses a bucket
    #[arg(long, value_name = "N", env = "TIDEGATE_BURST", hide_env_values = true)]
    pub(crate) burst: Option<u64>,

    /// When it ends: a time such as 2026-12-31T12:00:00Z, or a date, including that day (UTC)
    #[arg(
        long,
        value_name = "DATE",
        value_parser = timestamp::parse_until,
        env = "TIDEGATE_UNTIL",
        hide_env_values = true,
        conflicts_with = "lasting"
    )]
    pub(crate) until: Option<String>,

    /// How long it lasts, such as 30d
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = parse_duration,
        env = "TIDEGATE_FOR",
        hide_env_values = true
    )]
    pub(crate) lasting: Option<Micros>,

    /// A note to show in the list
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_NOTE", hide_env_values = true)]
    pub(crate) note: Option<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// `tidegate override list`.
#[derive(Args, Debug)]
pub(crate) struct OverrideListArgs {
    /// List only overrides of this rule
    #[arg(long, value_name = "ID", env = "TIDEGATE_RULE", hide_env_values = true)]
    pub(crate) rule: Option<String>,

    #[command(flatten)]
    pub(crate) limit: ListLimitArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate override rm`.
#[derive(Args, Debug)]
pub(crate) struct OverrideRmArgs {
    /// ID of the override, as shown in the list
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,
}

/// `tidegate subject set`.
#[derive(Args, Debug)]
pub(crate) struct SubjectSetArgs {
    /// The identifying fact and the facts to assign, such as `user_id=42 tier=paid`
    #[arg(value_name = "FACT=VALUE", value_parser = crate::facts::parse, required = true)]
    pub(crate) facts: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// `tidegate subject list`.
#[derive(Args, Debug)]
pub(crate) struct SubjectListArgs {
    #[command(flatten)]
    pub(crate) limit: ListLimitArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate subject rm`.
#[derive(Args, Debug)]
pub(crate) struct SubjectRmArgs {
    /// ID of the subject, as shown in the list, or its identifying fact, such as `user_id=42`
    #[arg(value_name = "ID_OR_FACT", required_unless_present = "api_key_file")]
    pub(crate) subject: Option<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,
}

/// Parses the number of requests that an override allows.
fn parse_requests(text: &str) -> Result<serde_json::Value, String> {
    match (text, text.parse::<u64>()) {
        ("unlimited" | "deny", _) => Ok(text.into()),
        (_, Ok(number @ 1..)) => Ok(number.into()),
        _ => Err("expected a whole number from 1, `unlimited` or `deny`".to_owned()),
    }
}
