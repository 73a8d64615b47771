//! `tidegate rules …` as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{AdminApiArgs, AllowEmptyArgs, ChangeAuthorArgs, ConfirmArgs, ListLimitArgs};
use crate::cli::help;

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

/// `tidegate rules list`.
#[derive(Args, Debug)]
pub(crate) struct RulesListArgs {
    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate rules get`.
#[derive(Args, Debug)]
pub(crate) struct RulesGetArgs {
    /// The rule
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate rules apply`.
#[derive(Args, Debug)]
pub(crate) struct RulesApplyArgs {
    #[command(flatten)]
    pub(crate) diff: RulesDiffArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,

    #[command(flatten)]
    pub(crate) empty: AllowEmptyArgs,
}

/// `tidegate rules diff`.
#[derive(Args, Debug)]
pub(crate) struct RulesDiffArgs {
    /// The rules document, in YAML or JSON
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate rules delete`.
#[derive(Args, Debug)]
pub(crate) struct RulesDeleteArgs {
    #[command(flatten)]
    pub(crate) rule: RulesGetArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,

    #[command(flatten)]
    pub(crate) empty: AllowEmptyArgs,
}

/// `tidegate rules enable` and `tidegate rules disable`.
#[derive(Args, Debug)]
pub(crate) struct RulesSwitchArgs {
    #[command(flatten)]
    pub(crate) rule: RulesGetArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,
}

/// `tidegate rules history`.
#[derive(Args, Debug)]
pub(crate) struct RulesHistoryArgs {
    #[command(flatten)]
    pub(crate) limit: ListLimitArgs,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// `tidegate rules rollback`.
#[derive(Args, Debug)]
pub(crate) struct RulesRollbackArgs {
    /// The version to go back to; `tidegate rules history` lists them
    #[arg(value_name = "VERSION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) version: u64,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,

    #[command(flatten)]
    pub(crate) authorship: ChangeAuthorArgs,

    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,

    #[command(flatten)]
    pub(crate) empty: AllowEmptyArgs,
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
    pub(crate) format: ExportFormat,

    #[command(flatten)]
    pub(crate) admin_api: AdminApiArgs,
}

/// How a document is written. Plain comments: help stays short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    // For people
    Yaml,
    // For programs
    Json,
}
