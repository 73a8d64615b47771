//! One node: the real limiter, with the tasks that the server runs for it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::decision::AnsweredBy;
use tidegate_core::key::{Fingerprint, Secret};
use tidegate_core::time::{Clock as _, Micros};
use tidegate_limiter::{AsyncStats, Decision, LeaseClock, Limiter, SeededBug};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Facts, RuleSet};

use crate::clock::MachineClock;
use crate::executor::Spawner;
use crate::link::NodeLink;
use crate::regions::{region_name, share_again};
use crate::rule_spec::{CompileTarget, RuleSpec, compile_rules};
use crate::sim_store::{SimStore, store_of};
use crate::world::World;

type NodeLimiter = Limiter<SimStore, MemoryStore<MachineClock>>;

/// A node.
#[derive(Clone)]
pub(crate) struct Node {
    /// Its number, which no other node ever has.
    pub(crate) id: usize,
    pub(crate) limiter: Arc<NodeLimiter>,
    target: CompileTarget,
    /// The store that it asks to decide requests.
    pub(crate) store: SimStore,
    /// Its connections to all stores.
    pub(crate) links: Arc<[NodeLink]>,
    bug: Option<SeededBug>,
    world: World,
    spawner: Spawner,
    reports: Reports,
}

/// What nodes report to the checks. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<Mutex<Vec<Report>>>);

/// What a node did.
#[derive(Debug)]
pub(crate) enum Report {
    /// It decided a request that it received at this instant.
    Decided {
        node: usize,
        request: Request,
        received_at: u64,
        admitted: bool,
        by: AnsweredBy,
        charges: Vec<Charged>,
    },
    /// It begins to refund a request.
    Refunds { request: u64 },
    /// It uses new rules.
    Installed { node: usize, version: usize },
}

/// A charge of an admitted request.
#[derive(Clone, Debug)]
pub(crate) struct Charged {
    pub(crate) rule: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cost: u64,
    pub(crate) counted_by: AnsweredBy,
    /// The store that counts it.
    pub(crate) store: usize,
    pub(crate) charged_at: u64,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) client: &'static str,
    pub(crate) is_for_all_rules: bool,
    pub(crate) cost: u32,
    /// After how long it is refunded, if it is.
    pub(crate) refund_after: Option<u64>,
}

/// How often the server sweeps leases, and settles.
pub(crate) const SWEEP_EVERY: u64 = 10_000;
const SETTLE_EVERY: u64 = 100_000;

/// How often the server looks whether rules borrow by now.
const IDLE_BORROW_EVERY: u64 = 100_000;

impl Reports {
    pub(crate) fn push(&self, report: Report) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(report);
    }

    pub(crate) fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a new node needs.
pub(crate) struct NodeParts {
    pub(crate) id: usize,
    pub(crate) links: Vec<NodeLink>,
    /// What its rules are compiled for.
    pub(crate) target: CompileTarget,
    /// The wall clock.
    pub(crate) clock: MachineClock,
    pub(crate) lease_clock: MachineClock,
    pub(crate) rules: RuleSet,
    pub(crate) bug: Option<SeededBug>,
}

impl Node {
    /// Starts a node with its tasks.
    pub(crate) fn start(
        NodeParts { id, links, target, clock, lease_clock, rules, bug }: NodeParts,
        world: &World,
        spawner: &Spawner,
        reports: &Reports,
    ) -> Self {
        let store = SimStore::new(match target.region {
            Some(region) => vec![links[region].clone()],
            None => links.clone(),
        });
        // A region is the store at the same position.
        let lenders = if target.region.is_some() { links.len() } else { 0 };
        let local = MemoryStore::with_shards(clock, 1 << 20, 2);
        let lease_clock = LeaseClock::new(move || lease_clock.now());
        let limiter = Limiter::new(store.clone(), rules).with_local(local);
        let limiter = limiter.with_leases(lease_clock, 1 << 20);
        let limiter = limiter.with_lenders((0..links.len()).map(region_name).take(lenders));
        let limiter = Arc::new(match bug {
            Some(bug) => limiter.with_seeded_bug(bug),
            None => limiter,
        });
        let (world, spawner, reports) = (world.clone(), spawner.clone(), reports.clone());
        let node =
            Self { id, target, limiter, store, links: links.into(), bug, world, spawner, reports };
        node.run_lease_tasks();
        node.run_borrowing();
        node.run_sweeps();
        node.run_settlement();
        node
    }

    /// Decides a request, and refunds it later if it says so.
    pub(crate) fn handle(&self, request: Request) {
        let (node, limiter) = (self.id, Arc::clone(&self.limiter));
        let (world, reports) = (self.world.clone(), self.reports.clone());
        let (region, stores) = (self.target.region, self.links.len());
        self.spawner.spawn(node, async move {
            let received_at = world.now();
            let mut facts = Facts::new();
            facts.push("user_id", request.client);
            facts.push("tier", if request.is_for_all_rules { "all" } else { "main" });
            let decision = limiter.decide(&facts, request.cost).await;
            let (admitted, by) = (decision.is_allowed(), decision.answered_by());
            let charges = charges_of(&decision, region, stores);
            let decided = Report::Decided { node, request, received_at, admitted, by, charges };
            reports.push(decided);
            if let Some(after) = request.refund_after.filter(|_| admitted) {
                world.sleep(after).await;
                reports.push(Report::Refunds { request: request.number });
                limiter.refund_decision(decision).await;
            }
        });
    }

