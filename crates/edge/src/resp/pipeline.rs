//! Several commands in one go: all that were read are answered, in order.
//!
//! A store in this process answers each before the next is looked at. One that is waited for is asked
//! everything at once, so that a pipeline takes one round trip and not one a command.

use std::pin::Pin;

use futures_util::future::join_all;
use tidegate_core::store::Store;

use super::Door;
use super::answer::Heard;
use super::frame::{self, ProtocolError};
use super::question::Question;
use super::reply::{Version, Writer};
use super::session::Session;

/// Replies beyond this are sent before more commands are looked at.
const MAX_OUT_BYTES: usize = 12 * 1024;

/// The most questions that wait for a store at the same time.
const MAX_WAITING: usize = 256;

/// What became of the commands that were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// How many bytes are dealt with.
    pub(super) taken: usize,
    pub(super) next: Next,
}

/// What comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More has to be read before anything more can be answered.
    Read,
    /// There is more to answer when the replies are sent.
    Go,
    /// The connection ends when the replies are sent.
    Close,
}

/// Replies that are waited for.
type Waiting<'a> = Vec<Pin<Box<dyn Future<Output = Vec<u8>> + Send + 'a>>>;

impl<S: Store, L: Store> Door<S, L> {
    /// Answers the commands in `bytes`.
    pub(super) async fn answer(
        &self,
        session: &mut Session,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Done {
        let (mut taken, mut waiting) = (0, Waiting::new());
        let next = loop {
            let request = match frame::next(&bytes[taken..]) {
                Ok(Some(request)) => request,
                Ok(None) => break Next::Read,
                Err(error) => {
                    collect(&mut waiting, out).await;
                    refuse(error, session.version, out);
                    break Next::Close;
                }
            };
            taken += request.length;
            let written = out.len();
            let heard = self.hear(session, &request.args, out);
            if !waiting.is_empty() && out.len() > written {
                // It was answered at once, but those before it come first.
                let reply = out.split_off(written);
                collect(&mut waiting, out).await;
                out.extend_from_slice(&reply);
            }
            let question = match heard {
                Heard::Answered => None,
                Heard::Last => break Next::Close,
                Heard::Throttle(throttle) => Some(Question::Throttle(throttle)),
                Heard::Rules(verb) => Some(Question::Rules(verb, request.args)),
            };
            match question {
                None => {}
                Some(question) if S::IMMEDIATE => {
                    self.reply(question, session.version, out).await;
                }
                Some(question) => self.ask(question, session.version, &mut waiting, out).await,
            }
            if out.len() > MAX_OUT_BYTES {
                break Next::Go;
            }
        };
        collect(&mut waiting, out).await;
        Done { taken, next }
    }

    /// Has a question wait with others, unless it has to be asked alone.
    async fn ask<'a>(
        &'a self,
        question: Question<'a>,
        version: Version,
        waiting: &mut Waiting<'a>,
        out: &mut Vec<u8>,
    ) {
        let together = question.goes_with_others();
        if !together || waiting.len() == MAX_WAITING {
            collect(waiting, out).await;
        }
        waiting.push(Box::pin(async move {
            let mut reply = Vec::new();
            self.reply(question, version, &mut reply).await;
            reply
        }));
        if !together {
            collect(waiting, out).await;
        }
    }
}

/// Waits for all replies and puts them in order.
async fn collect(waiting: &mut Waiting<'_>, out: &mut Vec<u8>) {
    if !waiting.is_empty() {
        join_all(waiting.drain(..)).await.iter().for_each(|reply| out.extend_from_slice(reply));
    }
}

fn refuse(error: ProtocolError, version: Version, out: &mut Vec<u8>) {
    tracing::debug!(%error, "connection closed");
    Writer::new(out, version).error("ERR", &error.to_string());
}
