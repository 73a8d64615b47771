//! The `tidegate` program: parses the command line, runs the command and sets the exit code.

mod cli;
mod commands;
mod demo;
mod facts;
mod http_client;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};
use tidegate_server::{CommandOutcome, serve};

use cli::{Cli, CliCommand, ConfigCommand, DbCommand, ImportCommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs the program; the first argument is the program's name. Exit codes: 0 success, 1 the answer
/// is no (refused, invalid), 2 wrong usage, 3 failed.
fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = Cli::command().try_get_matches_from(args).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = cli::with_suggestion(error);
            // clap also returns --help and --version as errors; they print to stdout and exit 0.
            let error = redact_secrets(error);
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // Only the matches record whether a value came from a flag or from the environment.
    let matches = matches.subcommand().map_or(&matches, |(_, matches)| matches);
    let outcome = match cli.command {
        CliCommand::Serve(args) => serve::run(*args, None),
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Check(args) => commands::check::run(&args, matches),
        CliCommand::Explain(args) => commands::explain::run(&args, matches),
        CliCommand::Route(args) => commands::route::run(&args),
        CliCommand::Doctor(args) => commands::doctor::run(args),
        CliCommand::Bench(args) => commands::bench::run(&args),
        CliCommand::Rules(command) => commands::admin::rules::run(&command),
        CliCommand::Override(command) => commands::admin::overrides::run(&command),
        CliCommand::Subject(command) => commands::admin::subjects::run(&command),
        CliCommand::Reset(args) => commands::admin::reset::run(&args),
        CliCommand::Keys(args) => commands::admin::keys::run(&args),
        CliCommand::Top(args) => commands::admin::top::run(&args),
        CliCommand::Violations(args) => commands::admin::violations::run(&args),
        CliCommand::Db(DbCommand::Migrate(args)) => commands::db::run(&args),
        CliCommand::Config(ConfigCommand::Check(args)) => commands::config_check::run(&args),
        CliCommand::Import(ImportCommand::EnvoyRatelimit(args)) => commands::import::envoy(&args),
        CliCommand::Import(ImportCommand::Limitador(args)) => commands::import::limitador(&args),
    };
    match outcome {
        Ok(CommandOutcome::Success) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Rejected) => ExitCode::from(1),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Flags whose values may contain a password.
const SECRET_FLAGS: [&str; 3] = ["--store ", "--rules-db ", "--rules-table "];

/// Removes values that may contain a password from a command-line error.
fn redact_secrets(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg).unwrap_or_default();
    let secret = SECRET_FLAGS.iter().any(|secret| flag.starts_with(secret));
    let quoted = [ContextKind::InvalidArg, ContextKind::InvalidValue].into_iter().filter(|kind| {
        let text = text(*kind).unwrap_or_default();
        text.contains('@') || (secret && *kind == ContextKind::InvalidValue && !text.is_empty())
    });
    for kind in quoted.collect::<Vec<_>>() {
        error.insert(kind, ContextValue::String("…".to_owned()));
    }
    error
}
