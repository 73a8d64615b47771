//! The command line of the rule office: what is asked of the admin API of a running server. Here is what its
//! commands share: whom they ask, who signs, and whether they ask back.

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

/// Which server is asked, and how it is answered.
#[derive(Args, Debug)]
pub(crate) struct AdminApiArgs {
    /// The admin API of the running server
    #[arg(
        long,
        value_name = "URL",
        default_value = crate::http_client::ADMIN_API.url,
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
pub(crate) struct ChangeAuthorArgs {
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

/// Whether no rule may be left.
#[derive(Args, Debug)]
pub(crate) struct AllowEmptyArgs {
    /// Go on even if no rule is left, so that every request passes
    #[arg(
        long,
        env = "TIDEGATE_ALLOW_EMPTY",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) allow_empty: bool,
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
pub(crate) struct ListLimitArgs {
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
