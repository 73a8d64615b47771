//! The endpoint that compares algorithms.

use serde_json::json;

use crate::fixture::AdminFixture;

#[tokio::test]
async fn each_algorithm_decides_the_same_arrivals() {
    let admin = AdminFixture::empty().await;
    let arrivals: Vec<u64> = (0..20).map(|at| 990 + u64::from(at >= 10) * 15).collect();
    let request = json!({"requests": 10, "window_s": 1, "arrivals_ms": arrivals});
    let reply = admin.send("POST /v1/compare", &[], request).await;
    assert_eq!((reply.status, &reply.body["span_ms"]), (200, &json!(3000)));
    let lanes = reply.body["lanes"].as_array().expect("lanes");
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
async fn comparison_input_is_bounded_and_validated() {
    let admin = AdminFixture::empty().await;
    let good = json!({"requests": 10, "window_s": 1, "burst": 5, "arrivals_ms": []});
    assert_eq!(admin.send("POST /v1/compare", &[], good.clone()).await.status, 200);
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
        let mut request = good.clone();
        request[field] = value;
        let reply = admin.send("POST /v1/compare", &[], request).await;
        assert_eq!(reply.status, 422, "{field}: {}", reply.body);
        assert!(
            reply.body["field"].as_str().is_some_and(|at| at.starts_with(field) || at == "."),
            "{}",
            reply.body
        );
    }
}
