//! What happens in a run, drawn from its seed: the fleet, its rules, the demand, and the faults.

use tidegate_core::policy::{Algorithm, LeakMode};

use crate::bound::MAX_NODES;
use crate::clock::MAX_DRIFT_PPM;
use crate::fault::{Fault, FaultKind, draw_faults};
use crate::random::Random;
use crate::rule_spec::{LeaseSpec, RuleSpec, with_room};
use crate::sim_store::LinkTiming;

/// After the last fault the fleet may take this long to reach full use.
pub(crate) const RECOVERY: u64 = 2_000_000;

/// The client with most of the demand.
pub(crate) const HOT_CLIENT: &str = "hot";

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) nodes: usize,
    pub(crate) rules: Vec<RuleSpec>,
    /// The rules of each later version.
    pub(crate) edits: Vec<Vec<RuleSpec>>,
    pub(crate) timing: LinkTiming,
    pub(crate) store_ppm: i64,
    pub(crate) streams: Vec<RequestStream>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) faults_end: u64,
    /// How long full use is measured, from [`RECOVERY`] after the last fault; 0 if it is not.
    pub(crate) measured: u64,
    pub(crate) refund_percent: u64,
    /// How often the busiest node changes.
    pub(crate) busiest_for: u64,
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
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let nodes = usize::try_from(random.between(1, MAX_NODES)).unwrap_or(1);
        let is_local = random.percent(15);
        let rules = draw_rules(&mut random, is_local);
        let main = rules[0];
        let faults_end = 1_000_000 * random.between(1, 2) + 500_000;
        let edits = draw_edits(&mut random, &rules, is_local);
        let mut faults = draw_faults(&mut random, &rules, nodes, faults_end, is_local);
        if !edits.is_empty() {
            let at = random.between(100_000, faults_end / 2);
            faults.push(Fault { at, kind: FaultKind::Edit(0) });
        }
        // A window's worth of demand at least, in whole windows.
        let period = 1_000 * main.window_ms
            + if main.algorithm == Algorithm::SlidingWindowLog { main.ttl_micros() } else { 0 };
        let measured = if random.percent(30) { period * 1_000_000_u64.div_ceil(period) } else { 0 };
        // After an edit that lowers a limit, what was used before may take long to drain.
        let is_lowered = edits.iter().any(|edit| edit[0].requests != main.requests);
        let measured = if is_lowered { 0 } else { measured };
        let slowest = random.pick(&[5_000, 20_000, 100_000]);
        // Full use needs answers that come well before a lease ends.
        let usual = random.between(60, slowest / 40 + 60);
        let usual_delay = if measured > 0 { usual.min(main.ttl_micros() / 40) } else { usual };
        Self {
            nodes,
            edits,
            timing: LinkTiming { deadline: slowest, usual_delay },
            store_ppm: random.signed(MAX_DRIFT_PPM),
            streams: draw_streams(&mut random, &main),
            faults,
            faults_end,
            measured,
            refund_percent: random.pick(&[0, 0, 3, 15]),
            busiest_for: random.pick(&[100_000, 300_000, 1_000_000]),
            rules,
            random,
        }
    }

    /// When the run ends.
    pub(crate) const fn end(&self) -> u64 {
        match self.measured {
            0 => self.faults_end + 300_000,
            measured => self.faults_end + RECOVERY + measured,
        }
    }
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::SlidingWindowCounter,
];

fn draw_rules(random: &mut Random, is_local: bool) -> Vec<RuleSpec> {
    let main = RuleSpec { is_local, ..draw_rule(random, "main", true) };
    let mut rules = vec![with_room(main)];
    if random.percent(50) {
        rules.push(RuleSpec { is_local, ..draw_rule(random, "exact", false) });
    }
    if random.percent(25) {
        let is_shadow = random.percent(50);
        rules.push(with_room(RuleSpec { is_shadow, ..draw_rule(random, "second", true) }));
    }
    rules
}

fn draw_rule(random: &mut Random, id: &'static str, is_leased: bool) -> RuleSpec {
    let window_ms = random.pick(&[100, 200, 500, 1_000]);
    let rate = random.pick(&[40, 100, 200, 400]);
    let requests = rate * window_ms / 1_000;
    let burst = (requests * random.pick(&[1, 2, 4, 8]) / 2).max(3);
    let ttl_ms = random.pick(&[2, 5, 10, 20, 50, 100]);
    let is_plus_ttl = random.percent(10);
    RuleSpec {
        id,
        algorithm: random.pick(&ALGORITHMS),
        requests,
        window_ms,
        burst,
        is_global: id == "second" || random.percent(20),
        is_shadow: false,
        is_local: false,
        lease: is_leased.then_some(LeaseSpec { ttl_ms, is_plus_ttl }),
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
    match random.below(4) {
        0 => {
            main.requests += main.requests / 2;
            main.burst += main.burst / 2;
        }
        1 => {
            main.requests = (main.requests * 2 / 3).max(3);
            main.burst = (main.burst * 2 / 3).max(3);
        }
        2 => main.lease = None,
        _ => main.lease = main.lease.map(|lease| LeaseSpec { ttl_ms: lease.ttl_ms * 2, ..lease }),
    }
    *main = with_room(*main);
    // Back again, or the other way round.
    match random.percent(50) {
        true => vec![edited],
        false => vec![edited, rules.to_vec()],
    }
}

fn draw_streams(random: &mut Random, main: &RuleSpec) -> Vec<RequestStream> {
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
