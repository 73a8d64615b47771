//! Processes pipelined commands: answers all commands that were read, in order.
//!
//! An in-process store answers each command before the next one is parsed. A remote store gets the
//! queries of the whole pipeline at once, so a pipeline takes one round trip instead of one per
//! command.

use std::pin::Pin;

use futures_util::future::join_all;
use tidegate_core::store::Store;

use super::RespApi;
use super::dispatch::CommandDispatch;
use super::limiter_query::RespQuery;
use super::reply_writer::{ReplyWriter, RespVersion};
use super::request_parser::{self, ProtocolError};
use super::session::RespSession;

/// When this many bytes of replies are pending, they are sent before more commands are parsed.
const MAX_OUT_BYTES: usize = 12 * 1024;

/// Maximum number of queries that wait for the store at the same time.
const MAX_WAITING: usize = 256;

/// Result of processing the commands that were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PipelineOutcome {
    /// Number of bytes processed.
    pub(super) consumed: usize,
    pub(super) next: PipelineNext,
}

/// What the connection must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipelineNext {
    /// Send the replies, then read more bytes: the remaining ones are not a complete command.
    ReadMore,
    /// Send the replies, then process the remaining bytes.
    Continue,
    /// Send the replies, then close the connection.
    Close,
}

/// Pending replies, in the order of the commands.
type PipelineReplies<'a> = Vec<Pin<Box<dyn Future<Output = Vec<u8>> + Send + 'a>>>;

impl<S: Store, L: Store> RespApi<S, L> {
    /// Processes the commands in `bytes` and appends the replies to `out`.
    pub(super) async fn process_pipeline(
        &self,
        session: &mut RespSession,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> PipelineOutcome {
        let (mut consumed, mut waiting) = (0, PipelineReplies::new());
        let next = loop {
            let request = match request_parser::next_request(&bytes[consumed..]) {
                Ok(Some(request)) => request,
                Ok(None) => break PipelineNext::ReadMore,
                Err(error) => {
                    flush_pending(&mut waiting, out).await;
                    write_protocol_error(error, session.version, out);
                    break PipelineNext::Close;
                }
            };
            consumed += request.length;
            let written = out.len();
            let dispatched = self.dispatch(session, &request.args, out);
            if !waiting.is_empty() && out.len() > written {
                // This reply is ready, but the pending replies to earlier commands go first.
                let reply = out.split_off(written);
                flush_pending(&mut waiting, out).await;
                out.extend_from_slice(&reply);
            }
            let query = match dispatched {
                CommandDispatch::Replied => None,
                CommandDispatch::Close => break PipelineNext::Close,
                CommandDispatch::Throttle(throttle) => Some(RespQuery::Throttle(throttle)),
                CommandDispatch::Rules(action) => Some(RespQuery::Rules(action, request.args)),
            };
            match query {
                None => {}
                Some(query) if S::IMMEDIATE => {
                    self.execute_query(query, session.version, out).await;
                }
                Some(query) => {
                    self.enqueue_query(query, session.version, &mut waiting, out).await;
                }
            }
            if out.len() > MAX_OUT_BYTES {
                break PipelineNext::Continue;
            }
        };
        flush_pending(&mut waiting, out).await;
        PipelineOutcome { consumed, next }
    }

    /// Adds a query to the pending ones. A query that must run alone is executed before this
    /// returns.
    async fn enqueue_query<'a>(
        &'a self,
        query: RespQuery<'a>,
        version: RespVersion,
        waiting: &mut PipelineReplies<'a>,
        out: &mut Vec<u8>,
    ) {
        let concurrent = query.can_run_concurrently();
        if !concurrent || waiting.len() == MAX_WAITING {
            flush_pending(waiting, out).await;
        }
        waiting.push(Box::pin(async move {
            let mut reply = Vec::new();
            self.execute_query(query, version, &mut reply).await;
            reply
        }));
        if !concurrent {
            flush_pending(waiting, out).await;
        }
    }
}

/// Waits for all pending replies and appends them to `out` in order.
async fn flush_pending(waiting: &mut PipelineReplies<'_>, out: &mut Vec<u8>) {
    if !waiting.is_empty() {
        join_all(waiting.drain(..)).await.iter().for_each(|reply| out.extend_from_slice(reply));
    }
}

fn write_protocol_error(error: ProtocolError, version: RespVersion, out: &mut Vec<u8>) {
    tracing::debug!(%error, "connection closed after a protocol error");
    ReplyWriter::new(out, version).error("ERR", &error.to_string());
}
