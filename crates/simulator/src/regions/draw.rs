//! Draws a run with several regions from its seed.

use super::network::{RegionNetwork, SHORTEST_ROUND_TRIP, WIDE_AREA_TAIL, draw_partitions};
use super::plan::RegionPlan;
use super::terms::{BorrowTerms, MAX_REGIONS, RegionTerms};
use crate::clock::MAX_DRIFT_PPM;
use crate::fault::{Fault, FaultKind, FaultTargets, LONGEST_FAULT, draw_faults};
use crate::random::Random;
use crate::rule_spec::{LeaseSpec, RuleSpec, with_room};
use crate::scenario::{ALGORITHMS, RECOVERY, Scenario, draw_streams, draw_timing, measured_span};

impl Scenario {
    /// Draws a run with 2 to 5 regions, each with one store.
    pub(crate) fn draw_regions(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let regions = random.pick(&[2, 2, 3, 3, 4, 5]);
        let nodes = (regions * random.pick(&[1, 2, 2, 3])).min(MAX_NODES);
        let rules = draw_rules(&mut random, regions);
        let main = rules[0];
        let faults_end = random.pick(&[1_500_000, 2_500_000, 3_500_000]);
        let edits = draw_edits(&mut random, &rules, regions);
        let network = draw_network(&mut random, regions, &main);
        let measured = match random.percent(30) && can_use_all(&main, &edits, &network) {
            true => measured_span(&main, latest_report(&main, &network)),
            false => 0,
        };
        let plan = RegionPlan {
            clock_offsets: (0..regions).map(|_| random.signed(5_000_000)).collect(),
            edit_delays: (0..regions).map(|_| random.below(600_000)).collect(),
            other_secret: random.percent(15).then(|| random.index(regions)),
            busiest_percent: random.pick(&[0, 60, 90, 100]),
            last_region: random.index(regions),
            network,
        };
        let targets = FaultTargets { nodes, stores: regions, kills: true, clock_steps: true };
        let mut faults = draw_faults(&mut random, &rules, targets, faults_end);
        faults.extend(draw_partitions(&mut random, &network, nodes, faults_end));
        faults.extend(draw_long_pause(&mut random, &main, nodes, faults_end));
        if !edits.is_empty() {
            let at = random.between(100_000, faults_end / 2);
            faults.push(Fault { at, kind: FaultKind::Edit(0) });
        }
        let timing = draw_timing(&mut random, &main, measured > 0, faults_end);
        Self {
            nodes,
            recovery: recovery(&rules, &edits),
            edits,
            timing,
            store_ppm: (0..regions).map(|_| random.signed(MAX_DRIFT_PPM)).collect(),
            streams: draw_streams(&mut random, &main),
            faults,
            faults_end,
            // Regions with another secret lend nothing.
            measured: if plan.other_secret.is_some() { 0 } else { measured },
            refund_percent: random.pick(&[0, 0, 3, 15]),
            busiest_for: random.pick(&[100_000, 300_000, 1_000_000]),
            regions: Some(plan),
            rules,
            random,
        }
    }
}

/// A node that stands still for about as long as it may spend a borrowed unit.
fn draw_long_pause(
    random: &mut Random,
    main: &RuleSpec,
    nodes: usize,
    faults_end: u64,
) -> Vec<Fault> {
    let ttl = main.borrow_micros().min(LONGEST_FAULT);
    if ttl == 0 || random.percent(50) {
        return Vec::new();
    }
    let (node, at) = (random.index(nodes), random.between(200_000, faults_end - 500_000));
    let until = at + random.between(ttl / 2, 2 * ttl).min(LONGEST_FAULT);
    let (pause, resume) = (FaultKind::Pause { node }, FaultKind::Resume { node });
    vec![Fault { at, kind: pause }, Fault { at: until, kind: resume }]
}

/// The most nodes of all regions together.
const MAX_NODES: usize = 10;

/// How long a fleet may take to reach full use after the last fault and a shift of demand: 2 s, and
/// as long as a lender refills to what it keeps. What an edit leaves in debt drains first.
fn recovery(rules: &[RuleSpec], edits: &[Vec<RuleSpec>]) -> u64 {
    let versions = || std::iter::once(&rules[0]).chain(edits.iter().map(|rules| &rules[0]));
    let fill = |spec: &RuleSpec| spec.burst * 1_000 * spec.window_ms / spec.requests.max(1);
    let keep = |spec: &RuleSpec| spec.borrow().map_or(0, |borrow| borrow.keep);
    let refill = versions().map(|spec| fill(spec) * keep(spec) / 100).max();
    let debt = if edits.is_empty() { None } else { versions().map(fill).max() };
    RECOVERY + refill.unwrap_or(0) + debt.unwrap_or(0)
}

