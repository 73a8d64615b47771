//! The counter key of a request, and the effect of a reload on it.

use crate::common::{compile, facts};
use tidegate_core::key::{Fingerprint, Key, Secret};
use tidegate_core::time::Timestamp;
use tidegate_rules::{Document, RequestKeys, RuleSet};

fn key(set: &RuleSet, pairs: &[(&str, &str)]) -> Fingerprint {
    set.rules()[0].fingerprint(&facts(pairs), set)
}

fn keyed_by(parts: &str) -> RuleSet {
    compile(&format!("facts: [a, b, c]\nrules: [{{ id: r, key_by: {parts}, limit: 1/s }}]"))
}

#[test]
fn rule_key_parts_are_length_delimited() {
    let set = keyed_by("[a, b]");
    let one = key(&set, &[("a", "x"), ("b", "y_z")]);
    assert_ne!(one, key(&set, &[("a", "x_y"), ("b", "z")]));
    assert_ne!(one, key(&set, &[("a", "y_z"), ("b", "x")]));
    assert_eq!(one, key(&set, &[("b", "y_z"), ("c", "w"), ("a", "x"), ("a", "2")]));
    assert_ne!(key(&keyed_by("[a]"), &[("a", "x")]), key(&keyed_by("[b]"), &[("b", "x")]));
}

/// Allows a store to keep all counters of one owner together.
#[test]
fn same_key_parts_share_one_owner() {
    let set = compile(
        "rules:\n\
         - { id: second, key_by: user_id, limit: 1/s }\n\
         - { id: hour, key_by: user_id, limit: 9/h }\n\
         - { id: address, key_by: ip, limit: 1/s }\n\
         - { id: all, key_by: global, limit: 1/s }\n\
         - { id: everybody, key_by: global, limit: 1/s }\n\
         - { id: day, key_by: user_id, limit: 99/d }",
    );
    let facts = facts(&[("user_id", "u"), ("ip", "192.0.2.1")]);
    let mut request_keys = RequestKeys::new(&set, &facts);
    let keys: Vec<_> = set.rules().iter().map(|rule| request_keys.key(rule)).collect();
    for (at, (key, rule)) in keys.iter().zip(set.rules()).enumerate() {
        assert_eq!(*key, rule.key(rule.fingerprint(&facts, &set)), "{}", rule.id());
        let others = keys[..at].iter().map(|other| other.fingerprint);
        assert!(!others.into_iter().any(|other| other == key.fingerprint), "{}", rule.id());
    }
    let owners: Vec<_> = keys.iter().map(Key::owner).collect();
    assert_eq!([owners[1], owners[5]], [owners[0]; 2]);
    let distinct = [owners[0], owners[2], owners[3], owners[4]];
    assert!(distinct.iter().enumerate().all(|(at, owner)| !distinct[..at].contains(owner)));
}

#[test]
fn missing_key_part_falls_back_to_ip() {
    let set = keyed_by("api_key");
    let by_ip = key(&set, &[("ip", "192.0.2.1")]);
    assert_eq!(by_ip, key(&set, &[("ip", "192.0.2.1"), ("api_key", "")]), "empty is missing");
    assert_ne!(by_ip, key(&set, &[("ip", "192.0.2.2")]));
    assert_ne!(by_ip, key(&set, &[("ip", "192.0.2.1"), ("api_key", "192.0.2.1")]));
    assert_eq!(
        key(&set, &[]),
        key(&set, &[("user_id", "u")]),
        "all requests without an address share one key"
    );
    let rule = &set.rules()[0];
    let parts = rule.key_parts(&facts(&[("ip", "192.0.2.1")]), &set);
    assert_eq!(parts, [("ip".to_owned(), "192.0.2.1".to_owned())]);
}

#[test]
fn ipv6_clients_are_keyed_by_prefix() {
    let set = keyed_by("ip");
    let at = |ip| key(&set, &[("ip", ip)]);
    assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:ffff:ffff:ffff"));
    assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
    assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    assert_ne!(at("unparsable"), at("unreadable"));
    let parts = set.rules()[0].key_parts(&facts(&[("ip", "2001:db8::1")]), &set);
    assert_eq!(parts[0].1, "2001:db8::/64");

    let narrow = "identity: { ip: { ipv6_prefix: 128 } }\nrules: [{ id: r, limit: 1/s }]";
    let set = compile(narrow);
    assert_ne!(key(&set, &[("ip", "2001:db8::1")]), key(&set, &[("ip", "2001:db8::2")]));
}

