//! What `check` and `explain` share: who is asked, and the question.

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use tidegate_core::key::Secret;
use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;

use crate::cli::DecisionArgs;
use crate::http_client::{self, ApiClient, ApiResponse};
use tidegate_server::config;
use tidegate_server::error::CommandError;
use tidegate_server::rule_source::DocumentSource;

/// Who is asked.
pub(super) enum DecisionTarget {
    /// A running server.
    Remote(ApiClient),
    /// Nobody: it is decided in this process, on fresh counters.
    InProcess(Box<Limiter<MemoryStore>>),
}

impl DecisionTarget {
    /// Who is meant: the flag counts before the environment, and at the same level the server.
    ///
    /// # Errors
    /// When flags name both, or rules or token cannot be read.
    pub(super) fn from_args(
        args: &DecisionArgs,
        matches: &ArgMatches,
    ) -> Result<Self, CommandError> {
        let level = |id| match matches.value_source(id) {
            Some(ValueSource::CommandLine) => 2,
            Some(ValueSource::EnvVariable) => 1,
            _ => 0,
        };
        let (rules, server) = (level("config").max(level("limits")), level("server"));
        if rules == 2 && server == 2 {
            return Err(CommandError::Usage(
                "--server asks a running server, --config and --limit decide in this process\n  \
                 write: one or the other"
                    .to_owned(),
            ));
        }
        if rules > server {
            let rules = DocumentSource::new(&args.rules).load()?.compile(Secret::UNSET)?;
            return Ok(Self::InProcess(Box::new(Limiter::new(MemoryStore::new(), rules))));
        }
        let token = args.admin_token_file.as_deref();
        let token = token.map(|path| config::read_secret(path, "--admin-token-file"));
        ApiClient::new(&http_client::HTTP_API, &args.server, token.transpose()?).map(Self::Remote)
    }
}

/// The question as it goes over the wire; in this process it is read from the same text, so that
/// both understand the same.
pub(super) fn request_body(args: &DecisionArgs) -> Result<String, CommandError> {
    #[derive(Serialize)]
    struct DecisionRequestBody<'a> {
        facts: OrderedFacts<'a>,
        cost: u32,
    }
    let question = DecisionRequestBody { facts: OrderedFacts(&args.facts), cost: args.cost };
    serde_json::to_string(&question).map_err(|error| CommandError::Usage(error.to_string()))
}

/// An object in the order in which it was typed.
struct OrderedFacts<'a>(&'a [(String, String)]);

impl Serialize for OrderedFacts<'_> {
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
pub(super) fn block_on<T>(
    asked: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| CommandError::Failed(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(asked)
}

/// The decision in a server's answer, or why there is none.
///
/// # Errors
/// When the server found fault with the question, or cannot answer.
pub(super) fn check_response(answer: ApiResponse) -> Result<String, CommandError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct DecisionProblem {
        detail: String,
        field: Option<String>,
    }
    let status = answer.status.as_u16();
    if matches!(status, 200 | 429) {
        return Ok(answer.body);
    }
    let DecisionProblem { detail, field } = serde_json::from_str(&answer.body).unwrap_or_default();
    let field = field.map_or_else(String::new, |field| format!("{field}: "));
    let said = format!("the server says {}: {field}{detail}", answer.status);
    Err(match status {
        400 | 413 | 422 => CommandError::Usage(said),
        401 | 403 => {
            CommandError::Failed(format!("{said}\n  name its token with --admin-token-file"))
        }
        _ => CommandError::Failed(format!("{said}\n  is it a tidegate server of this version?")),
    })
}

/// Reads what a server, or this process, answered.
///
/// # Errors
/// When it is something else.
pub(super) fn parse_response<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, CommandError> {
    serde_json::from_str(body)
        .map_err(|error| CommandError::Failed(format!("the answer is not understood: {error}")))
}
