//! Stores of three regions, the links between them, and nodes that borrow over these links.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::ops::Sub;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_redis::{RedisAddress, Stats};
use tidegate_server::config::RegionStoreSettings;
use tidegate_server::regions::{RegionLinks, start_borrowing};
use tidegate_testkit::process::eventually;
use tidegate_testkit::proxy::{DelayScope, FaultProxy};
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::Runtime;

use super::{REGIONS, RegionMode};
use crate::fleet::node::{FleetNode, NodeLimiter, node_options};
use crate::rules::compile_in;

/// From one region to another.
pub const ONE_WAY: Duration = Duration::from_millis(75);

/// A store in each region, and a delayed link to each for the nodes of the others.
#[derive(Debug)]
pub struct LinkedStores {
    stores: Vec<RedisServer>,
    links: Vec<FaultProxy>,
}

impl LinkedStores {
    /// Starts the stores and links.
    #[must_use]
    pub fn start() -> Self {
        let stores: Vec<RedisServer> = REGIONS.iter().map(|_| RedisServer::start()).collect();
        let link = |store: &RedisServer| {
            let link = FaultProxy::start(store.address());
            link.delay(ONE_WAY, DelayScope::Both);
            link
        };
        let links = stores.iter().map(link).collect();
        Self { stores, links }
    }

    /// The stores of all regions but one.
    fn others(&self, region: usize, prefix: &str) -> Vec<RegionStoreSettings> {
        let others = (0..REGIONS.len()).filter(|other| *other != region);
        let settings = |other: usize| {
            let url = format!("redis://{}", self.links[other].address());
            let address = RedisAddress::parse(&url).expect("parse the Redis URL");
            RegionStoreSettings::new(REGIONS[other], address, prefix)
        };
        others.map(settings).collect()
    }
}

/// A node of a region, and its links if it borrows.
pub struct RegionNode {
    /// The node.
    pub node: FleetNode,
    links: Option<Arc<RegionLinks>>,
}

/// What a node has sent to the stores of other regions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExchangeTotals {
    /// Calls; each has one round trip.
    pub calls: u64,
    /// Questions and returns, each for one counter; a call has several.
    pub requests: u64,
}

/// The nodes of each region under one rule.
pub struct RegionNodes(Vec<Vec<RegionNode>>);

impl RegionNodes {
    /// Starts nodes under `name`, as many as `counts` says for each region, and waits until they
    /// can borrow.
    #[must_use]
    pub fn start(
        runtime: &Runtime,
        stores: &LinkedStores,
        name: &str,
        mode: RegionMode,
        rules: &str,
        counts: [u32; 3],
    ) -> Self {
        let prefix = format!("{name}-{mode:?}:");
        let in_runtime = runtime.enter();
        let start = |region: usize| RegionNode::start(stores, region, &prefix, mode, rules);
        let regions = counts.iter().enumerate();
        let nodes: Vec<Vec<RegionNode>> =
            regions.map(|(region, count)| (0..*count).map(|_| start(region)).collect()).collect();
        drop(in_runtime);
        for (nodes, count) in nodes.iter().zip(counts) {
            nodes.iter().for_each(|node| node.node.await_counted(runtime, count));
        }
        let all_usable = || {
            let mut links = nodes.iter().flatten().filter_map(|node| node.links.as_ref());
            links.all(|links| links.are_usable())
        };
        eventually("every node can borrow", all_usable);
        Self(nodes)
    }

    /// The limiters of a region.
    pub fn limiters(&self, region: usize) -> impl Iterator<Item = &Arc<NodeLimiter>> {
        self.0[region].iter().map(|node| &node.node.limiter)
    }

    /// The questions of a region's nodes to other regions, and how many were not answered.
    #[must_use]
    pub fn questions(&self, region: usize) -> [u64; 2] {
        let stats = self.limiters(region).filter_map(|limiter| limiter.borrow_stats());
        let lenders = stats.flat_map(|stats| stats.lenders);
        lenders.fold([0, 0], |[asked, unanswered], lender| {
            [asked + lender.questions, unanswered + lender.unanswered]
        })
    }

    /// The sum over all nodes and links.
    #[must_use]
    pub fn exchange_totals(&self) -> ExchangeTotals {
        let links = self.0.iter().flatten().filter_map(|node| node.links.as_ref());
        let stats = links.flat_map(|links| links.store_stats());
        stats.fold(ExchangeTotals::default(), |totals, stats| totals.plus(&stats))
    }
}

impl RegionNode {
    /// Must be called inside a tokio runtime.
    fn start(
        stores: &LinkedStores,
        region: usize,
        prefix: &str,
        mode: RegionMode,
        rules: &str,
    ) -> Self {
        let others = match mode {
            RegionMode::Borrowing => stores.others(region, prefix),
            _ => Vec::new(),
        };
        let lenders: Vec<&str> = others.iter().map(|store| store.region.as_str()).collect();
        let name = REGIONS[region];
        let rules = compile_in((mode != RegionMode::OneRegion).then_some(name), rules);
        let options = node_options(&stores.stores[region], prefix);
        let mut node = FleetNode::start(&options, rules, &lenders);
        let borrow = || {
            let FleetNode { limiter, tasks } = &mut node;
            start_borrowing(limiter, name, Secret::UNSET, &others, tasks)
        };
        let links = (mode == RegionMode::Borrowing).then(borrow);
        Self { node, links }
    }
}

impl ExchangeTotals {
    fn plus(self, stats: &Stats) -> Self {
        Self {
            calls: self.calls + stats.batch.counts.iter().sum::<u64>(),
            requests: self.requests + stats.batch.sum,
        }
    }
}

impl Sub for ExchangeTotals {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, requests: self.requests - before.requests }
    }
}
