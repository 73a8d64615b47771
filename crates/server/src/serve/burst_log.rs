//! Logs bursts: at most one line per second, with the number of further bursts.

use std::sync::Arc;
use std::time::Duration;

use tidegate_telemetry::{TopKeys, Visibility};

use crate::telemetry::ServerEvent;

/// How often to check for new bursts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Logs bursts until dropped.
pub(super) async fn log_bursts(top: Arc<TopKeys>) {
    let mut last = 0;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        last = log_burst_after(&top, last);
    }
}

/// Logs the newest burst after number `last`, if any, and returns its number. Identities are hashed
/// in the log.
fn log_burst_after(top: &TopKeys, last: u64) -> u64 {
    let new = top.bursts(last, Visibility::Hashed);
    let Some(burst) = new.last() else { return last };
    ServerEvent::Burst { burst, others: burst.number - last - 1 }.log();
    burst.number
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;
    use tidegate_core::key::Secret;
    use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
    use tidegate_limiter::{DecisionObserver, Limiter};
    use tidegate_memory::MemoryStore;
    use tidegate_rules::{Document, Facts, RuleSet};
    use tidegate_telemetry::IdentityPolicy;

    use super::*;

    const RULES: &str = "rules: [{ id: calm, key_by: ip, limit: 1000000/s }]";

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl io::Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Clients that send two requests per second for 30 seconds and then 150 in one second.
    async fn top_with_bursts(clients: &[&str]) -> Arc<TopKeys> {
        let clock = ManualClock::new(Timestamp::from_micros(1_000_000_000));
        let read = clock.clone();
        let identities = IdentityPolicy { secret: Secret::UNSET, plain: false };
        let top = Arc::new(TopKeys::new(identities, Arc::new(move || read.now())));
        let document = Document::parse("rules.yaml", RULES).unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let limiter = Limiter::new(MemoryStore::new(), rules)
            .with_observer(Arc::clone(&top) as Arc<dyn DecisionObserver>);
        for (seconds, times) in [(30, 2), (1, 150)] {
            for _ in 0..seconds {
                for ip in clients {
                    let facts: Facts<'_> = [("ip", *ip)].into_iter().collect();
                    for _ in 0..times {
                        limiter.decide(&facts, 1).await;
                    }
                }
                clock.advance(Micros::from_secs(1));
            }
        }
        top
    }

    #[tokio::test]
    async fn newest_burst_is_logged_without_identity() {
        let top = top_with_bursts(&["192.0.2.7", "192.0.2.8", "192.0.2.9"]).await;
        let lines = CapturedLog::default();
        let into = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || into.clone()).with_ansi(false).finish();
        let last = tracing::subscriber::with_default(subscriber, || {
            let last = log_burst_after(&top, 0);
            assert_eq!(log_burst_after(&top, last), last, "no burst since the last one");
            last
        });
        assert_eq!(last, 3);
        let log = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        for words in
            ["WARN", "burst of requests for one key", "rule=calm", "rate=100", "mean=2", "others=2"]
        {
            assert!(log.contains(words), "{words}: {log}");
        }
        assert!(!log.contains("192.0.2"), "{log}");
    }
}
