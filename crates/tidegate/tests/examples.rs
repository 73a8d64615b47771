//! Runs the examples of this crate.

#![allow(clippy::unwrap_used, reason = "test code")]

#[allow(dead_code, reason = "the test calls the functions that `main` calls")]
#[path = "../examples/embedded.rs"]
mod embedded;

#[test]
fn embedded_limiter_refuses_fourth_message() {
    let (limiter, mut log) = (embedded::limiter().unwrap(), Vec::new());
    for user in ["ada", "ada", "bob", "ada", "ada", "bob"] {
        embedded::notify(&limiter, user, &mut log).unwrap();
    }
    let log = String::from_utf8(log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let [sent @ .., refused, last] = lines.as_slice() else { panic!("{log}") };
    assert_eq!(sent, ["ada: sent", "ada: sent", "bob: sent", "ada: sent"]);
    assert!(refused.starts_with("ada: not sent because of per-user, wait 1"), "{refused}");
    assert_eq!(*last, "bob: sent");
}
