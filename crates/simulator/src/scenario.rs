//! What happens in a run, drawn from its seed: the fleet, its rules, the demand, and the faults.

use std::collections::BTreeSet;

use tidegate_core::policy::{Algorithm, LeakMode};

use crate::bound::MAX_NODES;
use crate::clock::MAX_DRIFT_PPM;
use crate::fault::{Fault, FaultKind, FaultTargets, LONGEST_FAULT, draw_faults};
use crate::link::LinkTiming;
use crate::random::Random;
use crate::regions::RegionPlan;
use crate::rule_spec::{LeaseSpec, RuleSpec, with_room};

/// After the last fault the fleet of one region may take this long to reach full use.
pub(crate) const RECOVERY: u64 = 2_000_000;

/// The client with most of the demand.
pub(crate) const HOT_CLIENT: &str = "hot";

/// A store in the next rack.
pub(crate) const LOCAL_TIMING: LinkTiming = LinkTiming {
    deadline: 5_000,
    usual_delay: 100,
    tail: 8,
    reorders: false,
    repeated_percent: 0,
    repeats_until: 0,
};

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) nodes: usize,
    pub(crate) rules: Vec<RuleSpec>,
    /// The rules of each later version.
    pub(crate) edits: Vec<Vec<RuleSpec>>,
    pub(crate) timing: LinkTiming,
    /// How fast the clock of each store is.
    pub(crate) store_ppm: Vec<i64>,
    pub(crate) streams: Vec<RequestStream>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) faults_end: u64,
    /// After the last fault the fleet may take this long to reach full use.
    pub(crate) recovery: u64,
    /// How long full use is measured after that; 0 if it is not.
    pub(crate) measured: u64,
    pub(crate) refund_percent: u64,
    /// How often the busiest node changes.
    pub(crate) busiest_for: u64,
    /// The regions, if there are several.
    pub(crate) regions: Option<RegionPlan>,
    pub(crate) random: Random,
}

/// Requests of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestStream {
    pub(crate) client: &'static str,
    /// The mean time between requests.
    pub(crate) gap: u64,
    /// The largest cost.
    pub(crate) max_cost: u64,
    /// How many of 100 requests all rules govern; the others only the first rule.
    pub(crate) all_rules_percent: u64,
}

impl Scenario {
    /// Eight nodes without faults, one of which has eight times the demand of each other one; which
    /// one changes every second. The demand is this much of a limit of 1000/s with a burst of 2000.
    pub(crate) fn skewed(percent_of_limit: u64, span: u64) -> Self {
        let lease = LeaseSpec { ttl_ms: 100, is_plus_ttl: false };
        let rule = RuleSpec {
            id: "main",
            algorithm: Algorithm::TokenBucket,
            requests: 1_000,
            window_ms: 1_000,
            burst: 2_000,
            is_global: true,
            is_shadow: false,
            is_local: false,
            lease: Some(lease),
            flush_ms: None,
            regions: None,
        };
        let gap = 100_000 / percent_of_limit;
        Self {
            nodes: 8,
            rules: vec![rule],
            edits: Vec::new(),
            timing: LOCAL_TIMING,
            store_ppm: vec![100],
            streams: vec![RequestStream {
                client: HOT_CLIENT,
                gap,
                max_cost: 1,
                all_rules_percent: 100,
            }],
            faults: Vec::new(),
            faults_end: span,
            recovery: RECOVERY,
            measured: 0,
            refund_percent: 0,
            busiest_for: 1_000_000,
            regions: None,
            random: Random::new(8),
        }
    }

    /// Draws a run. One seed in four has several regions.
    pub(crate) fn draw(seed: u64) -> Self {
        match seed % 4 {
            3 => Self::draw_regions(seed),
            _ => Self::draw_cluster(seed),
        }
    }

