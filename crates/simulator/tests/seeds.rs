//! A few thousand seeds keep every bound, and a seed determines its run.

use tidegate_simulator::{RunOptions, run_seed};

/// How many seeds; `TIDEGATE_SEEDS` sets another number.
fn seed_count() -> u64 {
    std::env::var("TIDEGATE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000)
}

/// Fails with the trace of a seed.
fn fail(seed: u64, violation: &str) -> ! {
    let summary = run_seed(seed, RunOptions { bug: None, keeps_trace: true });
    let trace = summary.trace.join("\n");
    panic!("{trace}\nseed {seed}: {violation}\nrepeat with: cargo xtask simulate --seed {seed}");
}

#[test]
fn seeds_keep_every_bound() {
    let (mut admitted, mut leased, mut borrowed, mut asynchronous) = (0, 0, 0, 0);
    for seed in 0..seed_count() {
        let summary = run_seed(seed, RunOptions::default());
        if let Some(violation) = summary.violation {
            fail(seed, &violation);
        }
        admitted += summary.admitted;
        leased += summary.leased_units;
        borrowed += summary.borrowed_units;
        asynchronous += summary.async_units;
    }
    println!(
        "{admitted} requests admitted, units: {leased} leased, {borrowed} borrowed, {asynchronous} \
         asynchronous"
    );
    assert!(leased > admitted / 10, "too little was decided on leases: {leased} of {admitted}");
    assert!(borrowed > admitted / 100, "too little was borrowed: {borrowed} of {admitted}");
    assert!(asynchronous > admitted / 10, "too little was asynchronous: {asynchronous}");
}

#[test]
fn same_seed_gives_identical_trace() {
    for seed in [3, 23, 54, 72, 311, 1069] {
        let runs = [0, 1].map(|_| run_seed(seed, RunOptions { bug: None, keeps_trace: true }));
        assert_eq!(runs[0], runs[1], "seed {seed}");
        assert!(runs[0].events > 100, "seed {seed}");
    }
}

#[test]
fn other_seed_gives_other_trace() {
    let digest = |seed| run_seed(seed, RunOptions::default()).digest;
    assert_ne!(digest(1), digest(2));
}
