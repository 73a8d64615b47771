//! Violations in the process's log: a few lines per rule and second, and a count of the suppressed
//! ones, independent of the database. The tests use tokio's paused clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::decision::Verdict;
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_limiter::{DecisionObserver, Limiter};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{ApiKind, Document, Facts, RuleSet};
use tidegate_telemetry::{IdentityPolicy, ViolationLog, ViolationLogEvent, ViolationLogLine};
use tidegate_web::LogPaths;
use tokio::task::JoinHandle;

use crate::faulty_repository::{FaultyRepository, RepositoryMode};
use crate::fixture::{SECRET, START};
use crate::violation_log::KEEP_ALL;

const MAX_PER_RULE: u32 = 3;

const IP: &str = "203.0.113.7";

const RULES: &str = r#"
rules:
  - { id: shut, match: { path: /shut }, limit: { requests: deny } }
  - { id: watched, match: { path: /watched }, key_by: api_key, limit: 1/h using fixed_window, mode: shadow }
"#;

/// An emitted log line, or a separate count of suppressed lines.
#[derive(Clone, Debug)]
enum CapturedEvent {
    Line(Box<ViolationLogLine>),
    Suppressed(String, u64),
}

struct LogFixture {
    limiter: Limiter<MemoryStore<ManualClock>>,
    log: Arc<ViolationLog>,
    events: Arc<Mutex<Vec<CapturedEvent>>>,
    writer: JoinHandle<()>,
}

fn compile_rules(rules: &str) -> RuleSet {
    RuleSet::compile(&Document::parse("rules", rules).expect("rules"), SECRET).expect("rules")
}

fn start_fixture(most: u32, mode: RepositoryMode) -> LogFixture {
    let faulty = FaultyRepository::default();
    faulty.set_mode(mode);
    let events = Arc::new(Mutex::new(Vec::new()));
    let captured = Arc::clone(&events);
    let identities = IdentityPolicy { secret: SECRET, plain: true };
    let log = ViolationLog::new(identities, Arc::new(|| Timestamp::EPOCH));
    let log = Arc::new(log.with_log_lines(most, LogPaths::Patterns, move |event| {
        captured.lock().push(match event {
            ViolationLogEvent::Violation(line) => CapturedEvent::Line(Box::new(line.clone())),
            ViolationLogEvent::Suppressed { rule, count } => {
                CapturedEvent::Suppressed(rule.to_owned(), count)
            }
        });
    }));
    let store = MemoryStore::with_clock(ManualClock::new(START), DEFAULT_MAX_BYTES);
    let limiter = Limiter::new(store, compile_rules(RULES));
    let limiter = limiter.with_observer(Arc::clone(&log) as Arc<dyn DecisionObserver>);
    let running = Arc::clone(&log);
    let writer = tokio::spawn(async move { running.run(&faulty, KEEP_ALL).await });
    LogFixture { limiter, log, events, writer }
}

impl LogFixture {
    async fn refuse(&self, path: &str, times: usize) {
        for _ in 0..times {
            let known = [("path", path), ("method", "GET"), ("api_key", "s3cret"), ("ip", IP)];
            let mut facts: Facts<'_> = known.into_iter().collect();
            facts.set_api(ApiKind::Grpc);
            self.limiter.decide(&facts, 1).await;
        }
    }

    async fn advance_second(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }

    /// The number of emitted and of suppressed lines, by rule.
    fn counts_by_rule(&self) -> BTreeMap<String, (u64, u64)> {
        let mut sums = BTreeMap::new();
        for event in self.events.lock().iter() {
            let (rule, line, more) = match event {
                CapturedEvent::Line(line) => (line.violation.rule.clone(), 1, line.suppressed),
                CapturedEvent::Suppressed(rule, count) => (rule.clone(), 0, *count),
            };
            let sum: &mut (u64, u64) = sums.entry(rule).or_default();
            (sum.0, sum.1) = (sum.0 + line, sum.1 + more);
        }
        sums
    }

