//! The network between regions, and the partitions that it suffers.

use std::ops::Range;

use super::terms::MAX_REGIONS;
use crate::fault::{Fault, FaultKind, LONGEST_FAULT};
use crate::link::{LinkTiming, LostMessages};
use crate::random::Random;

/// The regions of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionNetwork {
    pub(crate) regions: usize,
    /// How long a message between two regions takes, usually.
    delays: [[u64; MAX_REGIONS]; MAX_REGIONS],
    /// How long a node waits for the store of another region.
    pub(crate) deadline: u64,
}

impl RegionNetwork {
    /// Regions between each of which a round trip takes up to `longest`.
    pub(crate) fn draw(random: &mut Random, regions: usize, longest: u64, deadline: u64) -> Self {
        let mut delays = [[0; MAX_REGIONS]; MAX_REGIONS];
        for (a, b) in (0..regions).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let round_trip = random.between(SHORTEST_ROUND_TRIP, longest);
            (delays[a][b], delays[b][a]) = (round_trip / 2, round_trip / 2);
        }
        Self { regions, delays, deadline }
    }

    /// Regions between each of which every round trip takes about this long.
    pub(crate) const fn even(regions: usize, round_trip: u64, deadline: u64) -> Self {
        Self { regions, delays: [[round_trip / 2; MAX_REGIONS]; MAX_REGIONS], deadline }
    }

    /// The longest that a round trip between two regions takes.
    pub(crate) fn longest_round_trip(&self) -> u64 {
        let longest = self.delays.iter().flatten().max().copied().unwrap_or(0);
        2 * WIDE_AREA_TAIL * longest
    }

    /// The region of the nodes at a place of the fleet.
    pub(crate) const fn region_of(&self, place: usize) -> usize {
        place % self.regions
    }

    /// How a node of one region reaches the store of another. `home` is how it reaches its own.
    pub(crate) const fn timing(&self, from: usize, to: usize, home: LinkTiming) -> LinkTiming {
        if from == to {
            return home;
        }
        let (usual_delay, deadline) = (self.delays[from][to], self.deadline);
        LinkTiming { usual_delay, deadline, tail: WIDE_AREA_TAIL, ..home }
    }
}

/// The shortest round trip between two regions.
pub(crate) const SHORTEST_ROUND_TRIP: u64 = 20_000;

/// A message between regions takes at most this many times as long as usual.
pub(crate) const WIDE_AREA_TAIL: u64 = 2;

/// A node and a store, and which of their messages a partition concerns.
type ConcernedLink = (usize, usize, LostMessages);

/// Draws partitions between regions that are all over before `end`.
pub(crate) fn draw_partitions(
    random: &mut Random,
    network: &RegionNetwork,
    nodes: usize,
    end: u64,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for _ in 0..random.pick(&[0, 1, 1, 2, 3]) {
        let at = random.between(0, end - 200_000);
        let longest = end - at - 50_000;
        let length = random.pick(&[20_000, 100_000, 400_000, longest]).min(longest);
        let until = at + random.between(length / 2, length);
        let links = draw_concerned(random, network, nodes);
        faults.extend(break_links(random, &links, at..until));
    }
    faults
}

/// Draws the shape of a partition: one way or both between two regions, one region cut off from
/// the others, or all from each other.
fn draw_concerned(
    random: &mut Random,
    network: &RegionNetwork,
    nodes: usize,
) -> Vec<ConcernedLink> {
    let (a, other) = (random.index(network.regions), random.index(network.regions - 1));
    let b = (a + 1 + other) % network.regions;
    let shape = random.below(4);
    // Which way messages from one region to another vanish.
    let vanish = |from: usize, to: usize| match shape {
        0 => (from, to) == (a, b),
        1 => (from, to) == (a, b) || (from, to) == (b, a),
        2 => from == a || to == a,
        _ => true,
    };
    let links = (0..nodes).flat_map(|node| (0..network.regions).map(move |store| (node, store)));
    let concerned = links.filter_map(|(node, store)| {
        let region = network.region_of(node);
        let lost = match (vanish(region, store), vanish(store, region)) {
            _ if region == store => LostMessages::None,
            (true, true) => LostMessages::All,
            (true, false) => LostMessages::Requests,
            (false, true) => LostMessages::Answers,
            (false, false) => LostMessages::None,
        };
        (lost != LostMessages::None).then_some((node, store, lost))
    });
    concerned.collect()
}

/// Draws how the network treats the messages of a partition, and until when.
fn break_links(
    random: &mut Random,
    links: &[ConcernedLink],
    Range { start: at, end: until }: Range<u64>,
) -> Vec<Fault> {
    let (how, extra) = (random.below(6), random.between(1_000, 300_000));
    let stalled_until = until.min(at + LONGEST_FAULT);
    let begin = |(node, store, lost): ConcernedLink| match how {
        0 => FaultKind::Cut { node, store },
        1 => FaultKind::Stall { node, store, until: stalled_until },
        2 => FaultKind::SlowNetwork { node, store, extra },
        _ => FaultKind::LoseMessages { node, store, lost },
    };
    let fault = |link: &ConcernedLink| {
        let (node, store, _) = *link;
        let heal = FaultKind::Heal { node, store };
        [Fault { at, kind: begin(*link) }, Fault { at: until, kind: heal }]
    };
    links.iter().flat_map(fault).collect()
}
