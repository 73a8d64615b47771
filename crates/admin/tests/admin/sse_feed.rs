//! The stream of live events.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::Value as Json;
use tidegate_admin::AdminBody;
use tidegate_telemetry::live_feed::MAX_LISTENERS;

use crate::fixture::AdminFixture;

const RULES: &str = "rules: [{ id: few, key_by: ip, limit: 1/h using fixed_window }]";

/// The name and data of the next event; `None` at the end of the stream.
async fn next_event(feed: &mut AdminBody) -> Option<(String, Json)> {
    let frame = feed.frame().await?.expect("events do not fail");
    let text = String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text");
    let rest = text.strip_prefix("event: ").expect("a name");
    let (name, rest) = rest.split_once("\ndata: ").expect("data");
    let data = rest.strip_suffix("\n\n").expect("the end of an event");
    Some((name.to_owned(), serde_json::from_str(data).expect("JSON")))
}

/// The data of the next event with this name.
async fn wait_for_event(feed: &mut AdminBody, wanted: &str) -> Json {
    loop {
        let (name, data) = next_event(feed).await.expect("another event");
        if name == wanted {
            return data;
        }
    }
}

#[tokio::test]
async fn feed_sends_counts_then_violations() {
    let admin = AdminFixture::with_rules(RULES).await;
    let (status, mut feed) = admin.open_live_feed().await;
    assert_eq!(status, 200);
    let (name, tick) = next_event(&mut feed).await.expect("an event");
    assert_eq!((name.as_str(), &tick["rule_set"]["version"]), ("tick", &Json::from(1)));
    for _ in 0..60 {
        admin.decide("ip", "192.0.2.7").await;
    }
    let violations = wait_for_event(&mut feed, "violations").await;
    assert_eq!(violations["list"][0]["rule"], "few");
    // The first request is allowed. An event lists only some of the 59 violations and counts the
    // rest.
    let listed = violations["list"].as_array().expect("a list").len() as u64;
    assert_eq!(listed + violations["skipped"].as_u64().expect("a number"), 59);
    assert!(listed < 59, "{listed}");
    assert!(wait_for_event(&mut feed, "tick").await["at_us"].as_u64() >= tick["at_us"].as_u64());
}

#[tokio::test]
async fn listener_slot_is_freed_on_disconnect() {
    let admin = AdminFixture::empty().await;
    let mut feeds = Vec::new();
    for _ in 0..MAX_LISTENERS {
        let (status, feed) = admin.open_live_feed().await;
        assert_eq!(status, 200);
        feeds.push(feed);
    }
    let (status, body) = admin.open_live_feed().await;
    // Check the status before collecting the body: a live stream would never end.
    assert_eq!(status, 503);
    let body: Bytes = body.collect().await.expect("a body").to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("close a dashboard tab"), "{body:?}");
    feeds.pop();
    assert_eq!(admin.open_live_feed().await.0, 200);
}

#[tokio::test]
async fn feed_restarts_when_idle_ends_on_drain() {
    let admin = AdminFixture::with_rules(RULES).await;
    let (_, feed) = admin.open_live_feed().await;
    drop(feed);
    let (_, mut feed) = admin.open_live_feed().await;
    wait_for_event(&mut feed, "tick").await;
    // The first tick is sent on connect; the second comes from the restarted timer.
    wait_for_event(&mut feed, "tick").await;
    admin.status.start_drain();
    // The stream must end; otherwise this loops forever.
    while next_event(&mut feed).await.is_some() {}
}
