//! Concurrent requests against one limit: exactly the limit reaches the upstream, by its own count.

use tidegate_testkit::nginx::NginxServer;

use crate::support::ServerProcess;
use crate::support::external_programs::{LoadReport, run_h2load};

fn assert_exact_admission(limit: u64, requests: u64, args: &[&str]) {
    let nginx = NginxServer::start("return 200 ok;");
    let server =
        ServerProcess::start_gateway(&nginx.url(), &["--limit", &format!("{limit}/d by ip")]);
    let (url, total) = (format!("http://{}/", server.gateway), requests.to_string());
    let load = run_h2load(&[&["-n", &total, "-c", "200"], args, &[&url]].concat());
    let refused = requests - limit;
    let expected = LoadReport { done: requests, errors: 0, passed: limit, refused, failed: 0 };
    assert_eq!(load, expected, "{}", server.log());
    assert_eq!(nginx.requests().len() as u64, limit);
}

#[test]
fn http1_connections_admit_exactly_the_limit() {
    assert_exact_admission(1_237, 4_000, &["--h1"]);
}

#[test]
fn http2_streams_admit_exactly_the_limit() {
    assert_exact_admission(1_237, 6_000, &["-m", "20"]);
}
