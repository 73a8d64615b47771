//! Tests the RESP API without sockets: bytes in, replies out, with a manual clock.

mod cell;
mod commands;
mod fuzz;
mod rules;
mod waiting;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_limiter::{Limiter, NoFallback};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, RuleSet};

use super::pipeline::PipelineNext;
use super::session::RespSession;
use super::{RespApi, Settings};
use tidegate_web::BearerToken;

pub(super) const LOCAL_IP: &str = "127.0.0.1";
pub(super) const REMOTE_IP: &str = "192.0.2.1";

/// The API and the session of one connection to it.
pub(super) struct RespFixture<S = MemoryStore<ManualClock>> {
    pub(super) api: RespApi<S, NoFallback>,
    pub(super) session: RespSession,
}

pub(super) fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000))
}

pub(super) fn limiter<S: Store>(store: S, rules: &str) -> Arc<Limiter<S>> {
    let document = Document::parse("rules.yaml", rules).unwrap();
    Arc::new(Limiter::new(store, RuleSet::compile(&document, Secret::UNSET).unwrap()))
}

/// Creates an API with these rules and a connection from the address `from`.
pub(super) fn fixture(
    clock: &ManualClock,
    rules: &str,
    from: &str,
    token: Option<&str>,
) -> RespFixture {
    let store = MemoryStore::with_shards(clock.clone(), 1 << 20, 2);
    RespFixture::new(limiter(store, rules), from, token)
}

impl<S: Store> RespFixture<S> {
    pub(super) fn new(limiter: Arc<Limiter<S>>, from: &str, token: Option<&str>) -> Self {
        let token = token.map(|token| BearerToken::new(token).unwrap());
        let api = RespApi::new(limiter, Settings { secret: Secret::UNSET, token });
        Self { api, session: RespSession::new(7, from.parse::<IpAddr>().unwrap().into()) }
    }

    /// Processes `bytes`; returns the replies, and whether the connection is closed after them.
    pub(super) async fn process(&mut self, mut bytes: &[u8]) -> (String, bool) {
        let mut out = Vec::new();
        let ends = loop {
            let done = self.api.process_pipeline(&mut self.session, bytes, &mut out).await;
            bytes = &bytes[done.consumed..];
            match done.next {
                PipelineNext::Continue => {}
                PipelineNext::ReadMore => break false,
                PipelineNext::Close => break true,
            }
        };
        (String::from_utf8_lossy(&out).into_owned(), ends)
    }

    /// Like `process`, for a store that is always ready.
    pub(super) fn process_now(&mut self, bytes: &[u8]) -> (String, bool) {
        expect_ready(self.process(bytes))
    }

    /// Sends a command of space-separated words; returns the reply with spaces for its line ends.
    pub(super) fn send_command(&mut self, command: &str) -> String {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let (reply, ends) = self.process_now(&encode_request(&words));
        assert!(!ends, "{command}: {reply}");
        reply.trim_end_matches("\r\n").replace("\r\n", " ")
    }
}

/// Encodes a command as clients do.
pub(super) fn encode_request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Returns the output of a future that must be ready at once.
pub(super) fn expect_ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("the memory store never waits"),
    }
}
