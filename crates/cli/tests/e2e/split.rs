//! A split rule of a real node on a real cluster: answers, headers, `explain` and `reset`.

use serde_json::json;
use tidegate_testkit::redis::RedisCluster;

use crate::admin_cli::AdminCliFixture;
use crate::support::http_client::HttpTestResponse;

const LIMIT: u64 = 80;

/// Windows that do not end within the test.
const RULES: &str = "\
rules:
  - { id: hot, key_by: global, limit: { requests: 80, window: 365d }, split: 4 }
  - { id: user, key_by: user_id, limit: { requests: 500, window: 365d } }
";

fn number(response: &HttpTestResponse, header: &str) -> u64 {
    response.header(header).unwrap().parse().unwrap()
}

#[test]
fn split_rule_on_cluster_counts_all_parts() {
    let cluster = RedisCluster::start();
    let seeds = cluster.urls().join(",").replace("redis://", "");
    let store = format!("redis+cluster://{seeds}");
    let args = ["--store", &store, "--store-deadline", "2s"];
    let fixture = AdminCliFixture::start_with(RULES, &args);
    let mut client = fixture.server.client();
    let facts = json!({ "user_id": "ann" });
    let first = client.check(&facts);
    assert_eq!(first.body["limit"], LIMIT);
    assert_eq!(
        (number(&first, "x-ratelimit-limit"), number(&first, "x-ratelimit-remaining")),
        (LIMIT, 19),
        "the part that was charged"
    );
    let mut check = || (0..300).filter(|_| client.check(&facts).status == 200).count() as u64;
    assert_eq!(1 + check(), LIMIT, "and nobody but ann is charged for it");
    let refused = fixture.server.client().check(&facts);
    assert_eq!((refused.status, number(&refused, "x-ratelimit-remaining")), (429, 0));
    assert!(number(&refused, "retry-after") > 0);
    let peek = || {
        let body = fixture.server.client().post("/v1/peek", r#"{"facts":{"user_id":"ann"}}"#).body;
        let rules = body["rules"].as_array().unwrap().clone();
        rules.iter().map(|rule| rule["remaining"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(peek(), [0, 500 - LIMIT]);
    let server = format!("http://{}", fixture.server.address);
    let explained = fixture.run(&["explain", "--server", &server, "user_id=ann"]).stdout;
    for expected in ["split (4 parts)", "at most 160 in any", "0 of 80 left"] {
        assert!(explained.contains(expected), "{expected}\n{explained}");
    }
    // Parts are on all shards; a reset clears each of them.
    let shards = cluster.nodes()[..3].iter().filter(|node| {
        let keys = node.command(&["KEYS", "tg:{*"]);
        // The hash has 22 characters, and a part two more.
        keys.items().iter().any(|key| key.text().len() == "tg:{}".len() + 24)
    });
    assert_eq!(shards.count(), 3);
    fixture.run_ok(&["reset", "hot", "user_id=ann"]);
    assert_eq!(peek(), [LIMIT, 500 - LIMIT]);
    assert_eq!(check(), LIMIT);
    fixture.run_ok(&["reset", "hot", "--all", "--yes"]);
    assert_eq!(peek(), [LIMIT, 500 - 2 * LIMIT]);
    assert_eq!(check(), LIMIT);
}