    /// Installs rules after a while, and tries again until it succeeds.
    pub(crate) fn install(&self, after: u64, version: usize, rules: Vec<RuleSpec>) {
        let (node, limiter) = (self.id, Arc::clone(&self.limiter));
        let (world, reports, target) = (self.world.clone(), self.reports.clone(), self.target);
        let rules = match (self.bug, target.region) {
            (Some(SeededBug::ShareAppliedTwice), Some(region)) => share_again(rules, region),
            _ => rules,
        };
        self.spawner.spawn(node, async move {
            world.sleep(after).await;
            while let Ok(set) = compile_rules(&rules, target) {
                if limiter.install(set).await.is_ok() {
                    reports.push(Report::Installed { node, version });
                    return;
                }
                world.sleep(50_000).await;
            }
        });
    }

    /// The nodes that this one believes to live.
    pub(crate) fn set_node_count(&self, nodes: u32) {
        self.store.nodes.store(nodes.max(1), Relaxed);
    }

    /// How many nodes this one believes to live.
    pub(crate) fn node_count(&self) -> u32 {
        self.store.nodes.load(Relaxed)
    }

    /// What asynchronous counters this node has admitted, flushed and still open.
    pub(crate) fn async_stats(&self) -> AsyncStats {
        self.limiter.async_stats().unwrap_or_default()
    }

    /// Units of asynchronous counters that it has sent to stores.
    pub(crate) fn flushed_units(&self) -> u64 {
        self.links.iter().map(|link| link.log().flushed).sum()
    }

    /// The store of its region; the first one if there are no regions.
    pub(crate) fn home(&self) -> usize {
        self.target.region.unwrap_or(0)
    }

    /// The secret with which it hashes keys.
    pub(crate) const fn secret(&self) -> Secret {
        self.target.secret
    }

    /// How often it called the store of another region.
    pub(crate) fn cross_region_calls(&self) -> u64 {
        self.store_calls() - self.links[self.home()].calls()
    }

    /// How often it called a store.
    pub(crate) fn store_calls(&self) -> u64 {
        self.links.iter().map(NodeLink::calls).sum()
    }

    fn run_lease_tasks(&self) {
        let (node, limiter, spawner) = (self.id, Arc::clone(&self.limiter), self.spawner.clone());
        self.spawner.spawn(node, async move {
            loop {
                let task = limiter.next_lease_task().await;
                let limiter = Arc::clone(&limiter);
                spawner.spawn(node, async move {
                    limiter.run_lease_task(task).await;
                });
            }
        });
    }

    /// Takes batches to each other region, and runs them.
    fn run_borrowing(&self) {
        let Some(home) = self.target.region else { return };
        for lender in (0..self.links.len()).filter(|lender| *lender != home) {
            let store = SimStore::new(vec![self.links[lender].clone()]);
            let (node, limiter, world) = (self.id, Arc::clone(&self.limiter), self.world.clone());
            let spawner = self.spawner.clone();
            self.spawner.spawn(node, async move {
                loop {
                    let interval = limiter.borrow_interval().map_or(IDLE_BORROW_EVERY, Micros::get);
                    world.sleep(interval).await;
                    while let Some(batch) = limiter.pop_borrow_batch(region_name(lender)) {
                        let (limiter, store) = (Arc::clone(&limiter), store.clone());
                        spawner.spawn(node, async move {
                            let mut next = Some(batch);
                            while let Some(batch) = next {
                                limiter.run_borrow_batch(batch, &store).await;
                                next = limiter.pop_full_borrow_batch(region_name(lender));
                            }
                        });
                    }
                }
            });
        }
    }

    fn run_sweeps(&self) {
        let (limiter, world) = (Arc::clone(&self.limiter), self.world.clone());
        self.spawner.spawn(self.id, async move {
            loop {
                world.sleep(SWEEP_EVERY).await;
                limiter.sweep_leases();
            }
        });
    }

    fn run_settlement(&self) {
        let (limiter, world) = (Arc::clone(&self.limiter), self.world.clone());
        self.spawner.spawn(self.id, async move {
            loop {
                world.sleep(SETTLE_EVERY).await;
                while limiter.has_unsettled() && limiter.settle().await > 0 {}
            }
        });
    }
}

/// What an admitted request was charged, by a node in this region, if there are regions.
fn charges_of(decision: &Decision, region: Option<usize>, stores: usize) -> Vec<Charged> {
    let rules = decision.rules();
    let charged = decision.charge_origins().map(|origin| Charged {
        rule: rules[origin.rule].id().to_owned(),
        fingerprint: origin.fingerprint,
        cost: origin.cost,
        counted_by: origin.counted_by,
        store: match origin.lender.or(region) {
            Some(store) => store,
            None => store_of(origin.fingerprint, stores),
        },
        charged_at: origin.charged_at.as_micros(),
    });
    charged.collect()
}
