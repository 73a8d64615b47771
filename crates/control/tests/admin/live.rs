//! What goes on, told to whoever watches.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::Value as Json;
use tidegate_control::admin::Outgoing;
use tidegate_control::live::MOST_LISTENERS;

use crate::house::House;

const RULES: &str = "rules: [{ id: few, key_by: ip, limit: 1/h using fixed_window }]";

/// The next event: its name and data. None when there will be no more.
async fn next(feed: &mut Outgoing) -> Option<(String, Json)> {
    let frame = feed.frame().await?.expect("events do not fail");
    let text = String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text");
    let rest = text.strip_prefix("event: ").expect("a name");
    let (name, rest) = rest.split_once("\ndata: ").expect("data");
    let data = rest.strip_suffix("\n\n").expect("the end of an event");
    Some((name.to_owned(), serde_json::from_str(data).expect("JSON")))
}

/// The next event of a name.
async fn until(feed: &mut Outgoing, wanted: &str) -> Json {
    loop {
        let (name, data) = next(feed).await.expect("another event");
        if name == wanted {
            return data;
        }
    }
}

#[tokio::test]
async fn counts_come_at_once_and_violations_as_they_happen() {
    let house = House::with(RULES).await;
    let (status, mut feed) = house.listen().await;
    assert_eq!(status, 200);
    let (name, tick) = next(&mut feed).await.expect("an event");
    assert_eq!((name.as_str(), &tick["office"]["version"]), ("tick", &Json::from(1)));
    for _ in 0..60 {
        house.check("ip", "192.0.2.7").await;
    }
    let told = until(&mut feed, "violations").await;
    assert_eq!(told["list"][0]["rule"], "few");
    // The first passes; of the others as many are told as there is room for, and the rest counted.
    let listed = told["list"].as_array().expect("a list").len() as u64;
    assert_eq!(listed + told["skipped"].as_u64().expect("a number"), 59);
    assert!(listed < 59, "{listed}");
    assert!(until(&mut feed, "tick").await["at_us"].as_u64() >= tick["at_us"].as_u64());
}

#[tokio::test]
async fn so_many_may_listen_and_who_leaves_makes_room() {
    let house = House::empty().await;
    let mut feeds = Vec::new();
    for _ in 0..MOST_LISTENERS {
        let (status, feed) = house.listen().await;
        assert_eq!(status, 200);
        feeds.push(feed);
    }
    let (status, told) = house.listen().await;
    // Events would have no end to wait for.
    assert_eq!(status, 503);
    let told: Bytes = told.collect().await.expect("a body").to_bytes();
    assert!(String::from_utf8_lossy(&told).contains("close a dashboard somewhere"), "{told:?}");
    feeds.pop();
    assert_eq!(house.listen().await.0, 200);
}

#[tokio::test]
async fn it_ends_with_the_process_and_begins_anew_after_everybody_left() {
    let house = House::with(RULES).await;
    let (_, feed) = house.listen().await;
    drop(feed);
    let (_, mut feed) = house.listen().await;
    until(&mut feed, "tick").await;
    // One of its own making, besides the first that comes at once.
    until(&mut feed, "tick").await;
    house.status.drain();
    // It would wait for ever otherwise.
    while next(&mut feed).await.is_some() {}
}
