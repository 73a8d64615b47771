//! Many at once against one limit: as many as it says reach the upstream, which counts them itself.

use tidegate_testkit::nginx::Nginx;

use crate::support::Server;
use crate::support::programs::{Load, h2load};

fn exactly(limit: u64, requests: u64, words: &[&str]) {
    let nginx = Nginx::start("return 200 well;");
    let server = Server::in_front_of(&nginx.url(), &["--limit", &format!("{limit}/d by ip")]);
    let (url, total) = (format!("http://{}/", server.gateway), requests.to_string());
    let load = h2load(&[&["-n", &total, "-c", "200"], words, &[&url]].concat());
    let refused = requests - limit;
    let expected = Load { done: requests, errors: 0, passed: limit, refused, failed: 0 };
    assert_eq!(load, expected, "{}", server.log());
    assert_eq!(nginx.requests().len() as u64, limit);
}

#[test]
fn two_hundred_connections_of_http1() {
    exactly(1_237, 4_000, &["--h1"]);
}

#[test]
fn two_hundred_connections_of_http2_with_many_streams() {
    exactly(1_237, 6_000, &["-m", "20"]);
}
