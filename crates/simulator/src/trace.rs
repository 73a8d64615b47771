//! The trace of a run: every event with its true time. A digest of it shows whether two runs were
//! identical, without keeping it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::TrueTime;

/// The events of a run. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    time: TrueTime,
    is_kept: bool,
    log: Arc<Mutex<TraceLog>>,
}

#[derive(Debug, Default)]
struct TraceLog {
    lines: Vec<String>,
    digest: u64,
    events: u64,
}

impl Trace {
    pub(crate) fn new(time: TrueTime, is_kept: bool) -> Self {
        Self { time, is_kept, log: Arc::default() }
    }

    /// Records an event. `code` identifies it in the digest; `text` is made only if the trace is
    /// kept.
    pub(crate) fn record(&self, code: u64, text: impl FnOnce() -> String) {
        let now = self.time.now();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        for word in [now, code] {
            log.digest = (log.digest.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        log.events += 1;
        if self.is_kept {
            let line = TraceLine { now, text: &text() }.to_string();
            log.lines.push(line);
        }
    }

    /// The number of events, and a hash of all of them.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        (log.events, log.digest)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).lines.clone()
    }
}

struct TraceLine<'a> {
    now: u64,
    text: &'a str,
}

impl fmt::Display for TraceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}.{:06} s  {}", self.now / 1_000_000, self.now % 1_000_000, self.text)
    }
}
