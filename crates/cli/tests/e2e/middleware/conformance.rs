//! The conformance file, and requests that only a socket can send.

use std::net::IpAddr;
use std::thread;

use tidegate_fixtures::conformance::{ConformanceFile, ConformanceSection};
use tidegate_testkit::proxy::FaultProxy;

use super::application::{AppListener, LimitedApplication, WebFramework};
use super::test_with_all_frameworks;
use crate::support::{ServerProcess, TestFolder, tidegate_command};

pub const ANY_PORT: &str = "127.0.0.1:0";

test_with_all_frameworks!(
    conformance_file_passes,
    concurrent_requests_get_their_own_answers,
    unusual_requests_are_limited,
);

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

/// Each client uses up its own limit while the others do the same.
fn concurrent_requests_get_their_own_answers(framework: WebFramework) {
    const CLIENTS: u8 = 16;
    let folder = TestFolder::new();
    let server = start_server(&folder, ANY_PORT);
    let app = &LimitedApplication::start(framework, server.address.parse().unwrap());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                for expected in [(200, "2"), (200, "1"), (200, "0"), (429, "0")] {
                    let answer = app.get(AppListener::Patient, [127, 0, 7, client], "/ip");
                    let remaining = answer.header("x-ratelimit-remaining").unwrap_or_default();
                    assert_eq!((answer.status, remaining), expected);
                }
            });
        }
    });
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
    // Up to and above what the server reads: a request is decided or refused, never let through.
    let counts = (90..=102).map(|count| (0..count).map(|n| (format!("x-{n}"), "1".to_owned())));
    let sizes = (29..=33)
        .chain([48, 60])
        .map(|kib: usize| vec![("x-long".to_owned(), "a".repeat(kib * 1024))]);
    for headers in counts.map(Iterator::collect).chain(sizes).collect::<Vec<Vec<_>>>() {
        let answer = send("GET /ip", &headers);
        let is_refused = (400..500).contains(&answer.status);
        assert!(is_refused || answer.header("x-ratelimit-limit").is_some(), "{answer:?}");
    }
    let next = send("GET /ip", &[]);
    assert_eq!((next.status, next.header("x-ratelimit-remaining")), (429, Some("0")), "{next:?}");
    assert!(!app.log().contains("does not answer"), "{}", app.log());
}
