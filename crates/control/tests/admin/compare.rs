//! The algorithms beside each other, and who is busiest.

use serde_json::json;

use crate::house::{House, Plan};
use tidegate_control::admin::Guard;
use tidegate_edge::Token;

#[tokio::test]
async fn each_algorithm_decides_the_same_arrivals() {
    let house = House::empty().await;
    let arrivals: Vec<u64> = (0..20).map(|at| 990 + u64::from(at >= 10) * 15).collect();
    let asked = json!({"requests": 10, "window_s": 1, "arrivals_ms": arrivals});
    let told = house.ask("POST /v1/compare", &[], asked).await;
    assert_eq!((told.status, &told.body["span_ms"]), (200, &json!(3000)));
    let lanes = told.body["lanes"].as_array().expect("lanes");
    let busiest: Vec<_> = lanes
        .iter()
        .map(|lane| (lane["algorithm"].as_str().expect("a name"), lane["busiest_window"].as_u64()))
        .collect();
    assert_eq!(busiest.len(), 6);
    assert!(busiest.contains(&("fixed_window", Some(20))), "{busiest:?}");
    assert!(busiest.contains(&("sliding_window_log", Some(10))), "{busiest:?}");
    assert_eq!(lanes[0]["decisions"].as_array().map(Vec::len), Some(20));
}

#[tokio::test]
async fn work_has_an_end_and_what_is_wrong_is_told() {
    let house = House::empty().await;
    let good = json!({"requests": 10, "window_s": 1, "burst": 5, "arrivals_ms": []});
    assert_eq!(house.ask("POST /v1/compare", &[], good.clone()).await.status, 200);
    for (field, value) in [
        ("requests", json!(0)),
        ("requests", json!(101)),
        ("burst", json!(0)),
        ("window_s", json!(7)),
        ("arrivals_ms", json!([10_001])),
        ("arrivals_ms", json!(vec![1; 501])),
        ("arrivals_ms", json!([-1])),
        ("more", json!(1)),
    ] {
        let mut asked = good.clone();
        asked[field] = value;
        let told = house.ask("POST /v1/compare", &[], asked).await;
        assert_eq!(told.status, 422, "{field}: {}", told.body);
        assert!(told.body["field"].as_str().is_some_and(|at| at.starts_with(field) || at == "."), "{}", told.body);
    }
}

#[tokio::test]
async fn who_is_busiest_is_told_to_who_brings_a_token_and_hashed_to_others() {
    const RULES: &str = "rules: [{ id: few, key_by: ip, limit: 1/h using fixed_window }]";
    let read = Token::new("see").expect("a token");
    let known = House::built(Plan {
        guard: Guard { write: None, read: Some(read) },
        ..Plan::default()
    });
    let (known, open) = (known.await, House::with(RULES).await);
    known.apply(RULES).await;
    for house in [&known, &open] {
        for _ in 0..3 {
            house.check("ip", "192.0.2.7").await;
        }
    }
    let who = |told: &serde_json::Value| told["keys"][0]["who"].as_str().map(str::to_owned);
    let told = known.ask("GET /v1/top?kind=refused", &[("authorization", "Bearer see")], "").await;
    assert_eq!(who(&told.body).as_deref(), Some("ip=192.0.2.7"), "{}", told.body);
    assert_eq!(told.body["keys"][0]["count"], 2);
    let told = open.get("/v1/top").await;
    assert!(who(&told.body).is_some_and(|who| !who.contains("192.0.2.7")), "{}", told.body);
    assert_eq!(open.get("/v1/top?kind=most").await.status, 400);
}
