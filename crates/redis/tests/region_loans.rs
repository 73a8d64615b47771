//! What a region has lent, as the borrowing nodes report it in the lender's store.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::RedisFixture;
use tidegate_redis::RegionLoan;
use tidegate_testkit::redis::{RedisCluster, RedisServer};

const THIRTY_DAYS_MS: i64 = 30 * 86_400_000;

fn loan(rule: &str, borrower: &str, granted: u64, returned: u64) -> RegionLoan {
    RegionLoan { granted, returned, ..RegionLoan::none(rule, borrower) }
}

fn add(fixture: &RedisFixture, loans: &[RegionLoan]) -> Vec<RegionLoan> {
    fixture.runtime.block_on(fixture.store.add_region_loans(loans)).expect("an answer")
}

#[test]
fn loans_of_all_borrowers_add_up() {
    let server = RedisServer::start();
    let (one, other) = (RedisFixture::connect(&server.url()), RedisFixture::connect(&server.url()));
    let large = 1 << 40;
    assert_eq!(add(&one, &[loan("r", "us", large, 0)]), [loan("r", "us", large, 0)]);
    let more = [loan("r", "us", 5, 2), loan("r", "ap", 7, 0), loan("us r", "us", 1, 1)];
    let totals = [loan("r", "us", large + 5, 2), loan("r", "ap", 7, 0), loan("us r", "us", 1, 1)];
    assert_eq!(add(&other, &more), totals);
    let read: Vec<RegionLoan> =
        totals.iter().map(|it| RegionLoan::none(&it.rule, &it.borrower)).collect();
    assert_eq!(add(&one, &read), totals);
    assert_eq!(add(&one, &[]), []);
}

#[test]
fn only_reports_extend_lifetime_of_loans() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    add(&fixture, &[loan("r", "us", 0, 0)]);
    assert_eq!(server.command(&["EXISTS", "tg:lent"]).integer(), 0, "reading creates no key");
    add(&fixture, &[loan("r", "us", 1, 0)]);
    let lifetime = || server.command(&["PTTL", "tg:lent"]).integer();
    assert!((THIRTY_DAYS_MS - 60_000..=THIRTY_DAYS_MS).contains(&lifetime()), "{}", lifetime());
    server.command(&["PEXPIRE", "tg:lent", "60000"]);
    add(&fixture, &[loan("r", "us", 0, 0)]);
    assert!(lifetime() <= 60_000, "{}", lifetime());
    add(&fixture, &[loan("r", "us", 0, 1)]);
    assert!(lifetime() > 60_000, "{}", lifetime());
}

#[test]
fn cluster_keeps_loans_in_one_place() {
    let cluster = RedisCluster::start();
    let url = format!("redis+cluster://{}", cluster.urls()[0].trim_start_matches("redis://"));
    let (one, other) = (RedisFixture::connect(&url), RedisFixture::connect(&url));
    add(&one, &[loan("r", "us", 4, 0)]);
    assert_eq!(add(&other, &[loan("r", "us", 1, 3)]), [loan("r", "us", 5, 3)]);
}
