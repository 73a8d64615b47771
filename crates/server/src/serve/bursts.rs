//! Bursts in the log: one line a second at most, with the number of those that are not told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::{Sight, Top};

use crate::telemetry::Event;

/// How often it is looked whether there were any.
const LOOK: Duration = Duration::from_secs(1);

/// Logs bursts until it is dropped.
pub(super) async fn tell(top: Arc<Top>) {
    let mut last = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        last = tell_after(&top, last);
    }
}

/// Logs the newest burst after the one of a number, if there is one; says which that was. Logs hash identities.
fn tell_after(top: &Top, last: u64) -> u64 {
    let new = top.bursts(last, Sight::Hashed);
    let Some(burst) = new.last() else { return last };
    Event::Burst { burst, others: burst.number - last - 1 }.tell();
    burst.number
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;
    use tidegate_control::Identities;
    use tidegate_core::key::Secret;
    use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
    use tidegate_engine::{Limiter, Observer};
    use tidegate_memory::MemoryStore;
    use tidegate_rules::{Document, Facts, RuleSet};

    use super::*;

    const RULES: &str = "rules: [{ id: calm, key_by: ip, limit: 1000000/s }]";

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Those who asked calmly for half a minute, and then so often in a second.
    async fn burst_of(clients: &[&str]) -> Arc<Top> {
        let clock = ManualClock::new(Timestamp::from_micros(1_000_000_000));
        let read = clock.clone();
        let identities = Identities { secret: Secret::UNSET, plain: false };
        let top = Arc::new(Top::new(identities, Arc::new(move || read.now())));
        let document = Document::parse("rules.yaml", RULES).unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let limiter = Limiter::new(MemoryStore::new(), rules)
            .observed_by(Arc::clone(&top) as Arc<dyn Observer>);
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
    async fn one_line_tells_the_newest_burst_and_how_many_others_there_were_and_names_nobody() {
        let top = burst_of(&["192.0.2.7", "192.0.2.8", "192.0.2.9"]).await;
        let lines = Lines::default();
        let into = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || into.clone()).with_ansi(false).finish();
        let last = tracing::subscriber::with_default(subscriber, || {
            let last = tell_after(&top, 0);
            assert_eq!(tell_after(&top, last), last, "there is no other since");
            last
        });
        assert_eq!(last, 3);
        let told = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        for words in [
            "WARN",
            "requests of a key come in a burst",
            "rule=calm",
            "rate=100",
            "mean=2",
            "others=2",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert!(!told.contains("192.0.2"), "{told}");
    }
}
