//! Overrides for single keys, and subjects: the attributes stored for an identity.

use serde_json::json;

use super::AdminCliFixture;

const TIERS: &str = "\
identity:
  api_key: { header: x-api-key }
  tier: { subject: api_key, default: free }
rules:
  - { id: free, match: { tier: free }, key_by: api_key, limit: 1/30d using fixed_window }
  - { id: paid, match: { tier: paid }, key_by: api_key, limit: 50/30d using fixed_window }
";

/// The limit that applies to a client.
fn client_limit(fixture: &AdminCliFixture, fact: &str, value: &str) -> Option<u64> {
    let response = fixture.server.client().check(&json!({ fact: value }));
    response.body["limit"].as_u64()
}

#[test]
fn override_is_set_replaced_and_removed() {
    let fixture = AdminCliFixture::start();
    let set = ["override", "set", "per-user", "user_id=42", "--requests"];
    let out =
        fixture.run_ok(&[&set[..], &["500", "--until", "2199-12-31", "--note", "launch"]].concat());
    assert!(
        out.starts_with("set per-user:") && out.ends_with(": version 2 is in force\n"),
        "{out}"
    );
    assert_eq!(
        (client_limit(&fixture, "user_id", "42"), client_limit(&fixture, "user_id", "43")),
        (Some(500), Some(2))
    );
    let list = fixture.run_ok(&["override", "list", "--rule", "per-user"]);
    for words in ["per-user", "user_id=42", "500", "2199-12-31T23:59:59Z", "launch"] {
        assert!(list.contains(words), "{words}: {list}");
    }
    assert_eq!(fixture.run_ok(&["override", "list", "--rule", "writes"]), "no overrides\n");
    let again = [&set[..], &["600"]].concat();
    fixture.run(&again).assert_failed(2, &["There is one already. Replace it?", "--yes"]);
    fixture.run_ok(&[&again[..], &["--yes"]].concat());
    assert_eq!(client_limit(&fixture, "user_id", "42"), Some(600));
    let id =
        fixture.run_json(&["override", "list"])["overrides"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.run_ok(&["override", "rm", &id]), "removed: version 4 is in force\n");
    assert_eq!(client_limit(&fixture, "user_id", "42"), Some(2));
    fixture.run(&["override", "rm", &id]).assert_failed(1, &["there is no override"]);
}

#[test]
fn override_accepts_expiry_and_validates_key() {
    let fixture = AdminCliFixture::start();
    fixture.run_ok(&[
        "override",
        "set",
        "per-user",
        "user_id=7",
        "--requests",
        "unlimited",
        "--for",
        "30d",
    ]);
    let list = fixture.run_json(&["override", "list"]);
    assert!(list["overrides"][0]["until"].as_str().unwrap().ends_with('Z'), "{list}");
    for (args, code, words) in [
        (&["user_id=7", "--requests", "none"][..], 2, "`unlimited` or `deny`"),
        (&["user_id=7", "--requests", "0"], 2, "from 1"),
        (&["user_id=7", "--requests", "5", "--until", "soon"], 2, "2026-12-31"),
        (
            &["user_id=7", "--requests", "5", "--until", "2001-01-01"],
            2,
            "--until must be in the future",
        ),
        (&["user_id=7", "--requests", "5", "--until", "2199-01-01", "--for", "1d"], 2, "--for"),
        (&["--requests", "5"], 2, "the key of the override is missing"),
        (&["user_id=7", "user_id=8", "--requests", "5"], 2, "`user_id` is given twice"),
        (&["ip=192.0.2.1", "--requests", "5"], 1, "counts by user_id"),
    ] {
        fixture
            .run(&[&["override", "set", "per-user"], args].concat())
            .assert_failed(code, &[words]);
    }
    let wrong = fixture.run(&["override", "set", "per-usr", "user_id=7", "--requests", "5"]);
    wrong.assert_failed(1, &["there is no rule `per-usr`; did you mean `per-user`?"]);
}

#[test]
fn subject_commands_never_print_api_keys() {
    let fixture = AdminCliFixture::start_with(TIERS, &[]);
    let file = fixture.folder.write("key", "key-from-file\n");
    let file = file.to_str().unwrap();
    fixture.run_ok(&["subject", "set", "tier=paid", "--api-key-file", file]);
    fixture.run_ok(&["subject", "set", "tier=paid", "api_key=typed"]);
    let piped = fixture
        .run_with_stdin(&["subject", "set", "tier=paid", "--api-key-file", "-"], "from-stdin\n");
    assert_eq!(piped.code, Some(0), "{piped:?}");
    for (key, expected) in [("key-from-file", 50), ("typed", 50), ("from-stdin", 50), ("other", 1)]
    {
        assert_eq!(client_limit(&fixture, "api_key", key), Some(expected), "{key}");
    }
    let list = fixture.run_ok(&["subject", "list"]);
    assert_eq!(list.matches("api_key=…  tier=paid  api_key:").count(), 3, "{list}");
    let all =
        [list, fixture.run_json(&["subject", "list"]).to_string(), fixture.server.log()].concat();
    for secret in ["key-from-file", "typed", "from-stdin"] {
        assert!(!all.contains(secret), "{all}");
    }
    let again = fixture.run(&["subject", "set", "tier=free", "--api-key-file", file]);
    again.assert_failed(2, &["There is one already. Replace it?"]);
    fixture.run_ok(&["subject", "rm", "--api-key-file", file]);
    fixture.run_ok(&["subject", "rm", "api_key=typed"]);
    let id =
        fixture.run_json(&["subject", "list"])["subjects"][0]["id"].as_str().unwrap().to_owned();
    fixture.run_ok(&["subject", "rm", &id]);
    assert_eq!(fixture.run_ok(&["subject", "list"]), "no subjects\n");
    assert_eq!(client_limit(&fixture, "api_key", "from-stdin"), Some(1));
    fixture
        .run(&["subject", "rm", "api_key=typed"])
        .assert_failed(1, &["there is no subject with this api_key"]);
    fixture
        .run(&["subject", "rm", &id, "--api-key-file", file])
        .assert_failed(2, &["one or the other"]);
    fixture
        .run(&["subject", "set", "tier=paid"])
        .assert_failed(1, &["give the fact that identifies the subject"]);
}
