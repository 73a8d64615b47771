//! Concurrent requests through Envoy against one limit: exactly the limit reaches the API, by the
//! API's own count.

use tidegate_testkit::nginx::NginxServer;

use super::{API_CONFIG, start_envoy, start_tidegate};
use crate::support::TestFolder;
use crate::support::external_programs::{LoadReport, run_h2load};

#[test]
fn envoy_connections_admit_exactly_the_limit() {
    let (limit, requests) = (1_237, 4_000);
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("100/min", "1237/30d")], &[]);
    let envoy = start_envoy(&server.grpc_address(), &api, &[]);
    let load = run_h2load(&["--h1", "-n", "4000", "-c", "100", &envoy.url("/")]);
    let refused = requests - limit;
    let expected = LoadReport { done: requests, errors: 0, passed: limit, refused, failed: 0 };
    assert_eq!(load, expected, "{}", server.log());
    assert_eq!(api.requests().len() as u64, limit);
    assert_eq!(envoy.counter_value("ratelimit.error"), 0, "no request passed because of an error");
}
