//! The wiring: command line, settings, stores, doors, telemetry, reload and shutdown.
//!
//! The only crate that names a concrete store, reads clocks and touches files, signals and the
//! environment. Nothing here decides a request.

mod changes;
mod cli;
mod client;
mod clock;
mod commands;
mod config;
mod demo;
mod exports;
mod extraction;
mod facts;
mod failure;
mod node;
mod office;
mod output;
mod reload;
mod serve;
mod snapshot;
mod source;
mod store;
mod sweep;
mod telemetry;
mod vitals;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};

use cli::{Cli, Command, ConfigCommand, DbCommand, ImportCommand};

/// How a command that ran to its end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All is well.
    Well,
    /// The answer is no: refused, invalid.
    No,
}

/// Runs the program on its arguments, the first being its own name, and says how it went: 0 well,
/// 1 the answer is no, 2 the command line is wrong, 3 it could not be done.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = Cli::command().try_get_matches_from(args).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = cli::with_advice(error);
            // Help and version come this way too, on stdout and with success.
            let error = unquoted(error);
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // Whether a value was typed or found in the environment, only the matches know.
    let asked = matches.subcommand().map_or(&matches, |(_, asked)| asked);
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(*args, None),
        Command::Demo(args) => demo::run(&args),
        Command::Check(args) => commands::check::run(&args, asked),
        Command::Explain(args) => commands::explain::run(&args, asked),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Rules(command) => commands::admin::rules::run(&command),
        Command::Override(command) => commands::admin::overrides::run(&command),
        Command::Subject(command) => commands::admin::subjects::run(&command),
        Command::Reset(args) => commands::admin::reset::run(&args),
        Command::Keys(args) => commands::admin::keys::run(&args),
        Command::Top(args) => commands::admin::top::run(&args),
        Command::Violations(args) => commands::admin::violations::run(&args),
        Command::Db(DbCommand::Migrate(args)) => commands::db::run(&args),
        Command::Config(ConfigCommand::Check(args)) => commands::config_check::run(&args),
        Command::Import(ImportCommand::EnvoyRatelimit(args)) => commands::import::envoy(&args),
        Command::Import(ImportCommand::Limitador(args)) => commands::import::limitador(&args),
    };
    match outcome {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.code())
        }
    }
}

/// Flags whose values may hold a password.
const SECRET_FLAGS: [&str; 3] = ["--store ", "--rules-db ", "--rules-table "];

/// What is wrong with a command line, without a value that may hold a password.
fn unquoted(mut error: clap::Error) -> clap::Error {
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

impl From<bool> for Outcome {
    fn from(well: bool) -> Self {
        if well { Self::Well } else { Self::No }
    }
}
