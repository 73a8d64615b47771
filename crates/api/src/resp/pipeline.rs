//! Several commands in one go: all that were read are answered, in order.
//!
//! A store in this process answers each before the next is looked at. One that is waited for is asked
//! everything at once, so that a pipeline takes one round trip and not one a command.

use std::pin::Pin;

use futures_util::future::join_all;
use tidegate_core::store::Store;

use super::RespApi;
use super::dispatch::CommandDispatch;
use super::limiter_query::RespQuery;
use super::reply_writer::{ReplyWriter, RespVersion};
use super::request_parser::{self, ProtocolError};
use super::session::RespSession;

/// Replies beyond this are sent before more commands are looked at.
const MAX_OUT_BYTES: usize = 12 * 1024;

/// The most questions that wait for a store at the same time.
const MAX_WAITING: usize = 256;

/// What became of the commands that were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PipelineOutcome {
    /// How many bytes are dealt with.
    pub(super) consumed: usize,
    pub(super) next: PipelineNext,
}

/// What comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipelineNext {
    /// More has to be read before anything more can be answered.
    ReadMore,
    /// There is more to answer when the replies are sent.
    Continue,
    /// The connection ends when the replies are sent.
    Close,
}

/// Replies that are waited for.
type PipelineReplies<'a> = Vec<Pin<Box<dyn Future<Output = Vec<u8>> + Send + 'a>>>;

impl<S: Store, L: Store> RespApi<S, L> {
    /// Answers the commands in `bytes`.
    pub(super) async fn process_pipeline(
        &self,
        session: &mut RespSession,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> PipelineOutcome {
        let (mut taken, mut waiting) = (0, PipelineReplies::new());
        let next = loop {
            let request = match request_parser::next_request(&bytes[taken..]) {
                Ok(Some(request)) => request,
                Ok(None) => break PipelineNext::ReadMore,
                Err(error) => {
                    flush_pending(&mut waiting, out).await;
                    write_protocol_error(error, session.version, out);
                    break PipelineNext::Close;
                }
            };
            taken += request.length;
            let written = out.len();
            let heard = self.dispatch(session, &request.args, out);
            if !waiting.is_empty() && out.len() > written {
                // It was answered at once, but those before it come first.
                let reply = out.split_off(written);
                flush_pending(&mut waiting, out).await;
                out.extend_from_slice(&reply);
            }
            let question = match heard {
                CommandDispatch::Replied => None,
                CommandDispatch::Close => break PipelineNext::Close,
                CommandDispatch::Throttle(throttle) => Some(RespQuery::Throttle(throttle)),
                CommandDispatch::Rules(verb) => Some(RespQuery::Rules(verb, request.args)),
            };
            match question {
                None => {}
                Some(question) if S::IMMEDIATE => {
                    self.execute_query(question, session.version, out).await;
                }
                Some(question) => {
                    self.enqueue_query(question, session.version, &mut waiting, out).await;
                }
            }
            if out.len() > MAX_OUT_BYTES {
                break PipelineNext::Continue;
            }
        };
        flush_pending(&mut waiting, out).await;
        PipelineOutcome { consumed: taken, next }
    }

    /// Has a question wait with others, unless it has to be asked alone.
    async fn enqueue_query<'a>(
        &'a self,
        question: RespQuery<'a>,
        version: RespVersion,
        waiting: &mut PipelineReplies<'a>,
        out: &mut Vec<u8>,
    ) {
        let together = question.can_run_concurrently();
        if !together || waiting.len() == MAX_WAITING {
            flush_pending(waiting, out).await;
        }
        waiting.push(Box::pin(async move {
            let mut reply = Vec::new();
            self.execute_query(question, version, &mut reply).await;
            reply
        }));
        if !together {
            flush_pending(waiting, out).await;
        }
    }
}

/// Waits for all replies and puts them in order.
async fn flush_pending(waiting: &mut PipelineReplies<'_>, out: &mut Vec<u8>) {
    if !waiting.is_empty() {
        join_all(waiting.drain(..)).await.iter().for_each(|reply| out.extend_from_slice(reply));
    }
}

fn write_protocol_error(error: ProtocolError, version: RespVersion, out: &mut Vec<u8>) {
    tracing::debug!(%error, "connection closed");
    ReplyWriter::new(out, version).error("ERR", &error.to_string());
}