/// How much later than its window a log forgets a unit that was lent, and the borrower learns it.
fn latest_report(main: &RuleSpec, network: &RegionNetwork) -> u64 {
    let lent = main.borrow().map_or(0, |it| 1_000 * (it.ttl_ms + it.every_ms));
    main.node_span().max(lent + network.longest_round_trip())
}

/// Whether full use is promised in all versions of the first rule.
fn can_use_all(main: &RuleSpec, edits: &[Vec<RuleSpec>], network: &RegionNetwork) -> bool {
    let mut versions = std::iter::once(main).chain(edits.iter().map(|rules| &rules[0]));
    versions.all(|spec| spec.is_decided_like(main) && is_fully_lent(spec, network))
}

/// Whether other regions can lend all that they do not keep, and the borrower is in time.
fn is_fully_lent(spec: &RuleSpec, network: &RegionNetwork) -> bool {
    let Some(borrow) = spec.borrow() else { return true };
    let answered_after = network.longest_round_trip() + 1_000 * borrow.every_ms;
    // What drains from a bucket until the next question must fit in what it lends.
    let lends_enough = |lender: usize| {
        let share = spec.in_region(lender);
        let drained = share.requests * answered_after / (1_000 * share.window_ms);
        !spec.algorithm.is_bucket() || share.lent_burst() * (100 - borrow.keep) / 100 > drained
    };
    let is_in_time = 2 * answered_after <= 1_000 * borrow.ttl_ms;
    is_in_time && (0..network.regions).all(lends_enough)
}

fn draw_network(random: &mut Random, regions: usize, main: &RuleSpec) -> RegionNetwork {
    let in_time = main.borrow().map_or(0, |borrow| {
        let half = (500 * borrow.ttl_ms).saturating_sub(1_000 * borrow.every_ms);
        half / WIDE_AREA_TAIL
    });
    let usable = in_time >= SHORTEST_ROUND_TRIP && random.percent(60);
    let longest = if usable { in_time.min(300_000) } else { 300_000 };
    RegionNetwork::draw(random, regions, longest, (main.borrow_micros() / 2).max(10_000))
}

fn draw_rules(random: &mut Random, regions: usize) -> Vec<RuleSpec> {
    let is_leased = random.percent(80);
    let borrows = is_leased && random.percent(75);
    let mut rules = vec![draw_rule(random, "main", regions, (is_leased, borrows))];
    if random.percent(35) {
        rules.push(draw_rule(random, "exact", regions, (false, false)));
    }
    if random.percent(25) {
        let (borrows, is_shadow) = (random.percent(60), random.percent(40));
        let rule = draw_rule(random, "second", regions, (true, borrows && !is_shadow));
        rules.push(RuleSpec { is_shadow, ..rule });
    }
    rules
}

fn draw_rule(
    random: &mut Random,
    id: &'static str,
    regions: usize,
    (is_leased, borrows): (bool, bool),
) -> RuleSpec {
    let borrow = BorrowTerms {
        ttl_ms: random.pick(&[100, 200, 400, 800]),
        every_ms: random.pick(&[20, 50, 100]),
        keep: random.pick(&[0, 20, 50, 80]),
    };
    let borrow = borrows.then_some(borrow);
    let tolerance = random.pick(&[0, 0, 10, 25]);
    let shares = draw_shares(random, regions, 100 + tolerance);
    let terms = RegionTerms { shares, tolerance, borrow };
    // A loan lives at most half a window.
    let longest = borrow.map_or(100, |borrow| 2 * borrow.ttl_ms);
    let rate = random.pick(&[100, 200, 400]);
    let burst_ms = random.pick(&[1, 2, 4]) * longest;
    // Enough that the share of no version is below three requests.
    let smallest = shares[..regions].iter().min().copied().unwrap_or(1).max(1);
    let least = 900 / smallest;
    let window_ms = random.pick(&[200, 500, 1_000]).max(longest).max(least * 1_000 / rate);
    let is_plus_ttl = random.percent(10);
    let lease = LeaseSpec { ttl_ms: random.pick(&[10, 20, 50, 100]), is_plus_ttl };
    with_room(RuleSpec {
        id,
        algorithm: random.pick(&ALGORITHMS),
        requests: rate * window_ms / 1_000,
        window_ms,
        burst: (rate * burst_ms / 1_000).max(least),
        is_global: id == "second" || random.percent(20),
        is_shadow: false,
        is_local: false,
        lease: is_leased.then_some(lease),
        flush_ms: None,
        regions: (borrows || random.percent(85)).then_some(terms),
    })
}

