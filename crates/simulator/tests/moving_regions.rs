//! Three regions share 1000/s with a burst of 2000 in the shares 50, 30 and 20 %, with round trips
//! of 150 ms, in virtual time: how much of the limit they use while all demand is in one region,
//! and how often nodes call other regions for it.

#![allow(clippy::expect_used, reason = "test code")]

use tidegate_simulator::{RegionDemand, RegionsUse, run_moving_regions};

fn run(demand: RegionDemand) -> RegionsUse {
    let regions = run_moving_regions(demand).expect("no bound is exceeded");
    println!(
        "{demand:?}: {:.1} % of the limit used, {:.1?} % of the shares, {:.1} calls a second to \
         other regions by each node with demand, slowest decision {} µs",
        regions.used_percent,
        regions.share_percent,
        regions.calls_per_second,
        regions.slowest_decision
    );
    // A round trip to another region takes 150 ms.
    assert!(regions.slowest_decision <= 10_000, "a request waits for another region");
    regions
}

#[test]
fn one_region_uses_95_percent_of_all() {
    let regions = run(RegionDemand::Moving { seconds: 60 });
    assert!(regions.used_percent >= 95.0, "{regions:?}");
}

#[test]
fn moving_demand_uses_95_percent() {
    let regions = run(RegionDemand::Moving { seconds: 8 });
    assert!(regions.used_percent >= 95.0, "{regions:?}");
}

#[test]
fn nodes_call_other_regions_seldom() {
    for seconds in [3, 60] {
        let regions = run(RegionDemand::Moving { seconds });
        assert!((1.0..=10.0).contains(&regions.calls_per_second), "{regions:?}");
    }
}

#[test]
fn regions_cut_off_keep_their_shares() {
    let regions = run(RegionDemand::CutOff);
    let is_whole = |percent: &f64| (97.0..=100.5).contains(percent);
    assert!(regions.share_percent.iter().all(is_whole), "{regions:?}");
    assert!(regions.calls_per_second > 0.0, "nodes go on asking: {regions:?}");
}
