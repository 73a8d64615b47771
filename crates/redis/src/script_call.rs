//! Calls of the script: EVALSHA, the script's text if the server does not have it, and the replies.

use std::sync::Arc;

use redis::{Pipeline, Value, cmd};
use tidegate_core::time::{Clock as _, ManualClock};

use crate::address::RedisHost;
use crate::batch::ScriptBatch;
use crate::connection::{RedisRequestError, SupervisedConnection};
use crate::connector::server_error_text;
use crate::replay::{Replay, RequestReadings};
use crate::script_request::ScriptRequest;
use crate::stats::FailureCause;

/// Error codes of a script that was rejected as a whole, or at its first write: nothing was
/// changed.
const NOT_EXECUTED_CODES: [&str; 10] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
];

/// The results of the requests of one call.
type CallResults = Vec<Result<RequestReadings, RedisRequestError>>;

/// The requests of one call.
pub(crate) struct ScriptCall<'a> {
    requests: &'a [Arc<ScriptRequest>],
    batch: ScriptBatch<'a>,
    /// Whether the slot is moving to this server, so that the call needs ASKING.
    asking: bool,
}

/// Makes several calls on one connection, and returns the results of each.
pub(crate) async fn send_calls(
    connection: &SupervisedConnection,
    calls: &[ScriptCall<'_>],
) -> Vec<CallResults> {
    let all: Vec<&ScriptCall<'_>> = calls.iter().collect();
    let mut answers = exchange(connection, &all, false).await;
    let missing: Vec<usize> =
        (0..calls.len()).filter(|i| is_script_missing(&answers[*i])).collect();
    if !missing.is_empty() {
        // NOSCRIPT: nothing ran, so send the same calls again with the script's text.
        let again: Vec<&ScriptCall<'_>> = missing.iter().map(|i| &calls[*i]).collect();
        let again = exchange(connection, &again, true).await;
        missing.into_iter().zip(again).for_each(|(i, answer)| answers[i] = answer);
    }
    let answered = calls.iter().zip(answers);
    answered.map(|(call, answer)| call.decode_answer(connection, answer)).collect()
}

/// Returns the replies to calls, without the replies to ASKING.
async fn exchange(
    connection: &SupervisedConnection,
    calls: &[&ScriptCall<'_>],
    with_text: bool,
) -> Vec<Result<Value, RedisRequestError>> {
    let context = connection.context();
    let now = context.test_clock.as_ref().map(ManualClock::now);
    let mut commands = Pipeline::with_capacity(calls.len());
    for call in calls {
        if call.asking {
            commands.add_command(cmd("ASKING"));
        }
        commands.add_command(call.batch.command(&context.script, with_text, now));
    }
    match connection.exchange(&commands).await {
        Err(failure) => calls.iter().map(|_| Err(failure.clone())).collect(),
        Ok(answers) => {
            let mut answers = answers.into_iter();
            let answer = |call: &&ScriptCall<'_>| {
                if call.asking {
                    answers.next();
                }
                answers.next().ok_or_else(|| {
                    RedisRequestError::OutcomeUnknown(
                        FailureCause::ServerError,
                        "the server sent too few replies".to_owned(),
                    )
                })
            };
            calls.iter().map(answer).collect()
        }
    }
}

impl<'a> ScriptCall<'a> {
    pub(crate) fn new(requests: &'a [Arc<ScriptRequest>], asking: bool) -> Self {
        Self { requests, batch: ScriptBatch::new(requests), asking }
    }

    /// Decodes the reply into the result of each request.
    fn decode_answer(
        &self,
        connection: &SupervisedConnection,
        answer: Result<Value, RedisRequestError>,
    ) -> CallResults {
        let failure = match answer {
            Err(failure) => failure,
            Ok(Value::ServerError(error)) => classify_error(connection, &error),
            Ok(answer) => {
                if let Some(readings) = self.replay(answer) {
                    connection.record_success();
                    return readings.into_iter().map(Ok).collect();
                }
                // Another program wrote to these keys, or the script has a bug.
                let why = "the script's reply contradicts the local replay; \
                           another program may have written to its keys";
                connection.record_failure(why);
                RedisRequestError::OutcomeUnknown(FailureCause::ServerError, why.to_owned())
            }
        };
        self.requests.iter().map(|_| Err(failure.clone())).collect()
    }

    /// The readings of all requests, or `None` if the reply is malformed or contradicts the replay.
    fn replay(&self, answer: Value) -> Option<Vec<RequestReadings>> {
        let mut replay = Replay::parse(answer)?;
        let requests = self.requests.iter().zip(&self.batch.charge_indexes);
        requests.map(|(request, indexes)| replay.next_readings(request, indexes)).collect()
    }
}

/// Classifies a server error for the callers.
fn classify_error(
    connection: &SupervisedConnection,
    error: &redis::ServerError,
) -> RedisRequestError {
    let redirected = || {
        let (_, to) = error.details()?.split_once(' ')?;
        let (name, port) = to.rsplit_once(':')?;
        Some(RedisHost { name: name.to_owned(), port: port.parse().ok()? })
    };
    match (error.code(), redirected()) {
        ("MOVED", Some(host)) => return RedisRequestError::Moved(host),
        ("ASK", Some(host)) => return RedisRequestError::Ask(host),
        ("TRYAGAIN", _) => return RedisRequestError::TryAgain,
        // The server is no longer the primary; reconnecting finds the new one.
        ("READONLY", _) => connection.disconnect(&server_error_text(error)),
        _ => connection.record_failure(&server_error_text(error)),
    }
    match NOT_EXECUTED_CODES.contains(&error.code()) {
        true => RedisRequestError::NotExecuted(FailureCause::ServerError, server_error_text(error)),
        false => {
            RedisRequestError::OutcomeUnknown(FailureCause::ServerError, server_error_text(error))
        }
    }
}

fn is_script_missing(answer: &Result<Value, RedisRequestError>) -> bool {
    matches!(answer, Ok(Value::ServerError(error)) if error.code() == "NOSCRIPT")
}
