//! The nodes of a fleet in the overview: the active rule version of each, and which are behind or
//! silent.

use serde_json::{Value, json};
use tidegate_testkit::postgres::TestDatabase;

use super::browser_script::BrowserScript;
use crate::control_plane::{admin_client, apply_document, start_server};
use crate::support::{HttpTestClient, ServerProcess, TestFolder, wait_for};

const RULES: &str = "rules: [{ id: each, key_by: ip, limit: 5/h }]";
const CHANGED_RULES: &str = "rules: [{ id: each, key_by: ip, limit: 6/h }]";

/// A node whose last heartbeat was a minute ago; its name sorts after those of the processes.
const SILENT_NODE: &str = "~gone";
const INSERT_SILENT_NODE: &str = "INSERT INTO rule_node VALUES \
     ('~gone', 1, ((extract(epoch FROM now()) - 60) * 1000000)::BIGINT)";

/// The nodes in the status, once there are `count` of them.
fn wait_for_nodes(admin: &mut HttpTestClient, count: usize) -> Vec<Value> {
    wait_for("the nodes", || {
        let body = admin.get("/v1/status").body;
        Some(body["nodes"].as_array()?.clone()).filter(|nodes| nodes.len() == count)
    })
}

fn node_name(nodes: &[Value], node: &ServerProcess) -> Value {
    let end = format!(":{}", node.pid());
    let is_node = |name: &&Value| name.as_str().unwrap().ends_with(&end);
    nodes.iter().map(|node| &node["name"]).find(is_node).unwrap().clone()
}

#[test]
fn node_rows_show_version_and_lag() {
    let (folder, database) = (TestFolder::new(), TestDatabase::create());
    let file = folder.write("rules.yaml", RULES);
    let [one, other] = ["a", "b"].map(|name| {
        let (copy, database) = (folder.path(name), database.url());
        start_server(&file, &["--rules-db", &database, "--rules-copy", copy.to_str().unwrap()])
    });
    database.sql(INSERT_SILENT_NODE);
    let nodes = wait_for_nodes(&mut admin_client(&one), 3);
    let [here, there] = [&one, &other].map(|node| node_name(&nodes, node));
    let base = format!("http://{}", one.admin_address());
    let args = json!({"base": base, "here": here, "other": there, "silent": SILENT_NODE});
    let mut script = BrowserScript::start("nodes.js", &args);
    script.wait_for_line("even");
    other.signal("STOP");
    apply_document(&mut admin_client(&one), CHANGED_RULES);
    script.resume();
    script.wait_for_line("behind");
    other.signal("CONT");
    script.finish();
}
