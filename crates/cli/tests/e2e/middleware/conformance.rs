//! The conformance file, and requests that only a socket can send.

use std::net::IpAddr;

use tidegate_fixtures::conformance::{ConformanceFile, ConformanceSection};
use tidegate_testkit::proxy::FaultProxy;

use super::application::{AppListener, LimitedApplication, WebFramework};
use super::test_with_all_frameworks;
use crate::support::{ServerProcess, TestFolder, tidegate_command};

pub const ANY_PORT: &str = "127.0.0.1:0";

test_with_all_frameworks!(conformance_file_passes, unusual_requests_are_limited);

/// Starts a server with the rules of the conformance file; port 0 is a free one.
pub fn start_server(folder: &TestFolder, http: &str) -> ServerProcess {
    let rules = folder.write("rules.yaml", ConformanceFile::load().rules.to_string());
    let mut command = tidegate_command();
    command.args(["serve", "--resp", "off", "--http", http, "--config"]).arg(rules);
    ServerProcess::spawn(command)
}

/// Also asserts that all requests, which do not overlap, share one connection to the server.
fn conformance_file_passes(framework: WebFramework) {
    let folder = TestFolder::new();
    let server = start_server(&folder, ANY_PORT);
    let proxy = FaultProxy::start(server.address.parse().unwrap());
    let app = LimitedApplication::start(framework, proxy.address());
    let mut sections = vec![ConformanceSection::Core, ConformanceSection::Callbacks];
    if framework.separates_repeated_headers() {
        sections.push(ConformanceSection::Headers);
    }
    for case in ConformanceFile::load().cases_in(&sections) {
        app.assert_case(AppListener::Patient, case);
    }
    assert_eq!(proxy.total_connections(), 1, "the connection is kept");
    assert!(!app.log().contains("tidegate"), "{}", app.log());
}

fn unusual_requests_are_limited(framework: WebFramework) {
    let folder = TestFolder::new();
    let server = start_server(&folder, ANY_PORT);
    let app = LimitedApplication::start(framework, server.address.parse().unwrap());
    let send = |line: &str, headers: &[(String, String)]| {
        app.send(AppListener::Patient, IpAddr::from([127, 0, 2, 1]), line, headers)
    };
    let absolute = send("GET http://app.example/ip?a=b", &[]);
    assert_eq!(absolute.header("x-ratelimit-limit"), Some("3"), "{absolute:?}");
    // More headers than the server reads: the request is refused, and the limits stay in force.
    let many: Vec<_> = (0..98).map(|n| (format!("x-{n}"), "1".to_owned())).collect();
    let long = [("x-long".to_owned(), "a".repeat(8000)), ("x-more".to_owned(), "b".repeat(7900))];
    let cookies = [long.clone(), long].concat();
    for _ in 0..4 {
        for headers in [&many, &cookies] {
            let refused = send("GET /ip", headers);
            assert_eq!(refused.header("x-handled"), None, "{refused:?}");
            assert!((400..500).contains(&refused.status), "{refused:?}");
        }
    }
    let next = send("GET /ip", &[]);
    assert_eq!(next.header("x-ratelimit-remaining"), Some("1"), "{next:?}");
    assert!(!app.log().contains("does not answer"), "{}", app.log());
}
