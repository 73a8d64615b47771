//! Wires up observability: metrics, the violation log, traces and the live feed.

use std::sync::Arc;

use tidegate_admin::ObservabilityHandles;
use tidegate_core::store::Store;
use tidegate_core::time::{Clock as _, Timestamp};
use tidegate_gateway::AccessLog;
use tidegate_limiter::Limiter;
use tidegate_memory::FastClock;
use tidegate_telemetry::live_feed::{DecisionHistory, LiveBroadcaster, LiveSource};
use tidegate_telemetry::trace::Tracer;
use tidegate_telemetry::{DecisionMetrics, IdentityPolicy, MetricsExporter, ViolationLog};
use tokio::task::JoinHandle;

use super::ServerRuntime;
use crate::config::Settings;
use crate::decision_log::DecisionLog;
use crate::live_status::LiveStatusSource;
use crate::process_metrics::{ProcessMetrics, TraceMetrics};
use crate::regions::{RegionMetrics, RegionStatus};
use crate::rule_manager::{self, WallClock};
use crate::store::ManagedStore;
use crate::telemetry::ServerEvent;

/// With in-memory counters, one decision in this many is timed. Reading the clock twice would add
/// more than a tenth to the cost of a decision.
const TIMED_IN_MEMORY: u32 = 16;

impl<S: ManagedStore> ServerRuntime<S> {
    /// The metrics that `/metrics` exports.
    fn metric_sources(&self) -> Vec<Arc<dyn MetricsExporter>> {
        let (limiter, status) = (Arc::clone(&self.limiter), Arc::clone(&self.status));
        let store_calls = Arc::clone(&self.store_calls);
        let process: ProcessMetrics<S> = ProcessMetrics { limiter, status, store_calls };
        let mut exports: Vec<Arc<dyn MetricsExporter>> = vec![
            Arc::new(process),
            Arc::clone(&self.metrics) as Arc<dyn MetricsExporter>,
            Arc::clone(&self.top) as Arc<dyn MetricsExporter>,
            Arc::clone(&self.rule_manager) as Arc<dyn MetricsExporter>,
            Arc::clone(&self.log) as Arc<dyn MetricsExporter>,
            Arc::new(self.region_metrics()),
        ];
        let traces = self
            .tracer
            .clone()
            .map(|tracer| Arc::new(TraceMetrics(tracer)) as Arc<dyn MetricsExporter>);
        exports.extend(traces);
        exports
    }

    /// The handles that the admin API serves observability data from.
    pub(super) fn observability(&self) -> ObservabilityHandles {
        ObservabilityHandles {
            log: Arc::clone(&self.log),
            top: Arc::clone(&self.top),
            exports: self.metric_sources(),
            live: Arc::new(self.live_feed()),
            regions: {
                let regions = self.region_status();
                Arc::new(move || regions.to_json())
            },
        }
    }

    fn region_status(&self) -> RegionStatus<S, S::Local> {
        RegionStatus { limiter: Arc::clone(&self.limiter), links: Arc::clone(&self.regions) }
    }

    fn region_metrics(&self) -> RegionMetrics<S, S::Local> {
        RegionMetrics { limiter: Arc::clone(&self.limiter), links: Arc::clone(&self.regions) }
    }

    /// The live feed of `/v1/live`.
    fn live_feed(&self) -> LiveBroadcaster {
        let process: LiveStatusSource<S> = LiveStatusSource {
            limiter: Arc::clone(&self.limiter),
            status: Arc::clone(&self.status),
            regions: self.region_status(),
            store: self.settings.store.to_string(),
            started: rule_manager::wall_clock()(),
        };
        let sources: Vec<Arc<dyn LiveSource>> = vec![
            Arc::new(process),
            Arc::clone(&self.metrics) as Arc<dyn LiveSource>,
            Arc::clone(&self.rule_manager) as Arc<dyn LiveSource>,
            Arc::clone(&self.log) as Arc<dyn LiveSource>,
        ];
        let history = DecisionHistory::new(Arc::clone(&self.metrics), rule_manager::wall_clock());
        // The first step counts from here, before any listener accepts requests.
        history.sample();
        self.log.live_broadcaster(sources, Arc::clone(&self.status)).with_history(Arc::new(history))
    }
}

