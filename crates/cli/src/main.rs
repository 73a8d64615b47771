//! The program `tidegate`: every command.

mod cli;
mod commands;
mod demo;
mod facts;
mod http_client;

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

/// Runs the program on its arguments, the first being its own name, and says how it went: 0 well,
/// 1 the answer is no, 2 the command line is wrong, 3 it could not be done.
fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = Cli::command().try_get_matches_from(args).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = cli::with_suggestion(error);
            // Help and version come this way too, on stdout and with success.
            let error = redact_secrets(error);
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // Whether a value was typed or found in the environment, only the matches know.
    let asked = matches.subcommand().map_or(&matches, |(_, asked)| asked);
    let outcome = match cli.command {
        CliCommand::Serve(args) => serve::run(*args, None),
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Check(args) => commands::check::run(&args, asked),
        CliCommand::Explain(args) => commands::explain::run(&args, asked),
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

/// Flags whose values may hold a password.
const SECRET_FLAGS: [&str; 3] = ["--store ", "--rules-db ", "--rules-table "];

/// What is wrong with a command line, without a value that may hold a password.
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
