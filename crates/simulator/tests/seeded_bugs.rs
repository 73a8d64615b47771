//! The simulator finds bugs that peers of this program have had. Each is switched on and must be
//! found within 10 000 seeds; most are within a few hundred.

use tidegate_simulator::{RunOptions, SeededBug, run_seed};

/// One seed in four has several regions.
const fn has_regions(seed: u64) -> bool {
    seed % 4 == 3
}

/// The first seed that finds a bug, and what it says.
fn find(bug: SeededBug) -> (u64, String) {
    find_where(bug, |seed| !has_regions(seed))
}

/// The first seed with several regions that finds a bug, and what it says.
fn find_in_regions(bug: SeededBug) -> (u64, String) {
    find_where(bug, has_regions)
}

fn find_where(bug: SeededBug, tries: fn(u64) -> bool) -> (u64, String) {
    let options = RunOptions { bug: Some(bug), keeps_trace: false };
    let mut seeds = (0..10_000).filter(|seed| tries(*seed));
    let found = seeds.find_map(|seed| Some((seed, run_seed(seed, options).violation?)));
    let (seed, violation) = found.unwrap_or_else(|| panic!("10 000 seeds do not find {bug:?}"));
    println!("{bug:?}: seed {seed}: {violation}");
    (seed, violation)
}

#[test]
fn reused_stale_verdict_is_found() {
    assert!(find(SeededBug::StaleVerdict).1.contains("no grant within"));
}

#[test]
fn expired_lease_spent_is_found() {
    assert!(find(SeededBug::ExpiredLeaseSpent).1.contains("no grant within"));
}

#[test]
fn expiry_from_answer_is_found() {
    assert!(find(SeededBug::ExpiryFromAnswer).1.contains("no grant within"));
}

#[test]
fn refund_dated_by_decision_is_found() {
    assert!(find(SeededBug::RefundDatedByDecision).1.contains("refunds"));
}

#[test]
fn repeated_flush_is_found() {
    assert!(find(SeededBug::FlushRepeated).1.contains("are sent again"));
}

#[test]
fn edit_that_resets_usage_is_found() {
    let violation = find(SeededBug::EditResetsUsage).1;
    assert!(violation.contains("above the rate") || violation.contains("admitted"), "{violation}");
}

#[test]
fn whole_limit_in_fallback_is_found() {
    let violation = find(SeededBug::WholeLimitInFallback).1;
    assert!(violation.contains("above the rate") || violation.contains("admitted"), "{violation}");
}

#[test]
fn borrowed_unit_spent_after_end_is_found() {
    assert!(find_in_regions(SeededBug::ExpiredBorrowSpent).1.contains("no grant within"));
}

#[test]
fn borrowed_unit_refunded_at_home_is_found() {
    assert!(find_in_regions(SeededBug::BorrowRefundedAtHome).1.contains("refunds"));
}

#[test]
fn loan_that_is_not_charged_is_found() {
    let violation = find_in_regions(SeededBug::LoanNotCharged).1;
    assert!(violation.contains("above the rate") || violation.contains("admitted"), "{violation}");
}

#[test]
fn share_applied_twice_after_edit_is_found() {
    assert!(find_in_regions(SeededBug::ShareAppliedTwice).1.contains("sufficient demand"));
}

#[test]
fn region_with_other_key_secret_is_found() {
    let violation = find_in_regions(SeededBug::MarkerNotChecked).1;
    assert!(violation.contains("above the rate") || violation.contains("admitted"), "{violation}");
}