    fn lines(&self) -> Vec<ViolationLogLine> {
        let events = self.events.lock();
        let line = |event: &CapturedEvent| match event {
            CapturedEvent::Line(line) => Some((**line).clone()),
            CapturedEvent::Suppressed(..) => None,
        };
        events.iter().filter_map(line).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn emitted_and_suppressed_lines_sum_to_refusals() {
    // The database hangs throughout: lines do not wait for it.
    let fixture = start_fixture(MAX_PER_RULE, RepositoryMode::Hanging);
    fixture.advance_second().await;
    let mut refused = 0;
    for seconds in [2, 500, 1, 0, 40, 0, 0, 3, 70_000] {
        fixture.refuse("/shut", seconds).await;
        refused += seconds as u64;
        fixture.advance_second().await;
    }
    fixture.refuse("/shut", 10).await;
    fixture.advance_second().await;
    fixture.advance_second().await;
    let (lines, left_out) = fixture.counts_by_rule()["shut"];
    assert_eq!(lines, 2 + 3 + 1 + 3 + 3 + 3 + 3, "{:?}", fixture.counts_by_rule());
    assert_eq!(lines + left_out, refused + 10, "a tick reports the last suppressed count");
    let first_after = fixture.lines()[5].clone();
    assert_eq!(
        first_after.suppressed, 497,
        "the count suppressed in the previous second: {first_after:?}"
    );
    fixture.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn remaining_lines_are_emitted_at_stop() {
    let fixture = start_fixture(MAX_PER_RULE, RepositoryMode::Healthy);
    fixture.advance_second().await;
    fixture.refuse("/shut", 100).await;
    fixture.log.stop();
    fixture.writer.await.expect("it ends by itself");
    let events = fixture.events.lock();
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(
        matches!(&events[3], CapturedEvent::Suppressed(rule, 97) if rule == "shut"),
        "{events:?}"
    );
}

/// A hanging database delays the end of the log's task, but not its lines.
#[tokio::test(start_paused = true)]
async fn last_lines_do_not_wait_for_database() {
    let fixture = start_fixture(MAX_PER_RULE, RepositoryMode::Hanging);
    fixture.advance_second().await;
    fixture.refuse("/shut", 100).await;
    fixture.log.stop();
    fixture.advance_second().await;
    assert_eq!(fixture.counts_by_rule()["shut"], (3, 97));
    assert!(!fixture.writer.is_finished());
    fixture.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn line_budget_is_per_rule_across_reloads() {
    let fixture = start_fixture(MAX_PER_RULE, RepositoryMode::Healthy);
    fixture.advance_second().await;
    fixture.refuse("/shut", 10).await;
    fixture.refuse("/watched", 11).await;
    let other = format!("{RULES}  - {{ id: new, limit: 1000000/s }}\n");
    fixture.limiter.install(compile_rules(&other)).await.expect("in force");
    fixture.refuse("/shut", 10).await;
    fixture.advance_second().await;
    let emitted =
        |rule: &str| fixture.lines().iter().filter(|line| line.violation.rule == rule).count();
    assert_eq!((emitted("shut"), emitted("watched")), (3, 3));
    fixture.advance_second().await;
    assert_eq!(fixture.counts_by_rule()["shut"], (3, 17));
    assert_eq!(fixture.counts_by_rule()["watched"], (3, 7), "one of eleven was within the limit");
    fixture.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn log_line_is_complete_and_hashes_identities() {
    let fixture = start_fixture(MAX_PER_RULE, RepositoryMode::Healthy);
    fixture.refuse("/watched", 2).await;
    fixture.refuse("/shut", 1).await;
    fixture.advance_second().await;
    let lines = fixture.lines();
    let [watched, shut] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((watched.algorithm, watched.limit), (Some("fixed_window"), Some(1)));
    assert_eq!((watched.mode, watched.verdict), ("shadow", Verdict::ShadowDeny));
    assert_eq!((watched.api, watched.method.as_deref()), (ApiKind::Grpc, Some("GET")));
    assert!(matches!(watched.retry, tidegate_core::decision::Retry::After(_)), "{watched:?}");
    assert!(!watched.violation.enforced);
    let hash =
        |fact, value| IdentityPolicy { secret: SECRET, plain: false }.hash_value(fact, value);
    assert_eq!(watched.violation.user_id, Some(hash("api_key", "s3cret")));
    assert_eq!(
        watched.violation.ip,
        Some(hash("ip", IP)),
        "hashed even if the database has plain identities"
    );
    assert_eq!((shut.algorithm, shut.limit, shut.verdict), (None, None, Verdict::Deny));
    let endpoint = shut.violation.endpoint.as_deref();
    assert_eq!(endpoint, Some("GET *"), "no rule declares the path as an endpoint");
    fixture.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn zero_budget_emits_no_lines() {
    let fixture = start_fixture(0, RepositoryMode::Healthy);
    fixture.refuse("/shut", 10).await;
    fixture.advance_second().await;
    fixture.advance_second().await;
    assert!(fixture.events.lock().is_empty());
    fixture.writer.abort();
}
