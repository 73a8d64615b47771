//! Three regions without other faults, whose demand moves.

use tidegate_core::policy::Algorithm;

use super::network::RegionNetwork;
use super::plan::RegionPlan;
use super::terms::{BorrowTerms, RegionTerms};
use crate::fault::{Fault, FaultKind};
use crate::link::LostMessages;
use crate::random::Random;
use crate::rule_spec::{LeaseSpec, RuleSpec};
use crate::scenario::{HOT_CLIENT, LOCAL_TIMING, RECOVERY, RequestStream, Scenario};

/// The demand of three regions, twice the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionDemand {
    /// All of it is in one region, the next one after this many seconds.
    Moving {
        /// How long it stays.
        seconds: u64,
    },
    /// It is spread over all regions, which do not reach each other.
    CutOff,
}

const REGIONS: usize = 3;
const NODES: usize = 6;

impl Scenario {
    /// Two nodes in each of three regions, with shares of 50, 30 and 20 % of 1000/s with a burst of
    /// 2000, and round trips of 150 ms.
    pub(crate) fn moving(demand: RegionDemand, span: u64) -> Self {
        let borrow = BorrowTerms { ttl_ms: 500, every_ms: 100, keep: 50 };
        let terms = RegionTerms { shares: [50, 30, 20, 0, 0], tolerance: 0, borrow: Some(borrow) };
        let rule = RuleSpec {
            id: "main",
            algorithm: Algorithm::TokenBucket,
            requests: 1_000,
            window_ms: 1_000,
            burst: 2_000,
            is_global: true,
            is_shadow: false,
            is_local: false,
            lease: Some(LeaseSpec { ttl_ms: 100, is_plus_ttl: false }),
            flush_ms: None,
            regions: Some(terms),
        };
        let (busiest_for, busiest_percent) = match demand {
            RegionDemand::Moving { seconds } => (seconds * 1_000_000, 100),
            RegionDemand::CutOff => (1_000_000, 0),
        };
        let stream =
            RequestStream { client: HOT_CLIENT, gap: 500, max_cost: 1, all_rules_percent: 100 };
        let network = RegionNetwork::even(REGIONS, 150_000, 1_000 * borrow.ttl_ms / 2);
        Self {
            nodes: NODES,
            rules: vec![rule],
            edits: Vec::new(),
            timing: LOCAL_TIMING,
            store_ppm: vec![100, 0, -100],
            streams: vec![stream],
            faults: if demand == RegionDemand::CutOff { cut_off(&network) } else { Vec::new() },
            faults_end: span,
            recovery: RECOVERY,
            measured: 0,
            refund_percent: 0,
            busiest_for,
            regions: Some(RegionPlan {
                network,
                clock_offsets: vec![0, 700_000, -1_300_000],
                edit_delays: vec![0; REGIONS],
                other_secret: None,
                busiest_percent,
                last_region: 0,
            }),
            random: Random::new(3),
        }
    }
}

/// All messages between regions vanish, once nodes know from which regions they may borrow.
fn cut_off(network: &RegionNetwork) -> Vec<Fault> {
    let links = (0..NODES).flat_map(|node| (0..REGIONS).map(move |store| (node, store)));
    let between = links.filter(|(node, store)| network.region_of(*node) != *store);
    let lost = LostMessages::All;
    let lose = |(node, store)| Fault {
        at: 1_000_000,
        kind: FaultKind::LoseMessages { node, store, lost },
    };
    between.map(lose).collect()
}
