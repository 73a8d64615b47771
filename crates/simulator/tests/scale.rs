//! Laws of the estimates for large fleets, and a check against every node and key of a small one.

#![allow(clippy::unwrap_used, reason = "test code")]

use tidegate_core::time::Micros;
use tidegate_limiter::sizing::HOT_REQUESTS;
use tidegate_simulator::scale::{LimitQuota, Mode, ModeEstimate, ScaleCase, parse_options};

/// More than any demand here.
const UNREACHED: &str = "100000000/s";

fn case(nodes: u32, keys: u64, rate: f64, limit: &str) -> ScaleCase {
    let limit = LimitQuota::parse(limit).unwrap();
    let internet = ScaleCase::internet().unwrap();
    ScaleCase {
        nodes,
        nodes_per_key: nodes,
        keys,
        rate,
        limit,
        sampled_requests: 20_000.0,
        ..internet
    }
}

fn estimate(case: &ScaleCase, mode: Mode) -> ModeEstimate {
    case.estimate_mode(mode).unwrap()
}

fn assert_close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let difference = (found / expected - 1.0).abs();
    assert!(difference <= tolerance, "{what}: {found} instead of {expected}");
}

#[test]
fn cold_key_costs_one_call_per_request() {
    for mode in Mode::ALL {
        let cold = estimate(&case(10, 1_000_000, 100.0, UNREACHED), mode);
        assert_close(mode.name(), cold.calls.sum(), 100.0, 1e-3);
    }
}

#[test]
fn hot_key_costs_constant_calls_per_node() {
    // A grant is half as much again as half a ttl needs, and is renewed when a quarter is left.
    for (nodes, rate) in [(1, 50_000.0), (4, 50_000.0), (4, 400_000.0), (1, 5e6)] {
        let hot = estimate(&case(nodes, 1, rate, UNREACHED), Mode::Leased);
        let expected = f64::from(nodes) / (0.75 * 0.1);
        assert_close("grants", hot.calls.sum(), expected, 0.12);
        assert!(hot.local / hot.requests > 0.99, "{hot:?}");
    }
}

#[test]
fn exhausted_hot_key_costs_two_calls_per_ttl() {
    for (ttl, rate) in [(50, 80_000.0), (100, 80_000.0), (200, 80_000.0), (100, 8e6)] {
        let case = ScaleCase { ttl: Micros::from_millis(ttl), ..case(8, 1, rate, "1000/s") };
        let hot = estimate(&case, Mode::Leased);
        assert_close("grants", hot.calls.grants, 8.0 * 2_000.0 / ttl as f64, 0.05);
        assert_close("admitted", hot.admitted, 1_000.0, 0.05);
    }
}

#[test]
fn hot_key_with_flushes_costs_one_per_interval() {
    let hot = estimate(&case(4, 1, 50_000.0, UNREACHED), Mode::Async);
    assert_close("flushes", hot.calls.sum(), 40.0, 0.12);
}

#[test]
fn uniform_keys_cost_as_much_as_one_of_them() {
    for mode in Mode::ALL {
        let one = estimate(&case(2, 1, 300.0, UNREACHED), mode);
        let uniform = ScaleCase { exponent: 0.0, ..case(2, 500, 150_000.0, UNREACHED) };
        let all = estimate(&uniform, mode);
        assert_close("busiest", all.busiest_key.unwrap(), all.calls.sum() / 500.0, 1e-6);
        assert_close(mode.name(), all.calls.sum(), 500.0 * one.calls.sum(), 1e-6);
    }
}

#[test]
fn more_nodes_make_no_fewer_calls() {
    for limit in [UNREACHED, "1000/s burst 2000"] {
        for mode in Mode::ALL {
            let calls = |nodes| estimate(&case(nodes, 50, 50_000.0, limit), mode).calls.sum();
            let counts = [1, 5, 25].map(calls);
            // A sample is about a hundredth off.
            let grows = counts.windows(2).all(|pair| pair[0] <= pair[1] * 1.03);
            assert!(grows, "{} {limit}: {counts:?}", mode.name());
        }
    }
}

#[test]
fn below_limit_leased_calls_do_not_exceed_exact_ones() {
    for nodes in [1, 30] {
        for rate in [1_000.0, 30_000.0] {
            let case = case(nodes, 200, rate, UNREACHED);
            let [exact, leased] = [Mode::Exact, Mode::Leased].map(|mode| estimate(&case, mode));
            let (exact, leased) = (exact.calls.sum(), leased.calls.sum());
            assert!(leased <= exact * 1.01, "{nodes} nodes, {rate}/s: {leased} of {exact}");
        }
    }
}

#[test]
fn key_just_below_threshold_is_not_leased() {
    let rate = f64::from(HOT_REQUESTS) / 8.0 / 0.1;
    let cold = estimate(&case(1, 1, rate, UNREACHED), Mode::Leased);
    assert!(cold.calls.direct / cold.requests > 0.99, "{cold:?}");
}

#[test]
fn estimate_of_two_nodes_agrees_with_run_of_every_key() {
    let cases = [
        (case(2, 1, 10_000.0, UNREACHED), 3.0),
        (case(2, 400, 20_000.0, UNREACHED), 4.0),
        (case(2, 400, 20_000.0, "200/s burst 400"), 5.0),
        (ScaleCase { exponent: 0.0, ..case(2, 150, 15_000.0, UNREACHED) }, 6.0),
        (ScaleCase { exponent: 0.0, ..case(2, 1_000, 10_000.0, UNREACHED) }, 4.0),
    ];
    for (case, seconds) in cases {
        let check = case.check(seconds).unwrap();
        for [model, run] in check.pairs {
            let what = format!("{} {case}", model.mode.name());
            assert_close(&format!("calls, {what}"), model.calls.sum(), run.calls.sum(), 0.05);
            let (model_share, run_share) = (model.local / model.requests, run.local / run.requests);
            assert!((model_share - run_share).abs() < 0.02, "{what}: {model_share} {run_share}");
            assert_close(&format!("admitted, {what}"), model.admitted, run.admitted, 0.05);
        }
    }
}

#[test]
fn sample_of_many_nodes_agrees_with_run_of_all() {
    for limit in [UNREACHED, "2000/s burst 4000"] {
        let case = case(16, 40, 40_000.0, limit);
        for [model, run] in case.check(2.0).unwrap().pairs {
            let what = format!("{} {case}", model.mode.name());
            assert_close(&what, model.calls.sum(), run.calls.sum(), 0.08);
        }
    }
}

#[test]
fn same_case_gives_same_estimate() {
    let case = case(3, 200, 30_000.0, "500/s");
    assert_eq!(estimate(&case, Mode::Leased), estimate(&case, Mode::Leased));
}

#[test]
fn table_shows_all_modes() {
    let options = "--nodes 2 --keys 10 --rate 2k --limit 500/s".split(' ').map(str::to_owned);
    let case = parse_options(options).unwrap().case;
    let quick = ScaleCase { sampled_requests: 2_000.0, ..case };
    let table = quick.estimate().unwrap().to_string();
    for word in ["2 nodes", "10 keys", "exact", "leased", "async", "Redis shards", "500/s"] {
        assert!(table.contains(word), "{word}:\n{table}");
    }
}
