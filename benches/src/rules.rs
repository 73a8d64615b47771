//! Measures rule matching and whole decisions, to show that the time to match does not grow with
//! the number of rules.

use std::fmt::Write as _;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_limiter::Limiter;
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, Facts, MatchedRules, RuleSet};

use crate::load::{KeyStream, run};
use crate::report::{MarkdownTable, median};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(200);

/// Measures matching and deciding under 10 and 10 000 rules, side by side.
pub fn bench_matching() {
    println!("### Matching and deciding under many rules, in nanoseconds\n");
    let mut table = MarkdownTable::new(&["rules", "matched", "match", "whole decision"]);
    let sets: Vec<(&str, RuleSet)> = vec![
        ("10: 2 tiers × 5 endpoints", grid_rules(2, 5)),
        ("10 000: 100 tiers × 100 endpoints", grid_rules(100, 100)),
        ("10 API keys", api_key_rules(10)),
        ("10 000 API keys", api_key_rules(10_000)),
    ];
    let limiters: Vec<_> =
        sets.into_iter().map(|(name, set)| (name, Limiter::new(MemoryStore::new(), set))).collect();
    let facts: Facts<'_> = [
        ("ip", "203.0.113.7"),
        ("method", "POST"),
        ("path", "/v1/things3/17"),
        ("api_key", "key-7"),
        ("tier", "tier1"),
    ]
    .into_iter()
    .collect();
    let mut times = vec![(Vec::new(), Vec::new()); limiters.len()];
    for _ in 0..ROUNDS {
        for ((_, limiter), (matches, decisions)) in limiters.iter().zip(&mut times) {
            let rules = limiter.rules();
            matches.push(measure_nanos(&|| {
                let mut found = MatchedRules::new();
                rules.match_rules(&facts, &mut found);
                black_box(&found);
            }));
            decisions.push(measure_nanos(&|| _ = black_box(poll_ready(limiter.decide(&facts, 1)))));
        }
    }
    for ((name, limiter), (matches, decisions)) in limiters.iter().zip(&times) {
        let mut found = MatchedRules::new();
        limiter.rules().match_rules(&facts, &mut found);
        table.push_row(&[
            (*name).to_owned(),
            found.len().to_string(),
            format!("{:.0}", median(matches)),
            format!("{:.0}", median(decisions)),
        ]);
    }
    println!("{table}");
}

fn measure_nanos(work: &(dyn Fn() + Sync)) -> f64 {
    1e9 / run(&[KeyStream::every_key(1_024)], ROUND, &|_| work())
}

/// Polls a future once and returns its output.
///
/// # Panics
/// When the future is not ready at the first poll.
#[expect(clippy::panic, reason = "a decision by the memory store is ready at once")]
pub fn poll_ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a decision by the memory store must be ready at once"),
    }
}

fn grid_rules(tiers: usize, endpoints: usize) -> RuleSet {
    let mut source = "rules:\n".to_owned();
    for tier in 0..tiers {
        for endpoint in 0..endpoints {
            _ = writeln!(
                source,
                "- {{id: t{tier}e{endpoint}, match: {{tier: tier{tier}, \
                 endpoint: 'POST /v1/things{endpoint}/*'}}, key_by: api_key, limit: 9/s}}"
            );
        }
    }
    compile(&source)
}

fn api_key_rules(count: usize) -> RuleSet {
    let mut source = "rules:\n".to_owned();
    for key in 0..count {
        _ = writeln!(
            source,
            "- {{id: k{key}, match: {{api_key: key-{key}}}, key_by: api_key, limit: 100/s}}"
        );
    }
    compile(&source)
}

/// Compiles the rules document of a benchmark.
///
/// # Panics
/// When the document is invalid.
#[must_use]
pub fn compile(source: &str) -> RuleSet {
    compile_in(None, source)
}

/// Compiles the rules document of a benchmark for the nodes of a region.
///
/// # Panics
/// When the document is invalid.
#[expect(clippy::panic, reason = "benchmarks make their own documents")]
#[must_use]
pub fn compile_in(region: Option<&str>, source: &str) -> RuleSet {
    let mut document =
        Document::parse("bench.yaml", source).unwrap_or_else(|problems| panic!("{problems}"));
    document.set_region(region);
    RuleSet::compile(&document, Secret::UNSET).unwrap_or_else(|problems| panic!("{problems}"))
}
