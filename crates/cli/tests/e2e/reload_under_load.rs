//! Two hundred reloads under load: each request uses one complete rule set, and an unchanged rule
//! keeps its counter.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::{HttpTestClient, ServerProcess, TestFolder, wait_for};

const RELOADS: u32 = 200;
const WORKERS: usize = 4;
/// Used up within the first reloads, so that a later reset would be noticed.
const LIMIT: u64 = 40;

/// Alternates between two documents that share one rule, each time at another position.
fn document(number: u32) -> String {
    let steady = format!(
        "  - {{ id: steady, match: {{ kind: steady }}, key_by: global, \
         limit: {{ requests: {LIMIT}, window: 1d, algorithm: sliding_window_log }} }}\n"
    );
    let name = if number.is_multiple_of(2) { "a" } else { "b" };
    let pair: String = [1, 2]
        .map(|n| format!("  - {{ id: {name}{n}, match: {{ kind: probe }}, limit: 1000000/s }}\n"))
        .concat();
    let (first, second) = if number.is_multiple_of(2) { (steady, pair) } else { (pair, steady) };
    format!("# edit {number}\nfacts: [kind]\nrules:\n{first}{second}")
}

/// Sends checks until stopped; returns how often each document decided.
fn check_until_stopped(
    server: &ServerProcess,
    stop: &AtomicBool,
    admitted: &AtomicU64,
) -> [u64; 2] {
    let (mut client, mut seen) = (server.client(), [0, 0]);
    while !stop.load(Ordering::Relaxed) {
        let response = client.check(&json!({ "kind": "probe", "ip": "192.0.2.1" }));
        match response.rule_ids()[..] {
            ["a1", "a2"] => seen[0] += 1,
            ["b1", "b2"] => seen[1] += 1,
            _ => panic!("half a rule set decided: {response:?}"),
        }
        admitted.fetch_add(check_steady_rule(&mut client), Ordering::Relaxed);
    }
    seen
}

/// Sends one request to the rule that never changes; 1 if it was admitted.
fn check_steady_rule(client: &mut HttpTestClient) -> u64 {
    let response = client.check(&json!({ "kind": "steady" }));
    assert_eq!(response.rule_ids(), ["steady"]);
    u64::from(response.status == 200)
}

fn rules_version(client: &mut HttpTestClient) -> Value {
    client.get("/readyz").body["rules_version"].clone()
}

#[test]
fn reload_is_atomic_and_keeps_counters() {
    let folder = TestFolder::new();
    let server = ServerProcess::with_config(&folder.write("rules.yaml", document(0)), &[]);
    let (stop, admitted) = (AtomicBool::new(false), AtomicU64::new(0));
    let seen = thread::scope(|scope| {
        let (server, stop, admitted) = (&server, &stop, &admitted);
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| scope.spawn(move || check_until_stopped(server, stop, admitted)))
            .collect();
        let reloading = scope.spawn(move || {
            let mut client = server.client();
            for number in 1..=RELOADS {
                let before = rules_version(&mut client);
                folder.replace_atomically("rules.yaml", document(number));
                server.signal("HUP");
                wait_for("a reload", || (rules_version(&mut client) != before).then_some(()));
            }
        });
        let reloaded = reloading.join();
        stop.store(true, Ordering::Relaxed);
        reloaded.unwrap();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let [by_a, by_b] = [0, 1].map(|at| seen.iter().map(|counts| counts[at]).sum::<u64>());
    assert!(by_a > 100 && by_b > 100, "both documents decided under load: {by_a}, {by_b}");
    let mut client = server.client();
    let admitted_later: u64 = (0..2 * LIMIT).map(|_| check_steady_rule(&mut client)).sum();
    assert_eq!(admitted.into_inner() + admitted_later, LIMIT);
    let logged = || server.log().matches("rules reloaded").count();
    wait_for("every reload to be logged", || (logged() == RELOADS as usize).then_some(()));
}
