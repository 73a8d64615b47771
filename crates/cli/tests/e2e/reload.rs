//! Rule changes while the server runs, for every way in which a file can change.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::{ServerProcess, TestFolder, run_tidegate, utf8_text, wait_for};

fn document_with_rule(id: &str) -> String {
    format!("rules:\n  - {{ id: {id}, limit: 100/h }}\n")
}

/// Waits until this rule decides requests.
#[track_caller]
fn wait_for_rule(server: &ServerProcess, id: &str) {
    let mut client = server.client();
    wait_for(&format!("rule {id}"), || {
        (client.check(&json!({ "ip": "192.0.2.1" })).rule_ids() == [id]).then_some(())
    });
}

#[test]
fn file_written_in_place_is_reloaded() {
    let folder = TestFolder::new();
    let server =
        ServerProcess::with_config(&folder.write("rules.yaml", document_with_rule("one")), &[]);
    wait_for_rule(&server, "one");
    folder.write("rules.yaml", document_with_rule("two"));
    wait_for_rule(&server, "two");
    server.wait_for_log("added two; removed one");
}

#[test]
fn renamed_file_is_reloaded_each_time() {
    let folder = TestFolder::new();
    let server =
        ServerProcess::with_config(&folder.write("rules.yaml", document_with_rule("one")), &[]);
    for id in ["two", "three", "four"] {
        folder.replace_atomically("rules.yaml", document_with_rule(id));
        wait_for_rule(&server, id);
    }
}

/// A Kubernetes ConfigMap: the file is a link through `..data`, a link that is swapped.
#[test]
fn swapped_configmap_link_is_reloaded() {
    let folder = TestFolder::new();
    let publish = |version: &str| {
        std::fs::create_dir(folder.path(version)).unwrap();
        folder
            .write(&format!("{version}/rules.yaml"), document_with_rule(version.trim_matches('.')));
        symlink(version, folder.path("..data_tmp")).unwrap();
        std::fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
    };
    publish("..one");
    symlink("..data/rules.yaml", folder.path("rules.yaml")).unwrap();
    let server = ServerProcess::with_config(&folder.path("rules.yaml"), &[]);
    wait_for_rule(&server, "one");
    for (version, old) in [("..two", "..one"), ("..three", "..two")] {
        publish(version);
        std::fs::remove_dir_all(folder.path(old)).unwrap();
        wait_for_rule(&server, version.trim_matches('.'));
    }
}

/// The target of a link may be in another folder and change there.
#[test]
fn file_behind_symlink_is_reloaded() {
    let (folder, elsewhere) = (TestFolder::new(), TestFolder::new());
    let real = elsewhere.write("real.yaml", document_with_rule("one"));
    symlink(real, folder.path("rules.yaml")).unwrap();
    let server = ServerProcess::with_config(&folder.path("rules.yaml"), &[]);
    wait_for_rule(&server, "one");
    elsewhere.write("real.yaml", document_with_rule("two"));
    wait_for_rule(&server, "two");
}

/// A watch does not notice that the whole folder is swapped; a signal is needed.
#[test]
fn sighup_reloads_swapped_folder() {
    let (folder, one, two) = (TestFolder::new(), TestFolder::new(), TestFolder::new());
    one.write("rules.yaml", document_with_rule("one"));
    two.write("rules.yaml", document_with_rule("two"));
    symlink(one.path("."), folder.path("current")).unwrap();
    let server = ServerProcess::with_config(&folder.path("current/rules.yaml"), &[]);
    wait_for_rule(&server, "one");
    symlink(two.path("."), folder.path("next")).unwrap();
    std::fs::rename(folder.path("next"), folder.path("current")).unwrap();
    server.signal("HUP");
    wait_for_rule(&server, "two");
}

#[test]
fn invalid_file_keeps_last_good_rules() {
    let folder = TestFolder::new();
    let server =
        ServerProcess::with_config(&folder.write("rules.yaml", document_with_rule("one")), &[]);
    let ready = |server: &ServerProcess| server.client().get("/readyz").body;
    let version = ready(&server)["rules_version"].clone();
    for (contents, place, words) in [
        (
            "rules: [{ id: two, limit: 10/fortnight }]",
            "the rules are not valid: line 1 (rules[0].limit); see the log for the reason",
            "this is not a window",
        ),
        (
            "\nrules: [{ id: three, key_bi: ip, limit: 10/s }]",
            "the rules are not valid: line 2 (rules[0].key_bi); see the log for the reason",
            "unknown field",
        ),
        (
            "",
            "the document no longer has any rules",
            "no longer has any rules, which would lift all 1 limits",
        ),
        ("rules: []", "the document no longer has any rules", "no longer has any rules"),
    ] {
        folder.replace_atomically("rules.yaml", contents);
        let body = wait_for("the error in /readyz", || {
            let body = ready(&server);
            (body["reload_error"] == place).then_some(body)
        });
        assert_eq!(body["status"], "degraded");
        assert_eq!(body["rules_version"], version);
        server.wait_for_log(words);
        assert!(server.log().contains("the previous rules stay active"));
        wait_for_rule(&server, "one");
    }
    std::fs::remove_file(folder.path("rules.yaml")).unwrap();
    server.wait_for_log("cannot read");
    wait_for_rule(&server, "one");
    folder.replace_atomically("rules.yaml", document_with_rule("one"));
    wait_for("/readyz to recover", || (ready(&server)["status"] == "ready").then_some(()));
    assert_eq!(ready(&server)["rules_version"], version);
}

