//! Arguments of `tidegate rules …`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{AdminApiArgs, AllowEmptyArgs, ChangeAuthorArgs, ConfirmArgs, ListLimitArgs};
use crate::cli::help;

/// `tidegate rules …`.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// List the rules
    List(RulesListArgs),
    /// Print one rule as a rules document
    Get(RulesGetArgs),
    /// Replace the rules with those of a document, after showing the difference
    #[command(after_help = help::RULES_APPLY)]
    Apply(RulesApplyArgs),
    /// Show what a document would change
    #[command(after_help = help::RULES_DIFF)]
    Diff(RulesDiffArgs),
    /// Delete a rule
    Delete(RulesDeleteArgs),
    /// Enable a disabled rule
    Enable(RulesSwitchArgs),
    /// Disable a rule without deleting it
    Disable(RulesSwitchArgs),
    /// List the versions, with author, time and reason of each change
    History(RulesHistoryArgs),
    /// Restore an earlier version, as a new version
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
    /// ID of the rule
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
    /// The version to restore; `tidegate rules history` lists them
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
    /// Format of the document
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

/// The format of an exported document. The variants have plain comments because clap would print
/// doc comments in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    // For people.
    Yaml,
    // For programs.
    Json,
}
