//! Shared by `check` and `explain`: where the decision is made, the request and the response.

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

/// Where the decision is made.
pub(super) enum DecisionTarget {
    /// A running server.
    Remote(ApiClient),
    /// In this process, with fresh counters.
    InProcess(Box<Limiter<MemoryStore>>),
}

impl DecisionTarget {
    /// Chooses between `--server` and rules. Flags have precedence over environment variables; at
    /// the same level, the server has precedence.
    ///
    /// # Errors
    /// If flags name both, or the rules or the token cannot be read.
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
                "--server calls a running server, --config and --limit decide in this process\n  \
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

/// The request body. A decision in this process parses the same text, so that both targets
/// interpret it alike.
pub(super) fn request_body(args: &DecisionArgs) -> Result<String, CommandError> {
    #[derive(Serialize)]
    struct DecisionRequestBody<'a> {
        facts: OrderedFacts<'a>,
        cost: u32,
    }
    let body = DecisionRequestBody { facts: OrderedFacts(&args.facts), cost: args.cost };
    serde_json::to_string(&body).map_err(|error| CommandError::Usage(error.to_string()))
}

/// Facts, serialized as an object in the order of the command line.
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

/// Runs a future to completion on a single-threaded runtime.
///
/// # Errors
/// If the runtime cannot be started, or the future's error.
pub(super) fn block_on<T>(
    future: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| CommandError::Failed(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(future)
}

/// Returns the body of a response that contains a decision.
///
/// # Errors
/// If the server rejected the request or failed.
pub(super) fn check_response(response: ApiResponse) -> Result<String, CommandError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct DecisionProblem {
        detail: String,
        field: Option<String>,
    }
    let status = response.status.as_u16();
    if matches!(status, 200 | 429) {
        return Ok(response.body);
    }
    let DecisionProblem { detail, field } =
        serde_json::from_str(&response.body).unwrap_or_default();
    let field = field.map_or_else(String::new, |field| format!("{field}: "));
    let message = format!("the server responded {}: {field}{detail}", response.status);
    Err(match status {
        400 | 413 | 422 => CommandError::Usage(message),
        401 | 403 => {
            CommandError::Failed(format!("{message}\n  pass its token with --admin-token-file"))
        }
        _ => CommandError::Failed(format!("{message}\n  is it a tidegate server of this version?")),
    })
}

/// Parses the JSON body of a response.
///
/// # Errors
/// If the body does not have the expected form.
pub(super) fn parse_response<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, CommandError> {
    serde_json::from_str(body)
        .map_err(|error| CommandError::Failed(format!("cannot parse the response: {error}")))
}
