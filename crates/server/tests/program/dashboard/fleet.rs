//! What the overview tells of other nodes: which version of the rules each has in force, and who is behind or silent.

use serde_json::{Value, json};
use tidegate_testkit::postgres::Database;

use super::script::Script;
use crate::office::{admin, apply, serve};
use crate::support::{Client, Folder, Server, wait_for};

const RULES: &str = "rules: [{ id: each, key_by: ip, limit: 5/h }]";
const CHANGED: &str = "rules: [{ id: each, key_by: ip, limit: 6/h }]";

/// A node that said so a minute ago, and nothing since; its name comes after those of processes.
const SILENT: &str = "~gone";
const A_MINUTE_AGO: &str = "INSERT INTO rule_node VALUES \
     ('~gone', 1, ((extract(epoch FROM now()) - 60) * 1000000)::BIGINT)";

/// What the nodes are called, as soon as so many are on record.
fn names(admin: &mut Client, many: usize) -> Vec<Value> {
    wait_for("the nodes", || {
        let body = admin.get("/v1/status").body;
        Some(body["nodes"].as_array()?.clone()).filter(|nodes| nodes.len() == many)
    })
}

fn name_of(nodes: &[Value], node: &Server) -> Value {
    let end = format!(":{}", node.pid());
    let ours = |name: &&Value| name.as_str().unwrap().ends_with(&end);
    nodes.iter().map(|node| &node["name"]).find(ours).unwrap().clone()
}

#[test]
fn every_node_has_a_row_that_tells_its_version_and_whether_it_is_behind_or_silent() {
    let (folder, database) = (Folder::new(), Database::fresh());
    let file = folder.write("rules.yaml", RULES);
    let [one, other] = ["a", "b"].map(|name| {
        let (copy, database) = (folder.path(name), database.url());
        serve(&file, &["--rules-db", &database, "--rules-copy", copy.to_str().unwrap()])
    });
    database.sql(A_MINUTE_AGO);
    let nodes = names(&mut admin(&one), 3);
    let [here, there] = [&one, &other].map(|node| name_of(&nodes, node));
    let base = format!("http://{}", one.admin());
    let args = json!({"base": base, "here": here, "other": there, "silent": SILENT});
    let mut script = Script::start("nodes.js", &args);
    script.until("even");
    other.signal("STOP");
    apply(&mut admin(&one), CHANGED);
    script.go_on();
    script.until("behind");
    other.signal("CONT");
    script.end();
}
