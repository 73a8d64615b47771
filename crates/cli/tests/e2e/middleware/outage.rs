//! Outages of the server: a killed server, a server that does not answer, and late answers.

use std::time::Duration;

use tidegate_fixtures::conformance::{ConformanceFile, ConformanceSection, ObservedResponse};
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::proxy::{DelayScope, FaultProxy};

use super::application::{AppListener, LimitedApplication, WebFramework};
use super::conformance::{ANY_PORT, start_server};
use super::test_with_all_frameworks;
use crate::support::{ServerProcess, TestFolder, wait_for};

test_with_all_frameworks!(
    killed_server_is_replaced_by_on_fail,
    restarted_server_costs_no_request,
    silent_server_holds_no_request,
    untrusted_application_is_reported,
);

fn limit(response: &ObservedResponse) -> Option<&str> {
    response.header("x-ratelimit-limit")
}

/// Waits until the middleware asks the server again.
#[track_caller]
fn wait_for_limits(app: &LimitedApplication, listener: AppListener, peer: [u8; 4]) {
    wait_for("the limits to apply again", || {
        (limit(&app.get(listener, peer, "/ip")) == Some("3")).then_some(())
    });
}

fn killed_server_is_replaced_by_on_fail(framework: WebFramework) {
    let (folder, port) = (TestFolder::new(), ReservedPort::reserve());
    let address = port.address().to_string();
    let server = start_server(&folder, &address);
    let app = LimitedApplication::start(framework, port.address());
    let listeners = [AppListener::Allowing, AppListener::Denying];
    for listener in listeners {
        wait_for_limits(&app, listener, [127, 0, 3, 1]);
    }
    drop(server); // with SIGKILL
    let file = ConformanceFile::load();
    for case in file.cases_in(&[ConformanceSection::Outage]) {
        let denies = case.on_fail.as_deref() == Some("deny");
        let listener = if denies { AppListener::Denying } else { AppListener::Allowing };
        app.assert_case(listener, case);
    }
    let _server = start_server(&folder, &address);
    for listener in listeners {
        wait_for_limits(&app, listener, [127, 0, 3, 2]);
    }
    let lines = |text: &str| app.log().lines().filter(|line| line.contains(text)).count();
    wait_for("the lines in the log", || (lines("answers again") == 2).then_some(()));
    assert_eq!(lines("does not answer"), 2, "once per listener: {}", app.log());
    assert_eq!(lines("tidegate"), 4, "{}", app.log());
}

/// The kept connections end with the server, so the next request opens another one.
fn restarted_server_costs_no_request(framework: WebFramework) {
    let (folder, port) = (TestFolder::new(), ReservedPort::reserve());
    let address = port.address().to_string();
    let server = start_server(&folder, &address);
    let app = LimitedApplication::start(framework, port.address());
    let first = app.get(AppListener::Patient, [127, 0, 4, 1], "/ip");
    assert_eq!(limit(&first), Some("3"), "{first:?}");
    drop(server);
    let _server = start_server(&folder, &address);
    for _ in 0..3 {
        let next = app.get(AppListener::Patient, [127, 0, 4, 2], "/ip");
        assert_eq!(limit(&next), Some("3"), "{next:?}");
    }
    assert!(!app.log().contains("tidegate"), "{}", app.log());
}

fn silent_server_holds_no_request(framework: WebFramework) {
    let folder = TestFolder::new();
    let server = start_server(&folder, ANY_PORT);
    let proxy = FaultProxy::start(server.address.parse().unwrap());
    let app = LimitedApplication::start(framework, proxy.address());
    let peer = [127, 0, 5, 1];
    wait_for_limits(&app, AppListener::Denying, peer);
    proxy.blackhole();
    for _ in 0..6 {
        let refused = app.get(AppListener::Denying, peer, "/search");
        assert_eq!((refused.status, limit(&refused)), (503, None), "{refused:?}");
        let passed = app.get(AppListener::Allowing, peer, "/search");
        assert_eq!((passed.status, limit(&passed)), (200, None), "{passed:?}");
    }
    // Late answers, for a rule with another limit: none of them answers a later request.
    proxy.delay(Duration::from_secs(1), DelayScope::Replies);
    wait_for("requests that reach the server", || {
        let response = app.get(AppListener::Denying, peer, "/search");
        assert_eq!((response.status, limit(&response)), (503, None), "{response:?}");
        let metrics =
            server.client().post("/v1/peek", r#"{"facts":{"ip":"127.0.5.1","path":"/search"}}"#);
        (metrics.body["remaining"] != 10).then_some(())
    });
    proxy.pass();
    wait_for("the limits to apply again", || {
        let response = app.get(AppListener::Denying, [127, 0, 5, 2], "/ip");
        (response.status != 503).then(|| assert_eq!(limit(&response), Some("3"), "{response:?}"))
    });
}

/// The server refuses to believe the application: that is an outage with advice in the log, not a
/// refusal for clients.
fn untrusted_application_is_reported(framework: WebFramework) {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", "rules: [{ id: r, key_by: ip, limit: 1/d }]");
    let server = ServerProcess::with_config(&rules, &["--resp", "off"]);
    let app = LimitedApplication::start(framework, server.address.parse().unwrap());
    for _ in 0..4 {
        let passed = app.get(AppListener::Patient, [127, 0, 6, 1], "/ip");
        assert_eq!((passed.status, limit(&passed)), (200, None), "{passed:?}");
    }
    wait_for("the advice in the log", || app.log().contains("trusted_proxies").then_some(()));
}
