//! What newcomers do wrong, and what they are told.

use super::{Office, RULES};

#[test]
fn a_rule_that_is_not_there_is_told_with_the_one_that_was_meant() {
    let office = Office::open();
    for args in [
        &["rules", "get", "per-usr"][..],
        &["rules", "delete", "per-usr", "--yes"],
        &["rules", "enable", "per-usr"],
        &["rules", "disable", "per-usr"],
    ] {
        office.run(args).says(1, &["there is no rule `per-usr`; did you mean `per-user`?"]);
    }
    office.run(&["rules", "get", "a/b?c=%d"]).says(1, &["no rule `a/b?c=%d`", "rules list"]);
}

#[test]
fn the_wrong_door_is_recognised() {
    let office = Office::open();
    let (http, resp) = (&office.server.address, &office.server.resp);
    for args in
        [&["rules", "list"][..], &["rules", "get", "writes"], &["violations"], &["rules", "export"]]
    {
        let ended = office.run(&[args, &["--admin", http]].concat());
        ended.says(3, &["is not the admin API", "listening admin", "--admin URL"]);
        office
            .run(&[args, &["--admin", resp]].concat())
            .says(3, &["no answer from", "--admin URL"]);
    }
    office.run(&["rules", "list", "--admin", "https://example.org"]).says(2, &["plain HTTP"]);
}

#[test]
fn nobody_there_is_exit_code_3_and_says_what_to_start() {
    let office = Office::open();
    // Nobody listens on port 1 of loopback.
    let ended = office.run(&["rules", "list", "--admin", "127.0.0.1:1"]);
    ended.says(3, &["no answer from http://127.0.0.1:1", "tidegate serve", "TIDEGATE_ADMIN_URL"]);
    office
        .run(&["rules", "apply", "no-such-file.yaml"])
        .says(3, &["cannot read no-such-file.yaml"]);
}

#[test]
fn a_token_is_asked_for_and_one_to_read_does_not_change() {
    let folder = crate::support::Folder::new();
    let [write, read, wrong] = ["write", "read", "wrong"]
        .map(|name| folder.write(name, format!("{name}-token-of-many-bytes\n")))
        .map(|path| path.to_str().unwrap().to_owned());
    let tokens = ["--admin-token-file", &write, "--admin-read-token-file", &read];
    let office = Office::with(RULES, &tokens);
    let list = ["rules", "list"];
    office.run(&list).says(3, &["asks for a token", "--token-file FILE"]);
    office.run(&["rules", "get", "x"]).says(3, &["asks for a token"]);
    office.run(&[&list[..], &["--token-file", &wrong]].concat()).says(3, &["asks for a token"]);
    office.well(&[&list[..], &["--token-file", &read]].concat());
    let disable = ["rules", "disable", "quiet", "--token-file"];
    office.run(&[&disable[..], &[&read]].concat()).says(3, &["this token is for reading"]);
    office.well(&[&disable[..], &[&write]].concat());
    let missing = office.run(&[&list[..], &["--token-file", "no-such-file"]].concat());
    missing.says(3, &["cannot read no-such-file for --token-file"]);
}