    /// Draws a run with 1 to 3 stores that share the counters.
    fn draw_cluster(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let nodes = usize::try_from(random.between(1, MAX_NODES)).unwrap_or(1);
        let stores = random.pick(&[1, 1, 1, 1, 2, 3]);
        let is_local = random.percent(15);
        let rules = draw_rules(&mut random, is_local);
        let main = rules[0];
        let faults_end = 1_000_000 * random.between(1, 2) + 500_000;
        let edits = draw_edits(&mut random, &rules, is_local);
        let clock_steps = stores == 1 || edits.is_empty();
        let targets = FaultTargets { nodes, stores, kills: !is_local, clock_steps };
        let mut faults = draw_faults(&mut random, &rules, targets, faults_end);
        if !edits.is_empty() {
            let at = random.between(100_000, faults_end / 2);
            faults.push(Fault { at, kind: FaultKind::Edit(0) });
        }
        // What an asynchronous bucket counts in debt may also take long to drain.
        let is_slow = main.is_async() && main.algorithm.is_bucket() && main.burst > main.rate();
        let measured = if random.percent(30) { measured_span(&main, latest_use(&main)) } else { 0 };
        // After an edit that lowers a limit, what was used before may take long to drain.
        let is_lowered = edits.iter().any(|edit| edit[0].requests != main.requests);
        let is_other = edits.iter().any(|edit| !edit[0].is_decided_like(&main));
        let measured = if is_lowered || is_slow || is_other { 0 } else { measured };
        Self {
            nodes,
            edits,
            timing: draw_timing(&mut random, &main, measured > 0, faults_end),
            store_ppm: (0..stores).map(|_| random.signed(MAX_DRIFT_PPM)).collect(),
            streams: draw_streams(&mut random, &main),
            faults,
            faults_end,
            recovery: RECOVERY,
            measured,
            refund_percent: random.pick(&[0, 0, 3, 15]),
            busiest_for: random.pick(&[100_000, 300_000, 1_000_000]),
            regions: None,
            rules,
            random,
        }
    }

    /// The rules, in all versions, of which one version is like this.
    pub(crate) fn rule_ids(&self, is_like: impl Fn(&RuleSpec) -> bool) -> Vec<&'static str> {
        let versions = std::iter::once(&self.rules).chain(&self.edits);
        let ids: BTreeSet<_> =
            versions.flatten().filter(|rule| is_like(rule)).map(|rule| rule.id).collect();
        ids.into_iter().collect()
    }

    /// How long other rules usually hold up a request that an asynchronous rule has admitted.
    pub(crate) fn longest_hold(&self) -> u64 {
        if self.rules.len() > 1 { 4 * self.timing.deadline } else { 0 }
    }

    /// How long after a charge its refund arrives at the latest, if there are any refunds.
    pub(crate) fn longest_refund(&self) -> u64 {
        let by_client = if self.refund_percent > 0 { self.latest_refund() } else { 0 };
        let is_possible = by_client > 0 || self.rules.len() > 1;
        if is_possible { by_client + 4 * self.timing.deadline + LONGEST_FAULT } else { 0 }
    }

    /// How long after its decision a request is refunded at most.
    pub(crate) fn latest_refund(&self) -> u64 {
        3 * self.rules[0].ttl_micros().max(10_000)
    }

    /// When the run ends.
    pub(crate) const fn end(&self) -> u64 {
        match self.measured {
            0 => self.faults_end + 300_000,
            measured => self.faults_end + self.recovery + measured,
        }
    }
}

pub(crate) const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::SlidingWindowCounter,
];

/// How much later than after its window a log or a window counter admits the same again.
fn latest_use(main: &RuleSpec) -> u64 {
    match main.algorithm {
        Algorithm::SlidingWindowLog => main.log_period() - 1_000 * main.window_ms,
        _ => main.node_span(),
    }
}

/// Whole windows, at least two, 2 s and 200 requests: what is held at the start and the end hardly
/// counts. A log forgets this much later what is reported late.
pub(crate) fn measured_span(main: &RuleSpec, late: u64) -> u64 {
    let more = match main.algorithm {
        Algorithm::SlidingWindowLog => late,
        Algorithm::SlidingWindowCounter if main.is_async() => late,
        _ => 0,
    };
    let period = 1_000 * main.window_ms + more;
    let least = match (main.regions, main.algorithm) {
        // The windows of regions begin at different times, and two of each count.
        (Some(_), Algorithm::FixedWindow) => 3 * period,
        // Demand is that of all regions.
        (Some(_), _) => 1_000_000,
        (None, _) => (200_000_000 / main.rate().max(1)).max(2_000_000),
    };
    period * least.div_ceil(period).max(2)
}

pub(crate) fn draw_timing(
    random: &mut Random,
    main: &RuleSpec,
    is_measured: bool,
    faults_end: u64,
) -> LinkTiming {
    let slowest = random.pick(&[5_000, 20_000, 100_000]);
    let usual = random.between(60, slowest / 40 + 60);
    // Full use needs answers that come well before a lease ends.
    let span = if is_measured { main.node_span() / 40 } else { u64::MAX };
    LinkTiming {
        deadline: slowest,
        usual_delay: usual.min(span),
        tail: 8,
        reorders: random.percent(25),
        repeated_percent: random.pick(&[0, 0, 0, 2]),
        repeats_until: faults_end,
    }
}

