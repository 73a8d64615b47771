//! Lines of the process's log: a few of each rule a second, and all others counted, whatever the database does.
//! tokio's clock is the test's here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_control::{Identities, Line, Said, ViolationLog};
use tidegate_core::decision::Verdict;
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_engine::{Limiter, Observer};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{Document, Door, Facts, RuleSet};
use tokio::task::JoinHandle;

use crate::faulty::{Faulty, Mood};
use crate::house::{BEGIN, SECRET};
use crate::log::FOREVER;

const MOST: u32 = 3;

const IP: &str = "203.0.113.7";

const RULES: &str = r#"
rules:
  - { id: shut, match: { path: /shut }, limit: { requests: deny } }
  - { id: watched, match: { path: /watched }, key_by: api_key, limit: 1/h using fixed_window, mode: shadow }
"#;

/// What was said: lines, and what was left out by itself.
#[derive(Clone, Debug)]
enum Heard {
    Line(Box<Line>),
    LeftOut(String, u64),
}

struct Scene {
    limiter: Limiter<MemoryStore<ManualClock>>,
    log: Arc<ViolationLog>,
    said: Arc<Mutex<Vec<Heard>>>,
    writer: JoinHandle<()>,
}

fn compiled(rules: &str) -> RuleSet {
    RuleSet::compile(&Document::parse("rules", rules).expect("rules"), SECRET).expect("rules")
}

fn scene(most: u32, mood: Mood) -> Scene {
    let faulty = Faulty::default();
    faulty.be(mood);
    let said = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&said);
    let identities = Identities { secret: SECRET, plain: true };
    let log = ViolationLog::new(identities, Arc::new(|| Timestamp::EPOCH));
    let log = Arc::new(log.telling(most, move |told| {
        hear.lock().push(match told {
            Said::One(line) => Heard::Line(Box::new(line.clone())),
            Said::LeftOut { rule, count } => Heard::LeftOut(rule.to_owned(), count),
        });
    }));
    let store = MemoryStore::with_clock(ManualClock::new(BEGIN), DEFAULT_MAX_BYTES);
    let limiter = Limiter::new(store, compiled(RULES));
    let limiter = limiter.observed_by(Arc::clone(&log) as Arc<dyn Observer>);
    let kept = Arc::clone(&log);
    let writer = tokio::spawn(async move { kept.keep(&faulty, FOREVER).await });
    Scene { limiter, log, said, writer }
}

impl Scene {
    async fn refuse(&self, path: &str, times: usize) {
        for _ in 0..times {
            let known = [("path", path), ("method", "GET"), ("api_key", "s3cret"), ("ip", IP)];
            let mut facts: Facts<'_> = known.into_iter().collect();
            facts.set_door(Door::Grpc);
            self.limiter.decide(&facts, 1).await;
        }
    }

    async fn second(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }

    /// Lines and left-out of each rule.
    fn sums(&self) -> BTreeMap<String, (u64, u64)> {
        let mut sums = BTreeMap::new();
        for heard in self.said.lock().iter() {
            let (rule, line, more) = match heard {
                Heard::Line(line) => (line.violation.rule.clone(), 1, line.suppressed),
                Heard::LeftOut(rule, count) => (rule.clone(), 0, *count),
            };
            let sum: &mut (u64, u64) = sums.entry(rule).or_default();
            (sum.0, sum.1) = (sum.0 + line, sum.1 + more);
        }
        sums
    }