#[test]
fn endpoint_key_uses_most_specific_pattern() {
    let set = compile(
        "endpoints: ['/users/{id}', '/users/me', '*']\n\
         rules:\n\
         - { id: r, key_by: 'user_id:endpoint', limit: 1/s }\n\
         - { id: s, match: { endpoint: 'POST /users/*' }, limit: 1/s }",
    );
    let part = |method, path| {
        let request = facts(&[("user_id", "u"), ("method", method), ("path", path)]);
        set.rules()[0].key_parts(&request, &set)[1].1.clone()
    };
    assert_eq!(part("GET", "/users/7"), "GET /users/{id}");
    assert_eq!(part("GET", "/users/me"), "GET /users/me");
    assert_eq!(part("POST", "/users/7/photo"), "POST /users/*");
    assert_eq!(part("GET", "/users/7/photo"), "GET /users/7/photo", "not declared for GET");
    let at = |pairs: &[_]| key(&set, pairs);
    let derived = at(&[("user_id", "u"), ("method", "GET"), ("path", "/users/7")]);
    assert_eq!(derived, at(&[("user_id", "u"), ("method", "GET"), ("path", "/users/8")]));
    assert_eq!(derived, at(&[("user_id", "u"), ("endpoint", "GET /users/{id}")]));
    assert_ne!(derived, at(&[("user_id", "u"), ("method", "PUT"), ("path", "/users/7")]));
    let nowhere = at(&[("user_id", "u"), ("ip", "192.0.2.1")]);
    assert_ne!(nowhere, at(&[("user_id", "u"), ("ip", "192.0.2.2")]), "falls back to the address");
}

#[test]
fn limit_change_keeps_counter_key() {
    let rule = |text: &str| compile(&format!("rules: [{text}]"));
    let at = |text: &str| key(&rule(text), &[("ip", "192.0.2.1")]);
    let first = at("{ id: r, limit: 10/s }");
    assert_eq!(first, at("{ id: r, limit: 99/s burst 5, cost: 2, on_fail: deny }"));
    assert_ne!(first, at("{ id: r, limit: 10/m }"));
    assert_ne!(first, at("{ id: r, limit: 10/s using fixed_window }"));
    assert_ne!(first, at("{ id: q, limit: 10/s }"));
    let document = Document::parse("f", "rules: [{ id: r, limit: 10/s }]").unwrap();
    let other = RuleSet::compile(&document, Secret::from_bytes(b"fleet")).unwrap();
    assert_ne!(first, key(&other, &[("ip", "192.0.2.1")]));
}

#[test]
fn unchanged_policy_keeps_effective_time() {
    let at = Timestamp::from_micros;
    let load = |text: &str| compile(&format!("rules: [{text}]"));
    let since =
        |set: &RuleSet, rule: usize| set.rules()[rule].limit().policy().unwrap().effective_since();
    let first = load("{ id: a, limit: 10/s }, { id: b, limit: 10/s, mode: warn }");
    assert_eq!(since(&first, 0), Timestamp::EPOCH);
    let second =
        load("{ id: b, limit: 10/s, mode: warn }, { id: a, limit: 20/s }, { id: c, limit: 1/s }");
    let second = second.inherit_from(&first, at(100));
    assert_eq!((since(&second, 0), since(&second, 1)), (Timestamp::EPOCH, at(100)));
    assert_eq!(since(&second, 2), at(100));
    assert_eq!(
        second.rules()[0].mode().warning_policy().unwrap().effective_since(),
        Timestamp::EPOCH
    );
    let third = load("{ id: a, limit: 20/s }, { id: b, limit: 10/m, mode: warn }");
    let third = third.inherit_from(&second, at(200));
    assert_eq!((since(&third, 0), since(&third, 1)), (at(100), at(200)));
}

#[test]
fn version_depends_on_document_text() {
    let version = |text: &str| compile(text).version();
    assert_eq!(version("rules: [1/s]"), version("rules: [1/s]"));
    assert_ne!(version("rules: [1/s]"), version("rules: [2/s]"));
}
