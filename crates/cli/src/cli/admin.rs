//! Arguments of the commands that call the admin API of a running server. This file has the
//! arguments that these commands share: server, author and confirmation.

mod counters;
mod records;
mod rules;

use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;

use super::OutputArgs;
pub(crate) use counters::*;
pub(crate) use records::*;
pub(crate) use rules::*;

/// The server to call, and the output format.
#[derive(Args, Debug)]
pub(crate) struct AdminApiArgs {
    /// URL of the running server's admin API
    #[arg(
        long,
        value_name = "URL",
        default_value = crate::http_client::ADMIN_API.url,
        env = "TIDEGATE_ADMIN_URL",
        hide_env_values = true
    )]
    pub(crate) admin: String,

    /// The file with the token that the server requires
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub(crate) token_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What the history records about a change.
#[derive(Args, Debug)]
pub(crate) struct ChangeAuthorArgs {
    /// Author of the change, for the history [default: your user name]
    #[arg(long, value_name = "NAME", env = "TIDEGATE_AUTHOR", hide_env_values = true)]
    pub(crate) author: Option<String>,

    /// Reason for the change, for the history
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_REASON", hide_env_values = true)]
    pub(crate) reason: Option<String>,
}

/// Whether to ask for confirmation.
#[derive(Args, Debug)]
pub(crate) struct ConfirmArgs {
    /// Do not ask for confirmation
    #[arg(
        long,
        short,
        env = "TIDEGATE_YES",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) yes: bool,
}

/// Whether a change may leave no rules.
#[derive(Args, Debug)]
pub(crate) struct AllowEmptyArgs {
    /// Allow a change that leaves no rules, so that every request passes
    #[arg(
        long,
        env = "TIDEGATE_ALLOW_EMPTY",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) allow_empty: bool,
}

/// An API key that is kept out of the shell's history.
#[derive(Args, Debug)]
pub(crate) struct ApiKeyArgs {
    /// Read the API key from a file, or from stdin with `-`, instead of writing api_key=…
    #[arg(long, value_name = "FILE", env = "TIDEGATE_API_KEY_FILE", hide_env_values = true)]
    pub(crate) api_key_file: Option<PathBuf>,
}

/// The maximum length of a list.
#[derive(Args, Debug)]
pub(crate) struct ListLimitArgs {
    /// Maximum number of entries to list
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "TIDEGATE_MAX",
        hide_env_values = true
    )]
    pub(crate) max: u32,
}
