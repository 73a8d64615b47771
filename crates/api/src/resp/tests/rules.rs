//! Tests the `TIDEGATE.…` commands: facts, options, the reply's map, and authorization.

use super::{LOCAL_IP, REMOTE_IP, clock, encode_request, fixture};
use tidegate_core::time::Micros;

const RULES: &str = "rules:
  - { id: ten, match: { api_key: '*' }, key_by: api_key, limit: 10/h }
  - { id: shut, match: { path: /shut }, key_by: global, limit: { requests: deny } }
  - { id: line, match: { path: /line }, key_by: global, limit: { requests: 10, window: 1s, burst: 3, algorithm: leaky_bucket, queue: true } }
  - { id: slots, match: { path: /slots }, key_by: global, limit: { concurrent: 2 } }";

#[test]
fn check_replies_like_v1_check() {
    let mut client = fixture(&clock(), RULES, LOCAL_IP, None);
    assert_eq!(
        client.send_command("TIDEGATE.CHECK api_key k"),
        "*16 $7 allowed :1 $4 rule $3 ten $5 limit :10 $9 remaining :9 $14 reset_after_ms :360000 \
         $14 retry_after_ms :0 $13 charged_at_us :1700000000000000 $11 answered_by $5 store"
    );
    client.send_command("HELLO 3");
    assert_eq!(
        client.send_command("tidegate.check api_key k COST 10"),
        "%8 $7 allowed #f $4 rule $3 ten $5 limit :10 $9 remaining :9 $14 reset_after_ms :360000 \
         $14 retry_after_ms :360000 $13 charged_at_us _ $11 answered_by $5 store"
    );
    assert!(
        client.send_command("TIDEGATE.CHECK api_key k cost 11").contains("retry_after_ms _"),
        "never"
    );
    let unmatched = client.send_command("TIDEGATE.CHECK ip 1.2.3.4");
    assert!(unmatched.contains("allowed #t $4 rule _ $5 limit _ $9 remaining _"), "{unmatched}");
    let shut = client.send_command("TIDEGATE.CHECK path /shut");
    assert!(shut.contains("allowed #f $4 rule $4 shut $5 limit _"), "{shut}");
}

#[test]
fn peek_keeps_and_reset_clears_counters() {
    let mut client = fixture(&clock(), RULES, LOCAL_IP, None);
    assert!(client.send_command("TIDEGATE.CHECK api_key k COST 4").contains("remaining :6"));
    for _ in 0..2 {
        assert!(client.send_command("TIDEGATE.PEEK api_key k COST 6").contains("allowed :1"));
        assert!(
            client.send_command("TIDEGATE.PEEK api_key k COST 7 RULE ten").contains("allowed :0")
        );
    }
    assert!(
        client.send_command("TIDEGATE.RESET api_key k rule shut").contains("rule $-1"),
        "the rule does not apply to these facts"
    );
    assert!(client.send_command("TIDEGATE.PEEK api_key k").contains("remaining :6"));
    let keyless = client.send_command("TIDEGATE.RESET user_id 7 RULE ten");
    assert!(keyless.starts_with("-ERR rule `ten` is keyed by facts that are missing: `api_key`"));
    assert!(client.send_command("TIDEGATE.RESET api_key k").contains("remaining :10"));
    assert!(client.send_command("TIDEGATE.CHECK path /slots").contains("remaining :1"));
    assert!(
        client.send_command("TIDEGATE.RESET api_key k").contains("remaining :10"),
        "resets only this client's counters"
    );
    assert!(client.send_command("TIDEGATE.PEEK path /slots").contains("remaining :1"));
}

#[test]
fn invalid_rule_command_charges_nothing() {
    let mut client = fixture(&clock(), RULES, LOCAL_IP, None);
    for (command, why) in [
        (
            "TIDEGATE.CHECK",
            "wrong number of arguments for 'tidegate.check' command; usage: TIDEGATE",
        ),
        ("TIDEGATE.CHECK api_key", "wrong number of arguments"),
        ("TIDEGATE.CHECK api_key k COST", "'COST' has no value; send facts and options in pairs"),
        ("TIDEGATE.CHECK api_key k COST 0", "COST must be a whole number from 1 to 4294967295"),
        ("TIDEGATE.CHECK api_key k COST 4294967296", "COST must be a whole number"),
        ("TIDEGATE.CHECK api_key k COST x", "COST must be a whole number"),
        ("TIDEGATE.CHECK api_key k COST 1 cost 1", "duplicate COST"),
        ("TIDEGATE.CHECK api_key k RULE ten", "RULE is not an option of this command"),
        ("TIDEGATE.RESET api_key k COST 1", "COST is not an option of this command"),
        ("TIDEGATE.PEEK api_key k RULE none", "RULE: no rule has this id"),
        ("TIDEGATE.CHECK api_key k api_key l", "api_key: the fact is given more than once"),
        ("TIDEGATE.CHECK api_key k ip 1.2.3", "ip: not an IPv4 or IPv6 address"),
        ("TIDEGATE.CHECK api_key k path x", "path: "),
    ] {
        let reply = client.send_command(command);
        assert!(reply.starts_with(&format!("-ERR {why}")), "{command}: {reply}");
    }
    let (reply, _) = client.process_now(&encode_request(&[b"TIDEGATE.CHECK", b"api_key", b"\xff"]));
    assert!(reply.ends_with("is not UTF-8\r\n"), "{reply}");
    assert!(client.send_command("TIDEGATE.PEEK api_key k").contains("remaining :10"));
}

#[test]
fn queued_request_is_refused_with_wait() {
    let clock = clock();
    let mut client = fixture(&clock, RULES, LOCAL_IP, None);
    assert!(client.send_command("TIDEGATE.CHECK path /line").contains("allowed :1"));
    let refused = client.send_command("TIDEGATE.CHECK path /line");
    assert!(
        refused.contains("allowed :0 $4 rule $4 line $5 limit :3 $9 remaining :2"),
        "{refused}"
    );
    assert!(refused.contains("retry_after_ms :100"), "{refused}");
    clock.advance(Micros::from_millis(100));
    assert!(client.send_command("TIDEGATE.CHECK path /line").contains("allowed :1"));
}

#[test]
fn concurrency_slot_is_held_until_hold_expires() {
    let clock = clock();
    let mut client = fixture(&clock, RULES, LOCAL_IP, None);
    assert!(client.send_command("TIDEGATE.CHECK path /slots").contains("allowed :1"));
    assert!(client.send_command("TIDEGATE.CHECK path /slots").contains("allowed :1"));
    assert!(client.send_command("TIDEGATE.CHECK path /slots").contains("allowed :0"));
    clock.advance(Micros::from_secs(3_600));
    assert!(client.send_command("TIDEGATE.CHECK path /slots").contains("allowed :1"));
}

#[test]
fn remote_caller_without_token_may_check() {
    let mut client = fixture(&clock(), RULES, REMOTE_IP, None);
    assert!(client.send_command("TIDEGATE.CHECK api_key k").contains("allowed :1"));
    assert!(client.send_command("CL.THROTTLE k 1 1 1").starts_with("*5"));
    for guarded in ["TIDEGATE.PEEK api_key k", "TIDEGATE.RESET api_key k"] {
        let reply = client.send_command(guarded);
        assert!(reply.starts_with("-NOPERM") && reply.contains("--admin-token-file"), "{reply}");
    }
    assert!(client.send_command("TIDEGATE.CHECK api_key k").contains("remaining :8"));
}
