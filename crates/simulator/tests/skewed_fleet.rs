//! Eight nodes with demand 8:1 that moves every second share 1000/s with a burst of 2000, in
//! virtual time: how much of the limit they use, and how often they call the store.

#![allow(clippy::expect_used, reason = "test code")]

use tidegate_simulator::{FleetUse, run_skewed_fleet};

fn run(percent_of_limit: u64) -> FleetUse {
    let fleet = run_skewed_fleet(percent_of_limit).expect("no bound is exceeded");
    println!(
        "demand {percent_of_limit} % of the limit: {:.1} % of it used, {} refused, {:.1} calls a \
         second by each node",
        fleet.used_percent, fleet.refused, fleet.calls_per_second
    );
    fleet
}

#[test]
fn fleet_below_limit_refuses_nobody() {
    assert_eq!(run(90).refused, 0);
}

#[test]
fn fleet_little_above_limit_uses_95_percent() {
    assert!(run(120).used_percent >= 95.0);
}

#[test]
fn fleet_far_above_limit_uses_98_percent() {
    assert!(run(200).used_percent >= 98.0);
}

#[test]
fn fleet_calls_store_at_most_20_times_a_second() {
    for percent in [90, 120, 200] {
        assert!(run(percent).calls_per_second <= 20.0, "at {percent} %");
    }
}