/// Regression test: `/readyz` showed the API key on the invalid line.
#[test]
fn reload_errors_never_expose_secrets() {
    let folder = TestFolder::new();
    let server =
        ServerProcess::with_config(&folder.write("rules.yaml", document_with_rule("one")), &[]);
    let ready = || server.client().get("/readyz").body["reload_error"].clone();
    for (subjects, place) in [
        ("- { api_key: sk_live_1, tier: [pro] }", "line 2 (subjects[0])"),
        ("- sk_live_2", "line 2 (subjects[0])"),
        ("- api_key: 'sk_live_3", "line "),
    ] {
        folder.replace_atomically(
            "rules.yaml",
            format!("subjects:\n{subjects}\n{}", document_with_rule("two")),
        );
        wait_for("the error in /readyz", || ready().as_str()?.contains(place).then_some(()));
        let text = ready().to_string();
        assert!(!text.contains("sk_live"), "{text}");
    }
    folder.write("rules.yaml", "server: { store: 'redis://:sk_live_4@h:x' }\nrules: []\n");
    server.wait_for_log("server.store");
    assert!(!server.log().contains("sk_live"), "{}", server.log());
    assert!(!ready().to_string().contains("sk_live"));
    server.stop();
    let typed = run_tidegate(&["serve", "--store", "redis://:sk_live_5@h:x"]);
    assert_eq!(typed.status.code(), Some(2));
    assert!(!utf8_text(&typed.stderr).contains("sk_live"), "{}", utf8_text(&typed.stderr));
}

#[test]
fn sighup_logs_unchanged_and_invalid_files() {
    let folder = TestFolder::new();
    let server =
        ServerProcess::with_config(&folder.write("rules.yaml", document_with_rule("one")), &[]);
    server.signal("HUP");
    server.wait_for_log("nothing changed");
    folder.write("rules.yaml", "rules: 7");
    server.wait_for_log("not reloaded");
    let count_logged = || server.log().matches("not reloaded").count();
    let before = count_logged();
    server.signal("HUP");
    wait_for("the reload by signal", || (count_logged() > before).then_some(()));
}

#[test]
fn reload_keeps_flag_limits_and_defers_settings() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", document_with_rule("one"));
    let server = ServerProcess::with_config(&file, &["--limit", "7/h"]);
    folder.write(
        "rules.yaml",
        format!("server: {{ reset_style: delta }}\n{}", document_with_rule("two")),
    );
    server.wait_for_log("take effect after a restart");
    let response = server.client().check(&json!({ "ip": "192.0.2.1" }));
    assert_eq!(response.rule_ids().len(), 2);
    assert_eq!(response.rule_ids()[0], "two");
}

/// A public key for tests only.
const PUBLIC_KEY: &str = include_str!("../../../identity/src/jwt/testdata/ed25519.pub");

fn document_with_key(id: &str) -> String {
    format!(
        "identity: {{ user_id: {{ jwt: {{ key_file: jwt.pub }} }} }}\n{}",
        document_with_rule(id)
    )
}

/// An invalid key file changes nothing; a valid one is loaded without a signal.
#[test]
fn changed_key_file_is_reloaded() {
    let folder = TestFolder::new();
    folder.write("jwt.pub", PUBLIC_KEY);
    let server =
        ServerProcess::with_config(&folder.write("rules.yaml", document_with_key("one")), &[]);
    wait_for_rule(&server, "one");
    folder.replace_atomically("jwt.pub", "not a key");
    server.wait_for_log("neither a public key (PEM) nor a key set (JWKS)");
    wait_for_rule(&server, "one");
    std::fs::remove_file(folder.path("jwt.pub")).unwrap();
    server.wait_for_log("the `key_file` of");
    folder.replace_atomically("jwt.pub", PUBLIC_KEY);
    server.wait_for_log("nothing changed");
    folder.replace_atomically("rules.yaml", document_with_key("two"));
    wait_for_rule(&server, "two");
}
