//! `tidegate override …` and `tidegate subject …` as typed.

use clap::{Args, Subcommand};
use tidegate_core::time::Micros;

use super::{AdminApiArgs, ApiKeyArgs, ChangeAuthorArgs, ConfirmArgs, ListLimitArgs};
use crate::cli::{help, timestamp};
use tidegate_server::config::parse_duration;

/// What to do with overrides.
#[derive(Debug, Subcommand)]
pub(crate) enum OverrideCommand {
    /// Give one key of a rule other numbers, for good or until a date
    #[command(after_help = help::OVERRIDE_SET)]
    Set(Box<OverrideSetArgs>),
    /// List overrides
    List(OverrideListArgs),
    /// Remove an override
    Rm(OverrideRmArgs),
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
        value_parser = parse_requests,
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
        value_parser = timestamp::parse_until,
        env = "TIDEGATE_UNTIL",
        hide_env_values = true,
        conflicts_with = "lasting"
    )]
    pub(crate) until: Option<String>,

    /// For how long, such as 30d
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = parse_duration,
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
    pub(crate) admin_api: AdminApiArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,

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
    pub(crate) limit: ListLimitArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate override rm`.
#[derive(Args, Debug)]
pub(crate) struct OverrideRmArgs {
    /// Its id, as the list shows it
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
    /// What identifies it and what it brings, such as `user_id=42 tier=paid`
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
    /// Its id, as the list shows it, or what identifies it, such as `user_id=42`
    #[arg(value_name = "ID_OR_FACT", required_unless_present = "api_key_file")]
    pub(crate) subject: Option<String>,

    #[command(flatten)]
    pub(crate) api_key: ApiKeyArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,
}

/// Reads how many requests an override allows.
fn parse_requests(text: &str) -> Result<serde_json::Value, String> {
    match (text, text.parse::<u64>()) {
        ("unlimited" | "deny", _) => Ok(text.into()),
        (_, Ok(number @ 1..)) => Ok(number.into()),
        _ => Err("this is a whole number from 1, `unlimited` or `deny`".to_owned()),
    }
}
