//! Rules that change while the gateway runs.

use tidegate_testkit::nginx::Nginx;

use crate::support::{Folder, Server, wait_for};

#[test]
fn an_edited_file_takes_effect_and_keeps_what_was_used() {
    let nginx = Nginx::start("return 200 well;");
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 5/d }]");
    let server = Server::gateway_with(&rules, &["--upstream", &nginx.url()]);
    let mut client = server.visitor();
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("4"));
    folder.replace("rules.yaml", "rules: [{ id: a, key_by: ip, limit: 3/d }]");
    server.wait_log("rules reloaded");
    assert_eq!(client.get("/").header("x-ratelimit-remaining"), Some("1"), "one of three was used");
    // Whose counter it is may change as well, with the reader of identities.
    folder.replace(
        "rules.yaml",
        "identity: { api_key: { header: x-api-key } }\n\
         rules: [{ id: a, key_by: api_key, limit: 3/d }]",
    );
    wait_for("the second reload", || {
        (server.log().matches("rules reloaded").count() == 2).then_some(())
    });
    let key = [("x-api-key", "anna")];
    assert_eq!(client.get_with("/", &key).header("x-ratelimit-remaining"), Some("2"));
    folder.replace("rules.yaml", "rules: [{ id: a, key_by: ip, limit: oops }]");
    server.wait_log("rules not reloaded");
    assert_eq!(client.get_with("/", &key).header("x-ratelimit-remaining"), Some("1"));
}