    fn lines(&self) -> Vec<Line> {
        let said = self.said.lock();
        let line = |heard: &Heard| match heard {
            Heard::Line(line) => Some((**line).clone()),
            Heard::LeftOut(..) => None,
        };
        said.iter().filter_map(line).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn lines_and_left_out_together_are_all_that_was_refused() {
    // The database hangs all the time: lines do not wait for it.
    let scene = scene(MOST, Mood::Hangs);
    scene.second().await;
    let mut refused = 0;
    for seconds in [2, 500, 1, 0, 40, 0, 0, 3, 70_000] {
        scene.refuse("/shut", seconds).await;
        refused += seconds as u64;
        scene.second().await;
    }
    scene.refuse("/shut", 10).await;
    scene.second().await;
    scene.second().await;
    let (lines, left_out) = scene.sums()["shut"];
    assert_eq!(lines, 2 + 3 + 1 + 3 + 3 + 3 + 3, "{:?}", scene.sums());
    assert_eq!(lines + left_out, refused + 10, "the flood's last number is told by a tick");
    let first_after = scene.lines()[5].clone();
    assert_eq!(first_after.suppressed, 497, "what the second before left out: {first_after:?}");
    scene.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_left_to_tell_is_told_at_the_end() {
    let scene = scene(MOST, Mood::Well);
    scene.second().await;
    scene.refuse("/shut", 100).await;
    scene.log.stop();
    scene.writer.await.expect("it ends by itself");
    let said = scene.said.lock();
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(matches!(&said[3], Heard::LeftOut(rule, 97) if rule == "shut"), "{said:?}");
}

/// A database that hangs keeps the log from its end, and lines from nothing.
#[tokio::test(start_paused = true)]
async fn the_last_is_told_whether_the_database_answers_or_not() {
    let scene = scene(MOST, Mood::Hangs);
    scene.second().await;
    scene.refuse("/shut", 100).await;
    scene.log.stop();
    scene.second().await;
    assert_eq!(scene.sums()["shut"], (3, 97));
    assert!(!scene.writer.is_finished());
    scene.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn each_rule_has_its_own_and_a_reload_gives_no_more() {
    let scene = scene(MOST, Mood::Well);
    scene.second().await;
    scene.refuse("/shut", 10).await;
    scene.refuse("/watched", 11).await;
    let other = format!("{RULES}  - {{ id: new, limit: 1000000/s }}\n");
    scene.limiter.install(compiled(&other)).await.expect("in force");
    scene.refuse("/shut", 10).await;
    scene.second().await;
    let told = |rule: &str| scene.lines().iter().filter(|line| line.violation.rule == rule).count();
    assert_eq!((told("shut"), told("watched")), (3, 3));
    scene.second().await;
    assert_eq!(scene.sums()["shut"], (3, 17));
    assert_eq!(scene.sums()["watched"], (3, 7), "one of eleven was within the limit");
    scene.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_line_says_what_there_is_to_say_and_hashes_whom() {
    let scene = scene(MOST, Mood::Well);
    scene.refuse("/watched", 2).await;
    scene.refuse("/shut", 1).await;
    scene.second().await;
    let lines = scene.lines();
    let [watched, shut] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((watched.algorithm, watched.limit), (Some("fixed_window"), Some(1)));
    assert_eq!((watched.mode, watched.verdict), ("shadow", Verdict::ShadowDeny));
    assert_eq!((watched.door, watched.method.as_deref()), (Door::Grpc, Some("GET")));
    assert!(matches!(watched.retry, tidegate_core::decision::Retry::After(_)), "{watched:?}");
    assert!(!watched.violation.enforced);
    let hash = |fact, value| Identities { secret: SECRET, plain: false }.hashed(fact, value);
    assert_eq!(watched.violation.user_id, Some(hash("api_key", "s3cret")));
    assert_eq!(watched.violation.ip, Some(hash("ip", IP)), "also where plain ones are on record");
    assert_eq!((shut.algorithm, shut.limit, shut.verdict), (None, None, Verdict::Deny));
    scene.writer.abort();
}

#[tokio::test(start_paused = true)]
async fn nought_is_none() {
    let scene = scene(0, Mood::Well);
    scene.refuse("/shut", 10).await;
    scene.second().await;
    scene.second().await;
    assert!(scene.said.lock().is_empty());
    scene.writer.abort();
}
