//! Faults of machines, clocks and the network.

use std::ops::Range;

use crate::link::LostMessages;
use crate::random::Random;
use crate::rule_spec::RuleSpec;

/// A fault that begins or ends at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) kind: FaultKind,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultKind {
    /// The node's connection to a store breaks: answers on the way are lost, and some requests.
    /// New ones are refused.
    Cut { node: usize, store: usize },
    /// The messages between them do not arrive before an instant, but then all at once.
    Stall { node: usize, store: usize, until: u64 },
    /// Each message between them takes up to this much longer.
    SlowNetwork { node: usize, store: usize, extra: u64 },
    /// Messages between them vanish.
    LoseMessages { node: usize, store: usize, lost: LostMessages },
    /// The network between them is healthy again.
    Heal { node: usize, store: usize },
    /// The store's process stands still until an instant, then runs what came meanwhile.
    StoreStops { store: usize, until: u64 },
    /// The store restarts without its state.
    StoreLosesState { store: usize },
    /// The replica catches up.
    Replicate { store: usize },
    /// The replica takes over: the newest writes are lost.
    FailOver { store: usize },
    /// The store's clock steps.
    StoreClockSteps { store: usize, micros: i64 },
    /// The node's process is killed; another one starts in its place.
    Kill { node: usize },
    /// The node's process is stopped, while its lease clock goes on.
    Pause { node: usize },
    /// It goes on.
    Resume { node: usize },
    /// The nodes receive new rules, one after the other.
    Edit(usize),
}

/// The machines that faults may hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultTargets {
    pub(crate) nodes: usize,
    pub(crate) stores: usize,
    /// The share of a killed node would count twice.
    pub(crate) kills: bool,
    /// New rules take effect at one instant for all stores, so their clocks must agree.
    pub(crate) clock_steps: bool,
}

/// How long a fault lasts at most.
pub(crate) const LONGEST_FAULT: u64 = 400_000;

/// Draws faults that are all over before `end`.
pub(crate) fn draw_faults(
    random: &mut Random,
    rules: &[RuleSpec],
    targets: FaultTargets,
    end: u64,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let count = random.pick(&[0, 1, 2, 4, 6]);
    let ttl = rules[0].node_span().max(2_000);
    for _ in 0..count {
        let at = random.between(50_000, end - 200_000);
        let longest = (end - at - 50_000).min(LONGEST_FAULT);
        let short = random.between(ttl / 4, 4 * ttl).min(longest);
        let long = random.between(20_000, longest);
        let until = at + random.pick(&[short, long]);
        let drawn = draw_fault(random, at..until, targets);
        faults.extend(drawn.into_iter().map(|(at, kind)| Fault { at, kind }));
    }
    faults
}

/// One fault with its end.
fn draw_fault(
    random: &mut Random,
    Range { start: at, end: until }: Range<u64>,
    targets: FaultTargets,
) -> Vec<(u64, FaultKind)> {
    let node = random.index(targets.nodes);
    let store = random.index(targets.stores);
    match random.below(12) {
        0 => cut([(node, store)], at..until),
        1 | 2 => cut((0..targets.nodes).map(|node| (node, store)), at..until),
        3 => vec![(at, FaultKind::Stall { node, store, until })],
        4 => {
            let extra = random.between(1_000, until - at);
            let slow = FaultKind::SlowNetwork { node, store, extra };
            vec![(at, slow), (until, FaultKind::Heal { node, store })]
        }
        5 => vec![(at, FaultKind::StoreStops { store, until })],
        6 => vec![(at, FaultKind::StoreLosesState { store })],
        7 => {
            let lag = random.between(0, 100_000);
            vec![(at, FaultKind::Replicate { store }), (at + lag, FaultKind::FailOver { store })]
        }
        8 if targets.clock_steps => {
            let micros = random.pick(&[1_000, 30_000, 400_000, 5_000_000, 86_400_000_000]);
            let back = if random.percent(40) { -1 } else { 1 };
            vec![(at, FaultKind::StoreClockSteps { store, micros: back * micros })]
        }
        9 if targets.kills => vec![(at, FaultKind::Kill { node })],
        // The node reaches no store.
        10 => cut((0..targets.stores).map(|store| (node, store)), at..until),
        _ => vec![(at, FaultKind::Pause { node }), (until, FaultKind::Resume { node })],
    }
}

/// Cuts connections, and heals them.
fn cut(
    links: impl IntoIterator<Item = (usize, usize)>,
    Range { start: at, end: until }: Range<u64>,
) -> Vec<(u64, FaultKind)> {
    let both = |(node, store)| {
        [(at, FaultKind::Cut { node, store }), (until, FaultKind::Heal { node, store })]
    };
    links.into_iter().flat_map(both).collect()
}
