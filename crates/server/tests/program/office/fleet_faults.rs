//! A fleet whose database, store or node goes away for a while: rules in force stay, and in the end all agree.

use serde_json::json;

use super::fleet::{Fleet, pair, told};
use super::{admin, apply, version, wait_version};
use crate::support::{Server, wait_for};

fn told_at(node: &Server) -> u64 {
    told(&mut node.client())
}

#[test]
fn postgres_is_killed_and_comes_back() {
    let fleet = Fleet::start(&pair(0));
    fleet.agree_on(1);
    for round in 1..=2 {
        fleet.database.cluster().kill();
        for node in &fleet.nodes {
            assert_eq!(told_at(node), round - 1, "the rules in force stay");
            let refused = admin(node).ask("PUT /v1/document", &[("if-match", "*")], &pair(99));
            assert_eq!(refused.status, 503, "{}", refused.body);
            wait_for("it to be told", || {
                let log = node.log();
                (log.matches("the rules database is gone").count() as u64 == round).then_some(())
            });
            let status = admin(node).get("/v1/status");
            assert_eq!((status.status, &status.body["latest"]), (200, &json!(null)));
        }
        fleet.database.cluster().restart();
        let changed = wait_for("a change", || {
            let answer =
                admin(&fleet.nodes[0]).ask("PUT /v1/document", &[("if-match", "*")], &pair(round));
            (answer.status == 200).then(|| answer.body["version"].as_u64().unwrap())
        });
        assert_eq!(changed, round + 1);
        fleet.agree_on(changed);
        fleet.nodes.iter().for_each(|node| assert_eq!(told_at(node), round));
    }
}

#[test]
fn redis_is_restarted_while_rules_change() {
    let fleet = Fleet::start(&pair(0));
    fleet.agree_on(1);
    fleet.redis.process().kill();
    // Rules come into force without the store: its clock is only asked for.
    assert_eq!(apply(&mut admin(&fleet.nodes[0]), &pair(1)), 2);
    fleet.agree_on(2);
    fleet.redis.restart();
    assert_eq!(apply(&mut admin(&fleet.nodes[1]), &pair(2)), 3);
    fleet.agree_on(3);
    for node in &fleet.nodes {
        let mut client = node.client();
        wait_for("the store", || {
            let body = client.check(&json!({"kind": "probe", "ip": "203.0.113.7"})).body;
            (body["answered_by"] == "store").then_some(())
        });
        assert_eq!(told(&mut client), 2);
    }
}

#[test]
fn a_node_that_was_stopped_catches_up() {
    let fleet = Fleet::start(&pair(0));
    fleet.agree_on(1);
    fleet.nodes[2].signal("STOP");
    for number in 1..=20 {
        apply(&mut admin(&fleet.nodes[0]), &pair(number));
    }
    wait_version(&mut admin(&fleet.nodes[1]), 21);
    // Its line to the database breaks too: what was told on it is not told again.
    fleet.database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'tidegate'",
    );
    fleet.nodes[2].signal("CONT");
    fleet.agree_on(21);
    assert_eq!(told_at(&fleet.nodes[2]), 20);
}

#[test]
fn a_node_starts_without_the_database_from_its_copy_and_catches_up() {
    let mut fleet = Fleet::start(&pair(0));
    apply(&mut admin(&fleet.nodes[0]), &pair(7));
    fleet.agree_on(2);
    let gone = fleet.nodes.pop().unwrap();
    gone.stop();
    fleet.database.cluster().kill();
    // The file says something else, and is not what counts any more.
    fleet.folder.write("rules.yaml", pair(500));
    let node = fleet.node(2);
    node.wait_log("starting with the copy of this node");
    assert_eq!((told_at(&node), version(&mut admin(&node))), (7, 2));
    fleet.database.cluster().restart();
    let changed = wait_for("a change", || {
        let answer = admin(&fleet.nodes[0]).ask("PUT /v1/document", &[("if-match", "*")], &pair(8));
        (answer.status == 200).then(|| answer.body["version"].as_u64().unwrap())
    });
    wait_version(&mut admin(&node), changed);
    assert_eq!(told_at(&node), 8);
    // By now it can change rules itself.
    assert_eq!(apply(&mut admin(&node), &pair(9)), changed + 1);
    fleet.agree_on(changed + 1);
}
