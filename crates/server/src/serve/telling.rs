//! Who hears of decisions in this process, and to whom they tell it: metrics, the log, whoever watches.

use std::sync::Arc;

use tidegate_control::admin::Telling;
use tidegate_control::live::{History, Live, Tells};
use tidegate_control::{Exports, Identities, Metrics, ViolationLog};
use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_core::time::{Clock as _, Timestamp};
use tidegate_edge::gateway::AccessLog;
use tidegate_edge::trace::Tracer;
use tidegate_engine::Limiter;
use tidegate_memory::FastClock;
use tokio::task::JoinHandle;

use super::House;
use crate::config::Settings;
use crate::exports::{Process, Traces};
use crate::office::{self, WallClock};
use crate::store::Tended;
use crate::telemetry::Event;
use crate::vitals::Vitals;

/// One decision in so many is timed where counters are in this process: to read the clock twice would cost more
/// than a tenth of a decision.
const TIMED_IN_MEMORY: u32 = 16;

impl<S: Tended> House<S> {
    /// What `/metrics` tells.
    fn exports(&self) -> Vec<Arc<dyn Exports>> {
        let (limiter, status) = (Arc::clone(&self.limiter), Arc::clone(&self.status));
        let process: Process<S> = Process { limiter, status };
        let mut exports: Vec<Arc<dyn Exports>> = vec![
            Arc::new(process),
            Arc::clone(&self.metrics) as Arc<dyn Exports>,
            Arc::clone(&self.top) as Arc<dyn Exports>,
            Arc::clone(&self.office) as Arc<dyn Exports>,
            Arc::clone(&self.log) as Arc<dyn Exports>,
        ];
        let traces = self.tracer.clone().map(|tracer| Arc::new(Traces(tracer)) as Arc<dyn Exports>);
        exports.extend(traces);
        exports
    }

    /// What the admin API tells of what goes on.
    pub(super) fn telling(&self) -> Telling {
        Telling {
            log: Arc::clone(&self.log),
            top: Arc::clone(&self.top),
            exports: self.exports(),
            live: Arc::new(self.live()),
        }
    }

    /// What `/v1/live` tells.
    fn live(&self) -> Live {
        let vitals: Vitals<S> = Vitals {
            limiter: Arc::clone(&self.limiter),
            status: Arc::clone(&self.status),
            store: self.settings.store.to_string(),
            started: office::wall_clock()(),
        };
        let tellers: Vec<Arc<dyn Tells>> = vec![
            Arc::new(vitals),
            Arc::clone(&self.metrics) as Arc<dyn Tells>,
            Arc::clone(&self.office) as Arc<dyn Tells>,
            Arc::clone(&self.log) as Arc<dyn Tells>,
        ];
        let history = History::new(Arc::clone(&self.metrics), office::wall_clock());
        self.log.live(tellers, Arc::clone(&self.status)).with_history(Arc::new(history))
    }
}

/// Those who write down what they heard, beside everything else.
pub(super) struct Writers {
    violations: JoinHandle<()>,
    traces: Option<JoinHandle<()>>,
}

impl<S: Tended> House<S> {
    /// Writes violations and exports traces until they are told to stop.
    pub(super) fn keep_books(&self) -> Writers {
        let (office, log) = (Arc::clone(&self.office), Arc::clone(&self.log));
        let retention = self.settings.admin.retention;
        let keep = |tracer: Tracer| tokio::spawn(async move { tracer.keep().await });
        Writers {
            violations: tokio::spawn(async move { log.keep(office.repository(), retention).await }),
            traces: self.tracer.clone().map(keep),
        }
    }

    /// Writes what is left. Both end by themselves: whoever breaks off a write does not know what is on record, and
    /// a collector has only so much time.
    pub(super) async fn close_books(&self, writers: Writers) {
        self.log.stop();
        if let Some(tracer) = &self.tracer {
            tracer.stop();
        }
        let _ = writers.violations.await;
        if let Some(traces) = writers.traces {
            let _ = traces.await;
        }
        self.office.leave().await;
        if let Err(why) = self.office.repository().close().await {
            Event::DatabaseNotClosed { why: &why }.tell();
        }
        let lost = self.log.tally().dropped;
        if lost > 0 {
            Event::ViolationsLost { count: lost }.tell();
        }
    }
}

/// Makes traces, if they are to go anywhere; then the store is timed too.
pub(super) fn traced<S: Store, L: Store>(
    settings: &Settings,
    limiter: Limiter<S, L>,
) -> (Option<Tracer>, Limiter<S, L>) {
    let Some(settings) = settings.traces.clone() else { return (None, limiter) };
    let clock = FastClock::new();
    let clock: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || clock.now());
    let tracer = Tracer::new(settings, Arc::clone(&clock), |news| Event::Collector(news).tell());
    (Some(tracer), limiter.store_timed_by(clock))
}

/// Keeps violations, and logs some.
pub(super) fn log(settings: &Settings, clock: WallClock) -> ViolationLog {
    let log = ViolationLog::new(office::identities(settings), clock);
    log.telling(settings.log_violations, |said| Event::Violation(said).tell())
}

/// Counts decisions, and times them.
pub(super) fn metrics<S: Store>() -> Metrics {
    let clock = FastClock::new();
    let timed = if S::IMMEDIATE { TIMED_IN_MEMORY } else { 1 };
    Metrics::new(timed, Arc::new(move || clock.now()))
}

/// A client is named by the hash that violations have on record.
pub(super) fn access_log(secret: Secret) -> AccessLog {
    let identities = Identities { secret, plain: false };
    AccessLog::new(move |access| {
        // Over a unix socket the address may be unknown; then all clients are one.
        let client = access.client.map(|ip| ip.to_string()).unwrap_or_default();
        Event::Answered { access, client: &identities.hashed("ip", &client) }.tell();
    })
}
