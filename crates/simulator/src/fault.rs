//! Faults of machines, clocks and the network.

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
    /// The node's connection breaks: messages on the way are lost. New ones are refused.
    Cut { node: usize },
    /// The node's messages do not arrive before an instant, but then all at once.
    Stall { node: usize, until: u64 },
    /// Each of the node's messages takes up to this much longer.
    SlowNetwork { node: usize, extra: u64 },
    /// The node's network is healthy again.
    Heal { node: usize },
    /// The store's process stands still until an instant, then runs what came meanwhile.
    StoreStops { until: u64 },
    /// The store restarts without its state.
    StoreLosesState,
    /// The replica catches up.
    Replicate,
    /// The replica takes over: the newest writes are lost.
    FailOver,
    /// The store's clock steps.
    StoreClockSteps { micros: i64 },
    /// The node's process is killed; another one starts in its place.
    Kill { node: usize },
    /// The node's process is stopped, while its lease clock goes on.
    Pause { node: usize },
    /// It goes on.
    Resume { node: usize },
    /// The nodes receive new rules, one after the other.
    Edit(usize),
}

/// Draws faults that are all over before `end`.
pub(crate) fn draw_faults(
    random: &mut Random,
    rules: &[RuleSpec],
    nodes: usize,
    end: u64,
    is_local: bool,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let count = random.pick(&[0, 1, 2, 4, 6]);
    let ttl = rules[0].ttl_micros().max(2_000);
    for _ in 0..count {
        let at = random.between(50_000, end - 200_000);
        let longest = (end - at - 50_000).min(400_000);
        let short = random.between(ttl / 4, 4 * ttl).min(longest);
        let long = random.between(20_000, longest);
        let until = at + random.pick(&[short, long]);
        let span = SpanOfTime { at, until };
        let node = usize::try_from(random.below(nodes as u64)).unwrap_or(0);
        draw_fault(random, &mut faults, span, node, nodes, is_local);
    }
    faults
}

#[derive(Clone, Copy)]
struct SpanOfTime {
    at: u64,
    until: u64,
}

fn draw_fault(
    random: &mut Random,
    faults: &mut Vec<Fault>,
    SpanOfTime { at, until }: SpanOfTime,
    node: usize,
    nodes: usize,
    is_local: bool,
) {
    let mut push = |at, kind| faults.push(Fault { at, kind });
    match random.below(12) {
        0 => {
            push(at, FaultKind::Cut { node });
            push(until, FaultKind::Heal { node });
        }
        1 | 2 => {
            for node in 0..nodes {
                push(at, FaultKind::Cut { node });
                push(until, FaultKind::Heal { node });
            }
        }
        3 => push(at, FaultKind::Stall { node, until }),
        4 => {
            push(at, FaultKind::SlowNetwork { node, extra: random.between(1_000, until - at) });
            push(until, FaultKind::Heal { node });
        }
        5 => push(at, FaultKind::StoreStops { until }),
        6 => push(at, FaultKind::StoreLosesState),
        7 => {
            push(at, FaultKind::Replicate);
            push(at + random.between(0, 100_000), FaultKind::FailOver);
        }
        8 => {
            let micros = random.pick(&[1_000, 30_000, 400_000, 5_000_000, 86_400_000_000]);
            let back = if random.percent(40) { -1 } else { 1 };
            push(at, FaultKind::StoreClockSteps { micros: back * micros });
        }
        // The share of a killed node would count twice.
        9 if !is_local => push(at, FaultKind::Kill { node }),
        _ => {
            push(at, FaultKind::Pause { node });
            push(until, FaultKind::Resume { node });
        }
    }
}