/// How nodes decide a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DrawnMode {
    Exact,
    Leased,
    Async,
}

fn draw_rules(random: &mut Random, is_local: bool) -> Vec<RuleSpec> {
    let mode = if random.percent(30) { DrawnMode::Async } else { DrawnMode::Leased };
    let main = RuleSpec { is_local, ..draw_rule(random, "main", mode) };
    let mut rules = vec![with_room(main)];
    if random.percent(50) {
        rules.push(RuleSpec { is_local, ..draw_rule(random, "exact", DrawnMode::Exact) });
    }
    if random.percent(25) {
        let is_shadow = random.percent(50);
        let mode = if random.percent(40) { DrawnMode::Async } else { DrawnMode::Leased };
        rules.push(with_room(RuleSpec { is_shadow, ..draw_rule(random, "second", mode) }));
    }
    rules
}

fn draw_rule(random: &mut Random, id: &'static str, mode: DrawnMode) -> RuleSpec {
    let window_ms = random.pick(&[100, 200, 500, 1_000]);
    let rate = random.pick(&[40, 100, 200, 400]);
    let requests = rate * window_ms / 1_000;
    let burst = (requests * random.pick(&[1, 2, 4, 8]) / 2).max(3);
    let ttl_ms = random.pick(&[2, 5, 10, 20, 50, 100]);
    let is_plus_ttl = random.percent(10);
    let flush_ms = ttl_ms.max(10);
    RuleSpec {
        id,
        algorithm: random.pick(&ALGORITHMS),
        requests,
        window_ms,
        burst,
        is_global: id == "second" || random.percent(20),
        is_shadow: false,
        is_local: false,
        lease: (mode == DrawnMode::Leased).then_some(LeaseSpec { ttl_ms, is_plus_ttl }),
        flush_ms: (mode == DrawnMode::Async).then_some(flush_ms),
        regions: None,
    }
}

fn draw_edits(random: &mut Random, rules: &[RuleSpec], is_local: bool) -> Vec<Vec<RuleSpec>> {
    if is_local || !random.percent(30) {
        return Vec::new();
    }
    let mut edited = rules.to_vec();
    let main = &mut edited[0];
    // Not by more than half: a node with old rules caps debt at twice its own burst, and forgets
    // what nodes with a burst of more than that have charged.
    match random.below(5) {
        0 => {
            main.requests += main.requests / 2;
            main.burst += main.burst / 2;
        }
        1 => {
            main.requests = (main.requests * 2 / 3).max(3);
            main.burst = (main.burst * 2 / 3).max(3);
        }
        2 => (main.lease, main.flush_ms) = (None, None),
        3 => {
            let leased = LeaseSpec { ttl_ms: 5, is_plus_ttl: false };
            (main.lease, main.flush_ms) = match main.flush_ms {
                Some(_) => (Some(leased), None),
                None => (None, Some(20)),
            };
        }
        _ => {
            main.lease = main.lease.map(|it| LeaseSpec { ttl_ms: it.ttl_ms * 2, ..it });
            main.flush_ms = main.flush_ms.map(|flush_ms| flush_ms * 2);
        }
    }
    *main = with_room(*main);
    // Back again, or the other way round.
    match random.percent(50) {
        true => vec![edited],
        false => vec![edited, rules.to_vec()],
    }
}

pub(crate) fn draw_streams(random: &mut Random, main: &RuleSpec) -> Vec<RequestStream> {
    let tenths = random.pick(&[5, 9, 12, 20, 40]);
    let max_cost = match random.below(4) {
        0 => (main.limit() / 4).max(1),
        1 => 3,
        _ => 1,
    };
    let mean_cost = max_cost.div_ceil(2);
    let rate = (main.rate() * tenths / 10 / mean_cost).max(1);
    let all_rules_percent = random.pick(&[20, 80, 100]);
    let hot =
        RequestStream { client: HOT_CLIENT, gap: 1_000_000 / rate, max_cost, all_rules_percent };
    let cold = |client| RequestStream { client, gap: 150_000, max_cost: 1, all_rules_percent };
    vec![hot, cold("cold-1"), cold("cold-2")]
}
