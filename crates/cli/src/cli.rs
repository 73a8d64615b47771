//! Defines the command line: commands, flags with their environment variables, and help texts.
//!
//! Only the syntax of single values is checked here; [`tidegate_server::config`] checks the rest.

mod admin;
mod help;
mod timestamp;

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use tidegate_core::time::Micros;

pub(crate) use admin::*;
use tidegate_server::args::{RuleSourceArgs, ServeArgs};
use tidegate_server::config::{ListenSpec, PartialRegionStores, PartialStoreSettings};

/// Decides which requests pass: exact rate limits from one set of rules.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    about = help::ABOUT,
    after_help = help::PROGRAM,
    styles = help::STYLES,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Adds a suggestion to a usage error: a rules file must be named with `--config`.
pub(crate) fn with_suggestion(mut error: clap::Error) -> clap::Error {
    let typed = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) if error.kind() == ErrorKind::UnknownArgument => typed,
        _ => return error,
    };
    let is_document = [".yaml", ".yml", ".json", ".toml"].iter().any(|end| typed.ends_with(end));
    if is_document && !typed.starts_with('-') {
        let tip = format!("to use it as the rules, write '--config {typed}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The top-level commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the limiter: listen and decide requests until stopped
    #[command(after_help = help::SERVE)]
    Serve(Box<ServeArgs>),
    /// Try it out: a server with example rules, simulated clients and a dashboard in the browser
    #[command(after_help = help::DEMO)]
    Demo(DemoArgs),
    /// Decide one request and charge its counters
    #[command(after_help = help::CHECK)]
    Check(DecisionArgs),
    /// Show which rules govern a request, the state of their counters and the deciding rule
    #[command(after_help = help::EXPLAIN)]
    Explain(DecisionArgs),
    /// Show which server of an upstream a request goes to, and why
    #[command(after_help = help::ROUTE)]
    Route(RouteArgs),
    /// Check the store: compatibility, latency and recommended changes
    #[command(after_help = help::DOCTOR)]
    Doctor(DoctorArgs),
    /// Measure decisions per second with your rules, in this process
    #[command(after_help = help::BENCH)]
    Bench(BenchArgs),
    /// List, change and compare the rules of a running server; roll back to an earlier version
    #[command(subcommand, disable_help_subcommand = true)]
    Rules(RulesCommand),
    /// Set a different limit for one key of a rule, such as one customer
    #[command(subcommand, disable_help_subcommand = true)]
    Override(OverrideCommand),
    /// Assign facts, such as a tier, to API keys and users
    #[command(subcommand, disable_help_subcommand = true)]
    Subject(SubjectCommand),
    /// Reset the counters, warnings and bans of one client or of a whole rule
    #[command(after_help = help::RESET)]
    Reset(ResetArgs),
    /// Show which clients were refused, by which rule and how often
    #[command(after_help = help::VIOLATIONS)]
    Violations(Box<ViolationsArgs>),
    /// Show the keys with the most requests and refusals now, or the counters of one client
    #[command(after_help = help::KEYS)]
    Keys(KeysArgs),
    /// Watch a running server in the terminal: live decisions, rules and keys
    #[command(after_help = help::TOP_COMMAND)]
    Top(TopArgs),
    /// Manage rules databases
    #[command(subcommand, disable_help_subcommand = true)]
    Db(DbCommand),
    /// Check rules documents
    #[command(subcommand, disable_help_subcommand = true)]
    Config(ConfigCommand),
    /// Convert another rate limiter's configuration to a rules document
    #[command(subcommand, disable_help_subcommand = true)]
    Import(ImportCommand),
}

/// `tidegate import …`, by source format.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Convert the files of Envoy's reference rate limit service, envoyproxy/ratelimit
    #[command(after_help = help::IMPORT_ENVOY)]
    EnvoyRatelimit(ImportEnvoyArgs),
    /// Convert the limits file of Limitador
    #[command(after_help = help::IMPORT_LIMITADOR)]
    Limitador(ImportLimitadorArgs),
}

/// `tidegate import envoy-ratelimit`.
#[derive(Args, Debug)]
pub(crate) struct ImportEnvoyArgs {
    /// Configuration files, or folders with .yaml and .yml files
    #[arg(value_name = "DIR_OR_FILE", required = true)]
    pub(crate) paths: Vec<PathBuf>,
}

/// `tidegate import limitador`.
#[derive(Args, Debug)]
pub(crate) struct ImportLimitadorArgs {
    /// The limits file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// `tidegate config …`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a rules document and report all errors in it
    #[command(after_help = help::CONFIG_CHECK)]
    Check(ConfigCheckArgs),
}

