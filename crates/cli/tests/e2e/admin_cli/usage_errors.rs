//! What newcomers do wrong, and what they are told.

use super::{AdminCliFixture, RULES};

#[test]
fn unknown_rule_suggests_similar_name() {
    let office = AdminCliFixture::start();
    for args in [
        &["rules", "get", "per-usr"][..],
        &["rules", "delete", "per-usr", "--yes"],
        &["rules", "enable", "per-usr"],
        &["rules", "disable", "per-usr"],
    ] {
        office
            .run(args)
            .assert_failed(1, &["there is no rule `per-usr`; did you mean `per-user`?"]);
    }
    office
        .run(&["rules", "get", "a/b?c=%d"])
        .assert_failed(1, &["no rule `a/b?c=%d`", "rules list"]);
}

#[test]
fn wrong_listener_address_is_explained() {
    let office = AdminCliFixture::start();
    let (http, resp) = (&office.server.address, &office.server.resp);
    for args in
        [&["rules", "list"][..], &["rules", "get", "writes"], &["violations"], &["rules", "export"]]
    {
        let ended = office.run(&[args, &["--admin", http]].concat());
        ended.assert_failed(3, &["is not the admin API", "listening admin", "--admin URL"]);
        office
            .run(&[args, &["--admin", resp]].concat())
            .assert_failed(3, &["no answer from", "--admin URL"]);
    }
    office
        .run(&["rules", "list", "--admin", "https://example.org"])
        .assert_failed(2, &["plain HTTP"]);
}

#[test]
fn unreachable_admin_api_exits_with_code_3() {
    let office = AdminCliFixture::start();
    // Nobody listens on port 1 of loopback.
    let ended = office.run(&["rules", "list", "--admin", "127.0.0.1:1"]);
    ended.assert_failed(
        3,
        &["no answer from http://127.0.0.1:1", "tidegate serve", "TIDEGATE_ADMIN_URL"],
    );
    office
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
    let office = AdminCliFixture::start_with(RULES, &tokens);
    let list = ["rules", "list"];
    office.run(&list).assert_failed(3, &["asks for a token", "--token-file FILE"]);
    office.run(&["rules", "get", "x"]).assert_failed(3, &["asks for a token"]);
    office
        .run(&[&list[..], &["--token-file", &wrong]].concat())
        .assert_failed(3, &["asks for a token"]);
    office.run_ok(&[&list[..], &["--token-file", &read]].concat());
    let disable = ["rules", "disable", "quiet", "--token-file"];
    office.run(&[&disable[..], &[&read]].concat()).assert_failed(3, &["this token is for reading"]);
    office.run_ok(&[&disable[..], &[&write]].concat());
    let missing = office.run(&[&list[..], &["--token-file", "no-such-file"]].concat());
    missing.assert_failed(3, &["cannot read no-such-file for --token-file"]);
}