/// Tasks that write violations and export traces.
pub(super) struct WriterTasks {
    violations: JoinHandle<()>,
    traces: Option<JoinHandle<()>>,
}

impl<S: ManagedStore> ServerRuntime<S> {
    /// Starts writing violations and exporting traces.
    pub(super) fn spawn_writers(&self) -> WriterTasks {
        let (manager, log) = (Arc::clone(&self.rule_manager), Arc::clone(&self.log));
        let retention = self.settings.admin.retention;
        let export = |tracer: Tracer| tokio::spawn(async move { tracer.run_exporter().await });
        WriterTasks {
            violations: tokio::spawn(async move { log.run(manager.repository(), retention).await }),
            traces: self.tracer.clone().map(export),
        }
    }

    /// Writes what is left. Both tasks are left to end by themselves: an aborted write may or may
    /// not be stored, and the exporter has its own timeout.
    pub(super) async fn close_writers(&self, writers: WriterTasks) {
        self.log.stop();
        if let Some(tracer) = &self.tracer {
            tracer.stop();
        }
        let _ = writers.violations.await;
        if let Some(traces) = writers.traces {
            let _ = traces.await;
        }
        self.rule_manager.deregister_node().await;
        if let Err(why) = self.rule_manager.repository().close().await {
            ServerEvent::DatabaseNotClosed { why: &why }.log();
        }
        let dropped = self.log.counts().dropped;
        if dropped > 0 {
            ServerEvent::ViolationsDropped { count: dropped }.log();
        }
    }
}

/// Creates the tracer if a collector is configured. Store calls are then timed as well.
pub(super) fn with_tracer<S: Store, L: Store>(
    settings: &Settings,
    limiter: Limiter<S, L>,
) -> (Option<Tracer>, Limiter<S, L>) {
    let Some(settings) = settings.traces.clone() else { return (None, limiter) };
    let clock = FastClock::new();
    let clock: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || clock.now());
    let tracer = Tracer::new(settings, Arc::clone(&clock), |event| {
        ServerEvent::CollectorStatus(event).log();
    });
    (Some(tracer), limiter.with_store_clock(clock))
}

/// Creates the violation log, which stores violations and logs a sample.
pub(super) fn violation_log(settings: &Settings, clock: WallClock) -> ViolationLog {
    let log = ViolationLog::new(rule_manager::violation_identities(settings), clock);
    let paths = settings.log_paths;
    log.with_log_lines(settings.log_violations, paths, |event| ServerEvent::Violation(event).log())
}

/// Creates the metrics of decisions and their duration, and the log of decisions if its level is
/// enabled.
pub(super) fn decision_observers<S: Store>(
    settings: &Settings,
) -> (DecisionMetrics, Option<DecisionLog>) {
    let clock = FastClock::new();
    let log = settings.log_level.includes_debug().then(|| DecisionLog::new(clock.clone()));
    let timed = if S::IMMEDIATE && log.is_none() { TIMED_IN_MEMORY } else { 1 };
    (DecisionMetrics::new(timed, Arc::new(move || clock.now())), log)
}

/// Creates the access log. It identifies clients by the same hash as stored violations and bursts.
pub(super) fn access_log(settings: &Settings) -> AccessLog {
    let identities = IdentityPolicy { secret: settings.secret, plain: false };
    AccessLog::new(settings.log_paths, move |access| {
        // Over a Unix socket the address may be unknown; all such clients share one hash.
        let client = access.client.as_deref().unwrap_or_default();
        ServerEvent::RequestServed { access, client: &identities.hash_value("ip", client) }.log();
    })
}
