//! Counters in Redis or Valkey: looked at when we start, watched, and told what local shares admitted.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::Store as _;
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_memory::Usage;
use tidegate_redis::{BreakerState, Observer, Options, RedisStore, Stats, Weight};
use tokio::task::JoinSet;

use super::{Embedded, Tended};
use crate::config::{RedisSettings, Settings, StoreSettings};
use crate::failure::Failure;
use crate::sweep;
use crate::telemetry::Event;

/// Counters that other nodes share.
pub(crate) type Shared = RedisStore;

/// How long the doors wait for the store before they open all the same.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked whether the store is there.
const WATCH: Duration = Duration::from_millis(100);

/// How often the nodes that share the store are counted.
const COUNT_NODES: Duration = Duration::from_secs(1);

/// How often what is owed to the store is written to it.
const SETTLE: Duration = Duration::from_millis(100);

/// How long the last of it may take when we stop.
const LAST_SETTLE: Duration = Duration::from_secs(2);

/// The store's own settings.
pub(crate) fn options(settings: &RedisSettings) -> Options {
    Options {
        tls: settings.tls.clone(),
        prefix: settings.prefix.clone(),
        deadline: settings.deadline,
        observer: Observer::new(|event| match event {
            tidegate_redis::Event::Lost { server, why } => Event::StoreLost { server, why }.tell(),
            tidegate_redis::Event::Back { server } => Event::StoreBack { server }.tell(),
        }),
        ..Options::at(settings.address.clone())
    }
}

impl Tended for Shared {
    type Local = Embedded;

    fn usage(limiter: &Limiter<Self, Embedded>) -> Option<Usage> {
        limiter.local().map(Embedded::usage)
    }

    fn stats(limiter: &Limiter<Self, Embedded>) -> Option<Stats> {
        Some(limiter.store().stats())
    }

    async fn prepare(limiter: &Arc<Limiter<Self, Embedded>>, _: &Settings) {
        limiter.store().ready(PATIENCE).await;
    }

    fn keep(
        limiter: &Arc<Limiter<Self, Embedded>>,
        settings: &Settings,
        status: &Arc<Status>,
        keepers: &mut JoinSet<()>,
    ) {
        let swept = Arc::clone(limiter);
        keepers.spawn(sweep::run(move || swept.local().map_or(1, Embedded::sweep)));
        keepers.spawn(watch(Arc::clone(limiter), Arc::clone(status)));
        keepers.spawn(settle(Arc::clone(limiter)));
        // Nodes with a rules database are known by name, and reported from there.
        if settings.admin.rules_db.is_none() {
            keepers.spawn(count_nodes(Arc::clone(limiter)));
        }
        if let StoreSettings::Redis(settings) = &settings.store {
            keepers.spawn(examine(Arc::clone(limiter), options(settings)));
        }
    }

    async fn close(limiter: &Arc<Limiter<Self, Embedded>>, _: &Settings) -> Result<(), Failure> {
        let settled = async {
            while limiter.owes() && is_asked(limiter.store()) {
                if limiter.settle().await == 0 {
                    tokio::time::sleep(SETTLE).await;
                }
            }
            limiter.store().leave().await;
        };
        // A store that is gone gets no write; what it never learns is at most one share.
        _ = tokio::time::timeout(LAST_SETTLE, settled).await;
        Ok(())
    }
}

/// Says in `/readyz` whether the store is there.
async fn watch(limiter: Arc<Limiter<Shared, Embedded>>, status: Arc<Status>) {
    let mut told = None;
    loop {
        let lost = limiter.store().lost();
        if lost != told {
            match &lost {
                Some(why) => status.store_lost(why.clone()),
                None => status.store_back(),
            }
            told = lost;
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// Reports how many nodes share the store, when that changes.
async fn count_nodes(limiter: Arc<Limiter<Shared, Embedded>>) {
    let mut before = 1;
    loop {
        let nodes = limiter.store().nodes();
        if nodes != before {
            Event::NodesCounted { nodes, before }.tell();
            before = nodes;
        }
        tokio::time::sleep(COUNT_NODES).await;
    }
}

/// Whether any server of the store is asked, be it by a part of the requests.
fn is_asked(store: &Shared) -> bool {
    store.stats().servers.iter().any(|(_, breaker)| *breaker != BreakerState::Open)
}

/// Keeps the local shares of as many nodes as there are, and writes to the store what they admitted
/// while it was gone.
async fn settle(limiter: Arc<Limiter<Shared, Embedded>>) {
    loop {
        tokio::time::sleep(SETTLE).await;
        limiter.follow_nodes().await;
        while limiter.owes() && limiter.settle().await > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Looks once, when the store is there, whether something about it is dangerous, and says so.
async fn examine(limiter: Arc<Limiter<Shared, Embedded>>, options: Options) {
    while !limiter.store().ready(Duration::from_secs(60)).await {}
    for finding in tidegate_redis::examine(&options).await.findings {
        if finding.weight < Weight::Note {
            Event::StoreAdvice { finding: &finding }.tell();
        }
    }
}
