//! The marker of a region in its store, and stores whose nodes do not count this one.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::time::Duration;

use common::{RedisFixture, options};
use tidegate_core::store::Store as _;
use tidegate_redis::{RedisOptions, RegionMarker};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::{RedisCluster, RedisServer};

const THIRTY_DAYS_MS: i64 = 30 * 86_400_000;

fn marker(region: &str, secret_check: u64) -> RegionMarker {
    RegionMarker { region: region.to_owned(), secret_check }
}

fn write(fixture: &RedisFixture, marker: &RegionMarker) -> RegionMarker {
    fixture.runtime.block_on(fixture.store.write_region_marker(marker)).expect("an answer")
}

fn read(fixture: &RedisFixture) -> Option<RegionMarker> {
    fixture.runtime.block_on(fixture.store.read_region_marker()).expect("an answer")
}

#[test]
fn marker_is_corrected_only_by_its_own_region() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    assert_eq!(read(&fixture), None);
    let (eu, rotated, us) = (marker("eu", 1), marker("eu", 2), marker("eu-2", 1));
    assert_eq!(write(&fixture, &eu), eu);
    assert_eq!(write(&fixture, &us), eu, "another region's marker is kept");
    assert_eq!(read(&fixture), Some(eu));
    assert_eq!(write(&fixture, &rotated), rotated, "the region has another key secret now");
    assert_eq!(read(&fixture), Some(rotated));
}

#[test]
fn marker_write_extends_its_lifetime() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    write(&fixture, &marker("eu", 1));
    server.command(&["PEXPIRE", "tg:region", "60000"]);
    write(&fixture, &marker("eu", 1));
    let left = server.command(&["PTTL", "tg:region"]).integer();
    assert!((THIRTY_DAYS_MS - 60_000..=THIRTY_DAYS_MS).contains(&left), "{left}");
}

#[test]
fn marker_is_found_only_under_its_prefix() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    write(&fixture, &marker("eu", 1));
    let options = RedisOptions { prefix: "other:".to_owned(), ..options(&server.url()) };
    assert_eq!(read(&RedisFixture::with_options(&options)), None);
}

#[test]
fn cluster_keeps_one_marker() {
    let cluster = RedisCluster::start();
    let url = format!("redis+cluster://{}", cluster.urls()[0].trim_start_matches("redis://"));
    let (one, other) = (RedisFixture::connect(&url), RedisFixture::connect(&url));
    write(&one, &marker("eu", 7));
    assert_eq!(write(&other, &marker("us", 7)), marker("eu", 7));
    assert_eq!(read(&other), Some(marker("eu", 7)));
}

#[test]
fn store_without_heartbeat_is_not_counted() {
    let server = RedisServer::start();
    let guest = RedisOptions { heartbeat: false, ..options(&server.url()) };
    let guest = RedisFixture::with_options(&guest);
    let member = RedisFixture::connect(&server.url());
    eventually("the member's heartbeat is stored", || {
        // Runs the member's background tasks.
        member.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        server.command(&["ZCARD", "tg:nodes"]).integer() == 1
    });
    guest.runtime.block_on(guest.store.leave());
    assert_eq!(server.command(&["ZCARD", "tg:nodes"]).integer(), 1);
    assert_eq!(guest.store.node_count(), 1);
}

#[test]
fn changed_deadline_applies_to_next_call() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    fixture.store.set_deadline(Duration::from_millis(5));
    let written = fixture.runtime.block_on(fixture.store.write_region_marker(&marker("eu", 1)));
    let error = written.expect_err("the server does not answer in time");
    assert!(error.contains("no answer within 5ms"), "{error}");
    server.command(&["CLIENT", "UNPAUSE"]);
}
