//! Tests pipelines with an asynchronous store: it gets all queries at once, replies keep their
//! order, and an outage is reported.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_memory::MemoryStore;

use super::{LOCAL_IP, RespFixture, clock, encode_request, limiter};

/// A store like a remote one: it applies each call at once, but returns many polls later, the first
/// call last.
struct DelayedReplyStore {
    inner: MemoryStore<ManualClock>,
    unavailable: AtomicBool,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
}

impl DelayedReplyStore {
    fn new() -> Self {
        let inner = MemoryStore::with_shards(clock(), 1 << 20, 2);
        let (in_flight, max_in_flight) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { inner, unavailable: AtomicBool::new(false), in_flight, max_in_flight }
    }
}

impl Store for DelayedReplyStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.inner.apply_now(op, charges, readings);
        let before = self.in_flight.fetch_add(1, SeqCst);
        self.max_in_flight.fetch_max(before + 1, SeqCst);
        for _ in before..100 {
            tokio::task::yield_now().await;
        }
        self.in_flight.fetch_sub(1, SeqCst);
        match self.unavailable.load(SeqCst) {
            true => Err(StoreError::not_applied("connection refused by 10.0.0.5")),
            false => Ok(AnsweredBy::Store),
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }
}

fn delayed_fixture() -> RespFixture<DelayedReplyStore> {
    let rules = "rules: [{ id: ten, key_by: api_key, limit: 10/h }]";
    RespFixture::new(limiter(DelayedReplyStore::new(), rules), LOCAL_IP, None)
}

fn encode_pipeline(commands: &[&str]) -> Vec<u8> {
    let words = |command: &&str| {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        encode_request(&words)
    };
    commands.iter().flat_map(words).collect()
}

#[tokio::test]
async fn pipeline_is_concurrent_with_ordered_replies() {
    let mut client = delayed_fixture();
    let commands: Vec<String> =
        (0..10).map(|n| format!("CL.THROTTLE a{} {} 30 60", n % 2, 15 + n)).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let (reply, _) = client.process(&encode_pipeline(&commands)).await;
    let replies = reply.split("*5\r\n").skip(1);
    let limits: Vec<String> =
        replies.map(|reply| reply.split("\r\n").skip(1).take(2).collect()).collect();
    // The limit identifies the command; the remaining quota shows the order of the decisions.
    let expected: Vec<String> =
        (0..10).map(|n| format!(":{}:{}", 16 + n, 15 + n - n / 2)).collect();
    assert_eq!(limits, expected);
    assert_eq!(client.api.limiter.store().max_in_flight.load(SeqCst), 10);
}

#[tokio::test]
async fn immediate_reply_waits_for_earlier_ones() {
    let mut client = delayed_fixture();
    let commands = encode_pipeline(&[
        "CL.THROTTLE a 15 30 60",
        "PING",
        "CL.THROTTLE a 15 30 60",
        "CL.THROTTLE b x y z",
        "HELLO 3",
        "TIDEGATE.CHECK api_key k",
        "TIDEGATE.RESET api_key k",
        "TIDEGATE.CHECK api_key k",
        "QUIT",
    ]);
    let (reply, ends) = client.process(&commands).await;
    assert!(ends);
    let marks = [
        "*5\r\n:0\r\n:16\r\n:15",
        "+PONG",
        "*5\r\n:0\r\n:16\r\n:14",
        "-ERR value is not",
        "%7",
        "%8",
        "remaining\r\n:9",
        "%8",
        "remaining\r\n:10",
        "%8",
        "remaining\r\n:9",
        "+OK",
    ];
    let mut rest = reply.as_str();
    for mark in marks {
        let at = rest.find(mark).unwrap_or_else(|| panic!("`{mark}` is not in {rest}"));
        rest = &rest[at + mark.len()..];
    }
}

#[tokio::test]
async fn unavailable_store_yields_tryagain_error() {
    let mut client = delayed_fixture();
    client.api.limiter.store().unavailable.store(true, SeqCst);
    for command in ["CL.THROTTLE a 15 30 60", "THROTTLE a 15 30 60", "CL.THROTTLE a 15 30 60 0"] {
        let (reply, ends) = client.process(&encode_pipeline(&[command])).await;
        assert_eq!(reply, "-TRYAGAIN the store is unavailable\r\n");
        assert!(!ends);
    }
    // A rule has `on_fail` for this case, which allows by default.
    let (reply, _) = client.process(&encode_pipeline(&["TIDEGATE.CHECK api_key k"])).await;
    assert!(reply.contains("allowed\r\n:1") && reply.contains("fallback"), "{reply}");
}
