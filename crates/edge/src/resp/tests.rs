//! The door without its sockets: bytes in, replies out, on a clock that stands still.

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
use tidegate_engine::{Limiter, NoLocal};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, RuleSet};

use super::pipeline::Next;
use super::session::Session;
use super::{Door, Settings};
use crate::Token;

pub(super) const HERE: &str = "127.0.0.1";
pub(super) const AWAY: &str = "192.0.2.1";

/// A door with somebody at it.
pub(super) struct Desk<S = MemoryStore<ManualClock>> {
    pub(super) door: Door<S, NoLocal>,
    pub(super) session: Session,
}

pub(super) fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000))
}

pub(super) fn limiter<S: Store>(store: S, rules: &str) -> Arc<Limiter<S>> {
    let document = Document::parse("rules.yaml", rules).unwrap();
    Arc::new(Limiter::new(store, RuleSet::compile(&document, Secret::UNSET).unwrap()))
}

/// Somebody at an address, at a door to these rules.
pub(super) fn desk(clock: &ManualClock, rules: &str, from: &str, token: Option<&str>) -> Desk {
    let store = MemoryStore::with_shards(clock.clone(), 1 << 20, 2);
    Desk::new(limiter(store, rules), from, token)
}

impl<S: Store> Desk<S> {
    pub(super) fn new(limiter: Arc<Limiter<S>>, from: &str, token: Option<&str>) -> Self {
        let token = token.map(|token| Token::new(token).unwrap());
        let door = Door::new(limiter, Settings { secret: Secret::UNSET, token });
        Self { door, session: Session::new(7, from.parse::<IpAddr>().unwrap().into()) }
    }

    /// What bytes are answered, and whether the connection ends after that.
    pub(super) async fn hear(&mut self, mut bytes: &[u8]) -> (String, bool) {
        let mut out = Vec::new();
        let ends = loop {
            let done = self.door.answer(&mut self.session, bytes, &mut out).await;
            bytes = &bytes[done.taken..];
            match done.next {
                Next::Go => {}
                Next::Read => break false,
                Next::Close => break true,
            }
        };
        (String::from_utf8_lossy(&out).into_owned(), ends)
    }

    /// What bytes are answered by a store that waits for nothing.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> (String, bool) {
        ready(self.hear(bytes))
    }

    /// The reply to a command of plain words, without its line ends.
    pub(super) fn say(&mut self, command: &str) -> String {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let (reply, ends) = self.raw(&request(&words));
        assert!(!ends, "{command}: {reply}");
        reply.trim_end_matches("\r\n").replace("\r\n", " ")
    }
}

/// A command as clients write it.
pub(super) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// The outcome of a future that waits for nothing.
pub(super) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a decision on memory waits for nothing"),
    }
}
