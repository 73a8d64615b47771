//! Faults in a fleet: its database, store or one node fails for a while. The active rules stay in
//! force, and in the end all nodes agree.

use serde_json::json;

use super::fleet::{ProcessFleet, active_pair, paired_rules};
use super::{admin_client, apply_document, rules_version, wait_for_version};
use crate::support::{ServerProcess, wait_for};

fn active_pair_at(node: &ServerProcess) -> u64 {
    active_pair(&mut node.client())
}

#[test]
fn rules_survive_postgres_crash() {
    let fleet = ProcessFleet::start(&paired_rules(0));
    fleet.wait_for_version(1);
    for round in 1..=2 {
        fleet.database.cluster().kill();
        for node in &fleet.nodes {
            assert_eq!(active_pair_at(node), round - 1, "the active rules stay in force");
            let refused = admin_client(node).request(
                "PUT /v1/document",
                &[("if-match", "*")],
                &paired_rules(99),
            );
            assert_eq!(refused.status, 503, "{}", refused.body);
            wait_for("the log message about the database", || {
                let log = node.log();
                (log.matches("the rules database is unavailable; the active rules stay in use")
                    .count() as u64
                    == round)
                    .then_some(())
            });
            let status = admin_client(node).get("/v1/status");
            assert_eq!((status.status, &status.body["latest"]), (200, &json!(null)));
        }
        fleet.database.cluster().restart();
        let changed = wait_for("a change", || {
            let response = admin_client(&fleet.nodes[0]).request(
                "PUT /v1/document",
                &[("if-match", "*")],
                &paired_rules(round),
            );
            (response.status == 200).then(|| response.body["version"].as_u64().unwrap())
        });
        assert_eq!(changed, round + 1);
        fleet.wait_for_version(changed);
        fleet.nodes.iter().for_each(|node| assert_eq!(active_pair_at(node), round));
    }
}

#[test]
fn rule_changes_survive_redis_restart() {
    let fleet = ProcessFleet::start(&paired_rules(0));
    fleet.wait_for_version(1);
    fleet.redis.process().kill();
    // Rules take effect without the store; reading its clock is only attempted.
    assert_eq!(apply_document(&mut admin_client(&fleet.nodes[0]), &paired_rules(1)), 2);
    fleet.wait_for_version(2);
    fleet.redis.restart();
    assert_eq!(apply_document(&mut admin_client(&fleet.nodes[1]), &paired_rules(2)), 3);
    fleet.wait_for_version(3);
    for node in &fleet.nodes {
        let mut client = node.client();
        wait_for("the store", || {
            let body = client.check(&json!({"kind": "probe", "ip": "203.0.113.7"})).body;
            (body["answered_by"] == "store").then_some(())
        });
        assert_eq!(active_pair(&mut client), 2);
    }
}

#[test]
fn paused_node_catches_up() {
    let fleet = ProcessFleet::start(&paired_rules(0));
    fleet.wait_for_version(1);
    fleet.nodes[2].signal("STOP");
    for number in 1..=20 {
        apply_document(&mut admin_client(&fleet.nodes[0]), &paired_rules(number));
    }
    wait_for_version(&mut admin_client(&fleet.nodes[1]), 21);
    // Its database connection breaks too, so the notifications on it are lost.
    fleet.database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'tidegate'",
    );
    fleet.nodes[2].signal("CONT");
    fleet.wait_for_version(21);
    assert_eq!(active_pair_at(&fleet.nodes[2]), 20);
}

#[test]
fn node_starts_from_local_cache() {
    let mut fleet = ProcessFleet::start(&paired_rules(0));
    apply_document(&mut admin_client(&fleet.nodes[0]), &paired_rules(7));
    fleet.wait_for_version(2);
    // A node writes its copy after the version is active.
    let copy = fleet.folder.path("copy-2");
    wait_for("the copy of version 2", || {
        let text = std::fs::read_to_string(&copy).unwrap_or_default();
        text.contains(r#""version":2"#).then_some(())
    });
    let stopped = fleet.nodes.pop().unwrap();
    stopped.stop();
    fleet.database.cluster().kill();
    // The file differs, but the database is the source of rules.
    fleet.folder.write("rules.yaml", paired_rules(500));
    let node = fleet.start_node(2);
    node.wait_for_log("starting with this node's local copy of the rules");
    assert_eq!((active_pair_at(&node), rules_version(&mut admin_client(&node))), (7, 2));
    fleet.database.cluster().restart();
    let changed = wait_for("a change", || {
        let response = admin_client(&fleet.nodes[0]).request(
            "PUT /v1/document",
            &[("if-match", "*")],
            &paired_rules(8),
        );
        (response.status == 200).then(|| response.body["version"].as_u64().unwrap())
    });
    wait_for_version(&mut admin_client(&node), changed);
    assert_eq!(active_pair_at(&node), 8);
    // The node can change rules again.
    assert_eq!(apply_document(&mut admin_client(&node), &paired_rules(9)), changed + 1);
    fleet.wait_for_version(changed + 1);
}
