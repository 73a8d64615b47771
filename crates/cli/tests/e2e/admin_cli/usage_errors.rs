//! Common mistakes, and the error messages that explain them.

use super::{AdminCliFixture, RULES};

#[test]
fn unknown_rule_suggests_similar_name() {
    let fixture = AdminCliFixture::start();
    for args in [
        &["rules", "get", "per-usr"][..],
        &["rules", "delete", "per-usr", "--yes"],
        &["rules", "enable", "per-usr"],
        &["rules", "disable", "per-usr"],
    ] {
        fixture
            .run(args)
            .assert_failed(1, &["there is no rule `per-usr`; did you mean `per-user`?"]);
    }
    fixture
        .run(&["rules", "get", "a/b?c=%d"])
        .assert_failed(1, &["no rule `a/b?c=%d`", "rules list"]);
}

#[test]
fn wrong_listener_address_is_explained() {
    let fixture = AdminCliFixture::start();
    let (http, resp) = (&fixture.server.address, &fixture.server.resp);
    for args in
        [&["rules", "list"][..], &["rules", "get", "writes"], &["violations"], &["rules", "export"]]
    {
        let ended = fixture.run(&[args, &["--admin", http]].concat());
        ended.assert_failed(3, &["is not the admin API", "listening admin", "--admin URL"]);
        fixture
            .run(&[args, &["--admin", resp]].concat())
            .assert_failed(3, &["no answer from", "--admin URL"]);
    }
    fixture
        .run(&["rules", "list", "--admin", "https://example.org"])
        .assert_failed(2, &["plain HTTP"]);
}

#[test]
fn unreachable_admin_api_exits_with_code_3() {
    let fixture = AdminCliFixture::start();
    // No process listens on port 1 of the loopback address.
    let ended = fixture.run(&["rules", "list", "--admin", "127.0.0.1:1"]);
    ended.assert_failed(
        3,
        &["no answer from http://127.0.0.1:1", "tidegate serve", "TIDEGATE_ADMIN_URL"],
    );
    fixture
        .run(&["rules", "apply", "no-such-file.yaml"])
        .assert_failed(3, &["cannot read no-such-file.yaml"]);
}

#[test]
fn read_token_cannot_change_rules() {
    let folder = crate::support::TestFolder::new();
    let [write, read, wrong] = ["write", "read", "wrong"]
        .map(|name| folder.write(name, format!("{name}-token-of-many-bytes\n")))
        .map(|path| path.to_str().unwrap().to_owned());
    let tokens = ["--admin-token-file", &write, "--admin-read-token-file", &read];
    let fixture = AdminCliFixture::start_with(RULES, &tokens);
    let list = ["rules", "list"];
    fixture.run(&list).assert_failed(3, &["requires a token", "--token-file FILE"]);
    fixture.run(&["rules", "get", "x"]).assert_failed(3, &["requires a token"]);
    fixture
        .run(&[&list[..], &["--token-file", &wrong]].concat())
        .assert_failed(3, &["requires a token"]);
    fixture.run_ok(&[&list[..], &["--token-file", &read]].concat());
    let disable = ["rules", "disable", "quiet", "--token-file"];
    fixture.run(&[&disable[..], &[&read]].concat()).assert_failed(3, &["this token is read-only"]);
    fixture.run_ok(&[&disable[..], &[&write]].concat());
    let missing = fixture.run(&[&list[..], &["--token-file", "no-such-file"]].concat());
    missing.assert_failed(3, &["cannot read no-such-file for --token-file"]);
}