/// Shares of at least a fifth of an even one. They may leave a part of the limit unused.
fn draw_shares(random: &mut Random, regions: usize, most: u64) -> [u64; MAX_REGIONS] {
    let weights: Vec<u64> = (0..regions).map(|_| random.pick(&[1, 2, 2, 5])).collect();
    let (sum, all): (u64, u64) = (weights.iter().sum(), random.pick(&[most, most, most - 10]));
    let mut shares = [0; MAX_REGIONS];
    for (share, weight) in shares.iter_mut().zip(&weights) {
        *share = (all * weight / sum).min(90);
    }
    shares
}

/// New versions of the first rule, which reach the nodes one after the other.
fn draw_edits(random: &mut Random, rules: &[RuleSpec], regions: usize) -> Vec<Vec<RuleSpec>> {
    if !random.percent(35) {
        return Vec::new();
    }
    let mut edited = rules.to_vec();
    let main = &mut edited[0];
    let kind = random.below(8);
    match (kind, main.regions.as_mut()) {
        (0..=3, Some(terms)) => move_share(random, &mut terms.shares, regions),
        (4, Some(terms)) => match &mut terms.borrow {
            Some(borrow) if random.percent(50) => borrow.keep = random.pick(&[0, 50, 80]),
            Some(borrow) => borrow.ttl_ms *= 2,
            None => (terms.tolerance, terms.shares[0]) = (terms.tolerance + 5, terms.shares[0] + 5),
        },
        (5, Some(terms)) => terms.borrow = None,
        (6, _) => {
            main.requests = main.requests * 2 / 3;
            main.burst = main.burst * 2 / 3;
        }
        _ => {
            main.requests += main.requests / 2;
            main.burst += main.burst / 2;
        }
    }
    *main = with_room(*main);
    match random.percent(50) {
        true => vec![edited],
        // Back again.
        false => vec![edited, rules.to_vec()],
    }
}

/// Moves up to half of one share to another region. Not more: a node with old rules caps debt at
/// twice its own burst, and forgets what nodes with a larger burst have charged.
fn move_share(random: &mut Random, shares: &mut [u64; MAX_REGIONS], regions: usize) {
    let (from, other) = (random.index(regions), random.index(regions - 1));
    let to = (from + 1 + other) % regions;
    let moved = random.between(1, shares[from] / 2).min(shares[to]);
    shares[from] -= moved;
    shares[to] += moved;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_within_limit_and_tolerance() {
        for scenario in (0..1_000).map(Scenario::draw_regions) {
            let versions = std::iter::once(&scenario.rules).chain(&scenario.edits);
            for rule in versions.flatten() {
                let Some(RegionTerms { tolerance, .. }) = rule.regions else { continue };
                let shares: Vec<RuleSpec> =
                    (0..MAX_REGIONS).map(|region| rule.in_region(region)).collect();
                let requests: u64 = shares.iter().map(|share| share.requests).sum();
                let burst: u64 = shares.iter().map(|share| share.burst).sum();
                assert!(requests * 100 <= rule.requests * (100 + tolerance), "{rule:?}");
                assert!(burst * 100 <= rule.burst * (100 + tolerance), "{rule:?}");
            }
        }
    }

    #[test]
    fn most_runs_borrow_and_some_measure_use() {
        let runs: Vec<Scenario> = (0..1_000).map(Scenario::draw_regions).collect();
        let count = |has: fn(&Scenario) -> bool| runs.iter().filter(|run| has(run)).count();
        assert!(count(|run| run.rules[0].borrow().is_some()) > 400);
        assert!(count(|run| run.measured > 0 && run.rules[0].borrow().is_some()) > 40);
        assert!(
            count(|run| run.edits.iter().any(|it| it[0].regions != run.rules[0].regions)) > 100
        );
    }
}
