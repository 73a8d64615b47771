//! Counters in Redis or Valkey: checked at startup, monitored, and charged for what local shares
//! admitted while the store was down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate::node;
pub use tidegate::node::shared_limiter;
use tidegate_core::store::Store as _;
use tidegate_limiter::Limiter;
use tidegate_memory::StoreUsage;
use tidegate_redis::{FindingSeverity, RedisOptions, RedisStore, Stats, StoreObserver};
use tidegate_web::ProcessStatus;
use tokio::task::JoinSet;

use super::{EmbeddedStore, ManagedStore};
use crate::config::{RedisSettings, Settings, StoreSettings};
use crate::error::CommandError;
use crate::regions::{self, RegionLinks};
use crate::store_calls::StoreCallMetrics;
use crate::telemetry::ServerEvent;

/// Counters shared with other nodes.
pub type SharedStore = RedisStore;

/// How long startup waits for the store before the listeners open anyway.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the store's availability is checked.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// How often to count the nodes that share the store.
const COUNT_NODES_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for the last write-back on shutdown.
const FINAL_SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of the Redis client.
pub fn options(settings: &RedisSettings) -> RedisOptions {
    RedisOptions {
        tls: settings.tls.clone(),
        prefix: settings.prefix.clone(),
        deadline: settings.deadline,
        observer: StoreObserver::new(|event| match event {
            tidegate_redis::StoreEvent::Lost { server, why } => {
                ServerEvent::StoreUnreachable { server, why }.log();
            }
            tidegate_redis::StoreEvent::Recovered { server } => {
                ServerEvent::StoreRecovered { server }.log();
            }
        }),
        ..RedisOptions::new(settings.address.clone())
    }
}

/// Starts the background tasks that such a limiter needs to decide correctly.
pub fn spawn_limiter_tasks(
    limiter: &Arc<Limiter<SharedStore, EmbeddedStore>>,
    calls: &Arc<StoreCallMetrics>,
    tasks: &mut JoinSet<()>,
) {
    let calls = Arc::clone(calls);
    node::spawn_tasks(limiter, move |report, took| calls.record(report, took), tasks);
}

impl ManagedStore for SharedStore {
    type Local = EmbeddedStore;

    fn usage(limiter: &Limiter<Self, EmbeddedStore>) -> Option<StoreUsage> {
        limiter.local().map(EmbeddedStore::usage)
    }

    fn stats(limiter: &Limiter<Self, EmbeddedStore>) -> Option<Stats> {
        Some(limiter.store().stats())
    }

    async fn prepare(limiter: &Arc<Limiter<Self, EmbeddedStore>>, _: &Settings) {
        limiter.store().wait_ready(STARTUP_TIMEOUT).await;
    }

    fn spawn_tasks(
        limiter: &Arc<Limiter<Self, EmbeddedStore>>,
        settings: &Settings,
        status: &Arc<ProcessStatus>,
        calls: &Arc<StoreCallMetrics>,
        regions: &Arc<RegionLinks>,
        tasks: &mut JoinSet<()>,
    ) {
        spawn_limiter_tasks(limiter, calls, tasks);
        regions::spawn_tasks(limiter, regions, tasks);
        tasks.spawn(report_availability(Arc::clone(limiter), Arc::clone(status)));
        tasks.spawn(report_indivisible_rules(Arc::clone(limiter), Arc::clone(status)));
        // With a rules database, nodes are known by name and reported from there.
        if settings.admin.rules_db.is_none() {
            tasks.spawn(count_nodes(Arc::clone(limiter)));
        }
        if let StoreSettings::Redis(settings) = &settings.store {
            tasks.spawn(report_findings(Arc::clone(limiter), options(settings)));
        }
    }

    async fn close(
        limiter: &Arc<Limiter<Self, EmbeddedStore>>,
        _: &Settings,
        regions: &RegionLinks,
    ) -> Result<(), CommandError> {
        let settled = async {
            node::leave_fleet(limiter).await;
            regions::return_borrowed(limiter, regions).await;
        };
        // If the store is down, nothing is written back. It then misses at most one local share,
        // and units that were not spent stay charged.
        _ = tokio::time::timeout(FINAL_SETTLE_TIMEOUT, settled).await;
        Ok(())
    }
}

/// Reports the store's availability in `/readyz`.
async fn report_availability(
    limiter: Arc<Limiter<SharedStore, EmbeddedStore>>,
    status: Arc<ProcessStatus>,
) {
    let mut reported = None;
    loop {
        let error = limiter.store().unavailable_reason();
        if error != reported {
            match &error {
                Some(why) => status.set_store_error(why.clone()),
                None => status.clear_store_error(),
            }
            reported = error;
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Logs a change of the number of nodes that share the store.
async fn count_nodes(limiter: Arc<Limiter<SharedStore, EmbeddedStore>>) {
    let mut before = 1;
    loop {
        let nodes = limiter.store().node_count();
        if nodes != before {
            ServerEvent::NodesCounted { nodes, before }.log();
            before = nodes;
        }
        tokio::time::sleep(COUNT_NODES_INTERVAL).await;
    }
}

/// Reports asynchronous rules that the store decides because of the number of nodes: in `/readyz`,
/// and each once in the log.
async fn report_indivisible_rules(
    limiter: Arc<Limiter<SharedStore, EmbeddedStore>>,
    status: Arc<ProcessStatus>,
) {
    let mut logged = BTreeSet::new();
    loop {
        tokio::time::sleep(COUNT_NODES_INTERVAL).await;
        let found = limiter.indivisible_rules();
        for indivisible in found.iter().filter(|it| logged.insert(it.rule.clone())) {
            ServerEvent::RuleIndivisible { why: indivisible }.log();
        }
        let warnings: Vec<String> = found.iter().map(ToString::to_string).collect();
        status.set_sharing_warning((!warnings.is_empty()).then(|| warnings.join("; ")));
    }
}

/// Diagnoses the store once it is reachable, and logs dangerous findings.
async fn report_findings(limiter: Arc<Limiter<SharedStore, EmbeddedStore>>, options: RedisOptions) {
    while !limiter.store().wait_ready(Duration::from_secs(60)).await {}
    for finding in tidegate_redis::diagnose(&options).await.findings {
        if finding.severity < FindingSeverity::Note {
            ServerEvent::StoreFinding { finding: &finding }.log();
        }
    }
}
