//! The published model of a fleet of callers, in virtual time and against a real limiter. The
//! figures are in `docs/client.md`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::fleet_model::{FleetModel, FleetOutcome};
use tidegate_response::HeaderStyle;

const MODEL: FleetModel = FleetModel {
    algorithm: "",
    headers: Some(HeaderStyle::All),
    instances: 2,
    callers: 32,
    is_paced: true,
    seed: 1,
};

/// Runs the model, and prints a row of the table in `docs/client.md`.
async fn run(model: FleetModel) -> FleetOutcome {
    let outcome = model.run().await;
    println!("{model:?}\n    {outcome:?}");
    outcome
}

/// The best published figures are 56 refusals, 90 % and 8 s.
async fn assert_goals(model: FleetModel) {
    let FleetOutcome { refused, used_share, recovery, .. } = run(model).await;
    assert!(refused <= 10, "{refused} refusals in {model:?}");
    assert!(used_share >= 0.97, "{used_share} of the quota used in {model:?}");
    assert!(recovery <= Duration::from_secs(2), "recovered after {recovery:?} in {model:?}");
}

#[tokio::test(start_paused = true)]
async fn fleet_on_a_bucket_is_hardly_refused() {
    for seed in 1..=3 {
        assert_goals(FleetModel { seed, ..MODEL }).await;
        assert_goals(FleetModel { seed, algorithm: "burst 100", ..MODEL }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fleet_on_windows_is_hardly_refused() {
    for seed in 1..=2 {
        assert_goals(FleetModel { seed, algorithm: "using fixed_window", ..MODEL }).await;
        assert_goals(FleetModel { seed, algorithm: "using sliding_window", ..MODEL }).await;
    }
    assert_goals(FleetModel { algorithm: "using sliding_window_log", ..MODEL }).await;
}

#[tokio::test(start_paused = true)]
async fn fleet_paces_by_older_headers_too() {
    for headers in [HeaderStyle::X, HeaderStyle::Legacy] {
        let model = FleetModel { headers: Some(headers), ..MODEL };
        assert_goals(model).await;
        assert_goals(FleetModel { algorithm: "burst 100", ..model }).await;
        assert_goals(FleetModel { algorithm: "using fixed_window", ..model }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fleet_without_headers_finds_the_rate() {
    // No goals are published for this; without pacing there are about a million refusals.
    for seed in 1..=3 {
        for headers in [None, Some(HeaderStyle::None)] {
            let model = FleetModel { headers, algorithm: "burst 100", seed, ..MODEL };
            let FleetOutcome { refused, used_share, recovery, .. } = run(model).await;
            assert!(refused <= 150 && used_share >= 0.9, "{refused} {used_share} in {model:?}");
            assert!(recovery <= Duration::from_secs(60), "recovered after {recovery:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_instances_do_not_storm_the_server() {
    // Regression: the probes of many clients kept each other refused, 221 469 times.
    let model = FleetModel { algorithm: "burst 100", instances: 20, callers: 8, ..MODEL };
    let FleetOutcome { refused, used_share, .. } = run(model).await;
    assert!(refused <= 1_000 && used_share >= 0.97, "{refused} {used_share}");
}

#[tokio::test(start_paused = true)]
async fn callers_without_pacing_are_refused_all_the_time() {
    let model = FleetModel { algorithm: "burst 100", is_paced: false, ..MODEL };
    let FleetOutcome { refused, .. } = run(model).await;
    assert!(refused > 100_000, "the model's server must refuse: {refused}");
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_same_outcome() {
    // Without headers, refusals depend on the order of single requests.
    let model = FleetModel { algorithm: "burst 100", headers: None, ..MODEL };
    assert_eq!(model.run().await, model.run().await);
}
