//! Every listener decides on leases, with a store behind Sentinel.

use std::process::Command;

use serde_json::json;
use tidegate_testkit::nginx::NginxServer;
use tidegate_testkit::redis::SentinelGroup;

use super::sentinel_url;
use crate::leases::metric;
use crate::support::{ServerProcess, TestFolder, call_grpc, utf8_text, wait_for};

/// The leases live long enough for a slow client.
const RULES: &str = "
rules:
  - id: all
    key_by: global
    limit: { requests: 1000000, window: 365d }
    on_fail: deny
    consistency: leased
    lease: { ttl: 5s }
";

/// Requests to each listener.
const REQUESTS: usize = 40;

#[test]
fn every_listener_decides_on_leases() {
    let (sentinels, app, folder) =
        (SentinelGroup::start(), NginxServer::start("return 200 ok;"), TestFolder::new());
    let (rules, store) = (folder.write("rules.yaml", RULES), sentinel_url(&sentinels));
    let listen = ["--gateway", "--grpc", "--resp", "--admin"].map(|name| [name, "127.0.0.1:0"]);
    let more = ["--upstream", &app.url(), "--store", &store, "--store-deadline", "2s"];
    let node = ServerProcess::with_config(&rules, &[listen.concat().as_slice(), &more].concat());
    let (mut client, mut gateway) = (node.client(), node.gateway_client());
    wait_for("the store", || (client.check(&json!({})).status == 200).then_some(()));
    for _ in 0..REQUESTS {
        assert_eq!(client.check(&json!({})).status, 200);
        assert_eq!(client.get("/v1/forward-auth").status, 200);
        assert_eq!(gateway.get("/").status, 200);
    }
    let entries = json!([{ "key": "anything", "value": "x" }]);
    let call = json!({ "domain": "any", "descriptors": [{ "entries": entries }] });
    for answer in call_grpc(&node.grpc_address(), &vec![call; REQUESTS]) {
        assert_eq!(answer["overallCode"], "OK", "{answer}");
    }
    let port = node.resp.rsplit_once(':').unwrap().1;
    let mut redis_cli = Command::new("redis-cli");
    redis_cli.args(["-p", port, "-r", &REQUESTS.to_string(), "TIDEGATE.CHECK", "a", "b"]);
    let answers = utf8_text(&redis_cli.output().unwrap().stdout);
    assert!(!answers.contains("ERR"), "{answers}");
    for api in ["http", "forward_auth", "gateway", "grpc", "resp"] {
        let labels = format!(r#"api="{api}",answered_by="lease",outcome="allowed""#);
        let leased = metric(&node, &format!("tidegate_decisions_total{{{labels}}}"));
        assert!(leased > 0, "{api}");
    }
}
