//! Many at once through Envoy, against one limit: as many as it says reach the API, which counts them itself.

use tidegate_testkit::nginx::Nginx;

use super::{API, envoy, tidegate};
use crate::support::Folder;
use crate::support::programs::{Load, h2load};

#[test]
fn many_connections_through_envoy_are_admitted_exactly_as_many_as_the_limit() {
    let (limit, requests) = (1_237, 4_000);
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("100/min", "1237/30d")], &[]);
    let envoy = envoy(&server.grpc(), &api, &[]);
    let load = h2load(&["--h1", "-n", "4000", "-c", "100", &envoy.url("/")]);
    let refused = requests - limit;
    let expected = Load { done: requests, errors: 0, passed: limit, refused, failed: 0 };
    assert_eq!(load, expected, "{}", server.log());
    assert_eq!(api.requests().len() as u64, limit);
    assert_eq!(envoy.count("ratelimit.error"), 0, "nothing passed because nobody answered");
}