/// `tidegate demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How long to run, such as 30s [default: until Ctrl-C]
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = tidegate_server::config::parse_duration,
        env = "TIDEGATE_FOR",
        hide_env_values = true
    )]
    pub(crate) duration: Option<Micros>,

    /// Address of the dashboard [default: 127.0.0.1:8084, or a free port if that is taken]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", hide_env_values = true)]
    pub(crate) admin: Option<ListenSpec>,
}

/// `tidegate doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// A rules document whose `server:` section names the store
    #[arg(long, short, value_name = "FILE", env = "TIDEGATE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: PartialStoreSettings,

    /// Region of the node, whose stores are checked
    #[arg(
        long,
        value_name = "NAME",
        value_parser = tidegate_server::config::parse_region,
        env = "TIDEGATE_REGION",
        hide_env_values = true
    )]
    pub(crate) region: Option<String>,

    #[command(flatten)]
    pub(crate) region_stores: PartialRegionStores,

    /// The file with the secret for hashing client identities
    #[arg(long, value_name = "FILE", env = "TIDEGATE_KEY_SECRET_FILE", hide_env_values = true)]
    pub(crate) key_secret_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tidegate check` and `tidegate explain`.
#[derive(Args, Debug)]
pub(crate) struct DecisionArgs {
    /// Facts of the request, such as `ip=203.0.113.7 method=POST path=/api/orders`
    #[arg(value_name = "FACT=VALUE", value_parser = crate::facts::parse)]
    pub(crate) facts: Vec<(String, String)>,

    /// Cost of the request
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "TIDEGATE_COST",
        hide_env_values = true
    )]
    pub(crate) cost: u32,

    /// The running server, as a URL or `unix:/PATH`
    #[arg(
        long,
        value_name = "URL",
        default_value = crate::http_client::HTTP_API.url,
        env = "TIDEGATE_SERVER",
        hide_env_values = true
    )]
    pub(crate) server: String,

    /// The file with the token that the server requires
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub(crate) admin_token_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) rules: RuleSourceArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tidegate bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) rules: RuleSourceArgs,

    /// How long to measure, in seconds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=3_600),
        env = "TIDEGATE_SECONDS",
        hide_env_values = true
    )]
    pub(crate) seconds: u32,

    /// Number of threads [default: one per core]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_024),
        env = "TIDEGATE_THREADS",
        hide_env_values = true
    )]
    pub(crate) threads: Option<u32>,

    /// Number of distinct clients
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=16_777_216),
        env = "TIDEGATE_KEYS",
        hide_env_values = true
    )]
    pub(crate) keys: u32,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tidegate config check`.
#[derive(Args, Debug)]
pub(crate) struct ConfigCheckArgs {
    /// The rules document, in YAML or JSON
    #[arg(value_name = "FILE", env = "TIDEGATE_CONFIG", hide_env_values = true)]
    pub(crate) file: PathBuf,

    /// Region to check for, if rules divide their limit among regions
    #[arg(
        long,
        value_name = "NAME",
        value_parser = tidegate_server::config::parse_region,
        env = "TIDEGATE_REGION",
        hide_env_values = true
    )]
    pub(crate) region: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tidegate route`.
#[derive(Args, Debug)]
pub(crate) struct RouteArgs {
    /// Facts of the request, such as `host=api.example.com path=/orders api_key=demo`; name a header
    /// that the upstream hashes in the same way
    #[arg(value_name = "FACT=VALUE", value_parser = crate::facts::parse)]
    pub(crate) facts: Vec<(String, String)>,

    /// Rules document whose `server:` section names the upstreams
    #[arg(long, short, value_name = "FILE", env = "TIDEGATE_CONFIG", hide_env_values = true)]
    pub(crate) config: PathBuf,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The output format.
#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Print JSON instead of text
    #[arg(
        long,
        env = "TIDEGATE_JSON",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn clap_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_matching_env_variable() {
        fn walk(command: &clap::Command) {
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
                let long = arg.get_long().unwrap();
                if matches!(long, "help" | "version") {
                    continue;
                }
                // `--admin` is a listen address for `serve` and `demo`, and the server's URL for
                // the other commands. Both use the same token.
                let expected = match long {
                    "admin" if !matches!(command.get_name(), "serve" | "demo") => {
                        "TIDEGATE_ADMIN_URL".to_owned()
                    }
                    "token-file" => "TIDEGATE_ADMIN_TOKEN_FILE".to_owned(),
                    long => format!("TIDEGATE_{}", long.to_uppercase().replace('-', "_")),
                };
                let env = arg.get_env().map(|name| name.to_string_lossy().into_owned());
                assert_eq!(env, Some(expected), "{} --{long}", command.get_name());
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }
}
