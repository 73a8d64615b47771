//! The command line as typed: flags with their environment variables, and the help texts.
//!
//! Nothing is checked here beyond the form of a single value; see [`tidegate_server::config`] for the rest.

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
use tidegate_server::config::{ListenSpec, PartialStoreSettings};

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
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Adds what was probably meant to a mistake on the command line: a file of rules is named by a flag.
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

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the limiter: listen and decide requests until stopped
    #[command(after_help = help::SERVE)]
    Serve(Box<ServeArgs>),
    /// See it work: a server with example rules, made-up clients, and a dashboard in the browser
    #[command(after_help = help::DEMO)]
    Demo(DemoArgs),
    /// Decide one request and charge it: may it pass?
    #[command(after_help = help::CHECK)]
    Check(DecisionArgs),
    /// Show which rules govern a request, how their counters stand, and which one decides
    #[command(after_help = help::EXPLAIN)]
    Explain(DecisionArgs),
    /// Look at the store: can it be used, how fast is it, and what should be changed
    #[command(after_help = help::DOCTOR)]
    Doctor(DoctorArgs),
    /// Measure decisions per second on your own rules, in this process
    #[command(after_help = help::BENCH)]
    Bench(BenchArgs),
    /// List, change and compare the rules of a running server; go back to an earlier version
    #[command(subcommand, disable_help_subcommand = true)]
    Rules(RulesCommand),
    /// Give single customers other numbers than the rule says
    #[command(subcommand, disable_help_subcommand = true)]
    Override(OverrideCommand),
    /// Say what API keys and users bring, such as their tier
    #[command(subcommand, disable_help_subcommand = true)]
    Subject(SubjectCommand),
    /// Forget the counters, warnings and bans of a client, or all of a rule
    #[command(after_help = help::RESET)]
    Reset(ResetArgs),
    /// Show who was refused, by which rule and how often
    #[command(after_help = help::VIOLATIONS)]
    Violations(Box<ViolationsArgs>),
    /// Show which keys ask most and are refused most now, or the counters of one client
    #[command(after_help = help::KEYS)]
    Keys(KeysArgs),
    /// Watch a running server in the terminal: decisions, rules and keys as they come
    #[command(after_help = help::TOP_COMMAND)]
    Top(TopArgs),
    /// Work with rules databases
    #[command(subcommand, disable_help_subcommand = true)]
    Db(DbCommand),
    /// Work with rules documents
    #[command(subcommand, disable_help_subcommand = true)]
    Config(ConfigCommand),
    /// Print another limiter's configuration as a rules document, and list what has no equivalent
    #[command(subcommand, disable_help_subcommand = true)]
    Import(ImportCommand),
}

/// Whose configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// The files of Envoy's reference rate limit service, envoyproxy/ratelimit
    #[command(after_help = help::IMPORT_ENVOY)]
    EnvoyRatelimit(ImportEnvoyArgs),
    /// The limits file of Limitador
    #[command(after_help = help::IMPORT_LIMITADOR)]
    Limitador(ImportLimitadorArgs),
}

/// `tidegate import envoy-ratelimit`.
#[derive(Args, Debug)]
pub(crate) struct ImportEnvoyArgs {
    /// Configuration files, or folders whose .yaml and .yml files they are
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

/// What to do with a rules document.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether a rules document is valid, and everything that is wrong with it
    #[command(after_help = help::CONFIG_CHECK)]
    Check(ConfigCheckArgs),
}

/// `tidegate demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How long it runs, such as 30s [default: until Ctrl-C]
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = tidegate_server::config::parse_duration,
        env = "TIDEGATE_FOR",
        hide_env_values = true
    )]
    pub(crate) duration: Option<Micros>,

    /// Where the dashboard is [default: 127.0.0.1:8084, or a free port if that is taken]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", hide_env_values = true)]
    pub(crate) admin: Option<ListenSpec>,
}

/// `tidegate doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// A rules document whose `server:` section says where the store is
    #[arg(long, short, value_name = "FILE", env = "TIDEGATE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: PartialStoreSettings,

    /// The file with the secret under which clients are hashed
    #[arg(long, value_name = "FILE", env = "TIDEGATE_KEY_SECRET_FILE", hide_env_values = true)]
    pub(crate) key_secret_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tidegate check` and `tidegate explain`.
#[derive(Args, Debug)]
pub(crate) struct DecisionArgs {
    /// What is known of the request, such as `ip=203.0.113.7 method=POST path=/api/orders`
    #[arg(value_name = "FACT=VALUE", value_parser = crate::facts::parse)]
    pub(crate) facts: Vec<(String, String)>,

    /// How much the request costs
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "TIDEGATE_COST",
        hide_env_values = true
    )]
    pub(crate) cost: u32,

    /// The running server to ask, by its URL or as `unix:/PATH`
    #[arg(
        long,
        value_name = "URL",
        default_value = crate::http_client::HTTP_API.url,
        env = "TIDEGATE_SERVER",
        hide_env_values = true
    )]
    pub(crate) server: String,

    /// The file with the token that the server asks for
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

    /// How long to measure
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=3_600),
        env = "TIDEGATE_SECONDS",
        hide_env_values = true
    )]
    pub(crate) seconds: u32,

    /// How many threads decide [default: one for each core]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_024),
        env = "TIDEGATE_THREADS",
        hide_env_values = true
    )]
    pub(crate) threads: Option<u32>,

    /// How many different clients ask
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

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How to answer.
#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Answer in JSON, for programs
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
                // `--admin` of `serve` says where to listen, that of others whom to ask; the token is the same.
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
