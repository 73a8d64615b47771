//! What `check` and `explain` share: who is asked, and the question.

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use tidegate_core::key::Secret;
use tidegate_engine::Limiter;
use tidegate_memory::MemoryStore;

use crate::cli::AskArgs;
use crate::client::{self, Answer, Server};
use crate::config;
use crate::failure::Failure;
use crate::source::Source;

/// Who is asked.
pub(super) enum Target {
    /// A running server.
    Server(Server),
    /// Nobody: it is decided in this process, on fresh counters.
    Here(Box<Limiter<MemoryStore>>),
}

impl Target {
    /// Who is meant: the flag counts before the environment, and at the same level the server.
    ///
    /// # Errors
    /// When flags name both, or rules or token cannot be read.
    pub(super) fn of(args: &AskArgs, matches: &ArgMatches) -> Result<Self, Failure> {
        let level = |id| match matches.value_source(id) {
            Some(ValueSource::CommandLine) => 2,
            Some(ValueSource::EnvVariable) => 1,
            _ => 0,
        };
        let (rules, server) = (level("config").max(level("limits")), level("server"));
        if rules == 2 && server == 2 {
            return Err(Failure::Usage(
                "--server asks a running server, --config and --limit decide in this process\n  \
                 write: one or the other"
                    .to_owned(),
            ));
        }
        if rules > server {
            let rules = Source::new(&args.rules).load()?.compile(Secret::UNSET)?;
            return Ok(Self::Here(Box::new(Limiter::new(MemoryStore::new(), rules))));
        }
        let token = args.admin_token_file.as_deref();
        let token = token.map(|path| config::read_secret(path, "--admin-token-file"));
        Server::new(&client::HTTP, &args.server, token.transpose()?).map(Self::Server)
    }
}

/// The question as it goes over the wire; in this process it is read from the same text, so that
/// both understand the same.
pub(super) fn question(args: &AskArgs) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Question<'a> {
        facts: Pairs<'a>,
        cost: u32,
    }
    let question = Question { facts: Pairs(&args.facts), cost: args.cost };
    serde_json::to_string(&question).map_err(|error| Failure::Usage(error.to_string()))
}

/// An object in the order in which it was typed.
struct Pairs<'a>(&'a [(String, String)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            object.serialize_entry(name, value)?;
        }
        object.end()
    }
}

/// Runs a question to its answer.
///
/// # Errors
/// When the runtime does not start, or the question's own.
pub(super) fn wait<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::CouldNot(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(asked)
}

/// The decision in a server's answer, or why there is none.
///
/// # Errors
/// When the server found fault with the question, or cannot answer.
pub(super) fn understood(answer: Answer) -> Result<String, Failure> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Problem {
        detail: String,
        field: Option<String>,
    }
    let status = answer.status.as_u16();
    if matches!(status, 200 | 429) {
        return Ok(answer.body);
    }
    let Problem { detail, field } = serde_json::from_str(&answer.body).unwrap_or_default();
    let field = field.map_or_else(String::new, |field| format!("{field}: "));
    let said = format!("the server says {}: {field}{detail}", answer.status);
    Err(match status {
        400 | 413 | 422 => Failure::Usage(said),
        401 | 403 => Failure::CouldNot(format!("{said}\n  name its token with --admin-token-file")),
        _ => Failure::CouldNot(format!("{said}\n  is it a tidegate server of this version?")),
    })
}

/// Reads what a server, or this process, answered.
///
/// # Errors
/// When it is something else.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, Failure> {
    serde_json::from_str(body)
        .map_err(|error| Failure::CouldNot(format!("the answer is not understood: {error}")))
}
