//! Arguments of `tidegate serve`. Other commands share those that name the rules.

use std::path::PathBuf;

use clap::Args;

use crate::config::PartialSettings;

/// Where the rules come from.
#[derive(Args, Debug)]
pub struct RuleSourceArgs {
    /// Rules document, in YAML or JSON
    #[arg(long, short, value_name = "FILE", env = "TIDEGATE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,

    /// A limit such as "100/min by ip burst 20"; may be repeated
    #[arg(
        long = "limit",
        short,
        value_name = "LIMIT",
        env = "TIDEGATE_LIMIT",
        hide_env_values = true,
        allow_hyphen_values = true,
        value_delimiter = ';'
    )]
    pub limits: Vec<String>,

    /// Facts that API callers supply and rules use, such as "tenant,region"
    #[arg(
        long = "facts",
        value_name = "NAMES",
        env = "TIDEGATE_FACTS",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub declared_facts: Vec<String>,

    /// Header that carries the API key at the gateway, such as x-api-key
    #[arg(
        long,
        value_name = "HEADER",
        value_parser = crate::config::parse_header_name,
        env = "TIDEGATE_API_KEY_HEADER",
        hide_env_values = true
    )]
    pub api_key_header: Option<String>,

    /// Region of this node, for rules that divide their limit among regions
    #[arg(
        long,
        value_name = "NAME",
        value_parser = crate::config::parse_region,
        env = "TIDEGATE_REGION",
        hide_env_values = true
    )]
    pub region: Option<String>,
}

/// `tidegate serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where the rules come from.
    #[command(flatten)]
    pub rules: RuleSourceArgs,

    /// All other settings.
    #[command(flatten)]
    pub settings: PartialSettings,
}
