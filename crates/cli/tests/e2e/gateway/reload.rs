//! Rule reloads while the gateway runs.

use tidegate_testkit::nginx::NginxServer;

use crate::support::{ServerProcess, TestFolder, wait_for};

#[test]
fn reload_applies_limits_and_keeps_usage() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 5/d }]");
    let server = ServerProcess::start_gateway_with_config(&rules, &["--upstream", &nginx.url()]);
    let mut client = server.gateway_client();
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("4"));
    folder.replace_atomically("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 3/d }]");
    server.wait_for_log("rules reloaded");
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("1"), "usage is kept");
    // The identity may change as well, and with it the counter.
    folder.replace_atomically(
        "rules.yaml",
        "identity: { api_key: { header: x-api-key } }\n\
         rules: [{ id: a, key_by: api_key, limit: 3/d }]",
    );
    wait_for("the second reload", || {
        (server.log().matches("rules reloaded").count() == 2).then_some(())
    });
    let key = [("x-api-key", "anna")];
    assert_eq!(client.get_with("/", &key).header("x-ratelimit-remaining"), Some("2"));
    folder.replace_atomically("rules.yaml", "rules: [{ id: a, key_by: ip, limit: oops }]");
    server.wait_for_log("rules not reloaded");
    assert_eq!(client.get_with("/", &key).header("x-ratelimit-remaining"), Some("1"));
}
