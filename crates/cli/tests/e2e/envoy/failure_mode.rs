//! The server is gone: Envoy does what its filter says, and is limited again when it is back.

use tidegate_testkit::nginx::NginxServer;
use tidegate_testkit::port::ReservedPort;

use super::{API_CONFIG, read_example, start_envoy};
use crate::support::{ServerProcess, TestFolder, run_curl, wait_for};

fn status_during_outage(deny: &str) -> u16 {
    let (folder, api, port) =
        (TestFolder::new(), NginxServer::start(API_CONFIG), ReservedPort::reserve());
    let at = port.address().to_string();
    let start = || {
        let file =
            folder.write("rules.yaml", read_example("rules.yaml").replace("100/min", "1/30d"));
        ServerProcess::with_config(&file, &["--grpc", &at])
    };
    let server = start();
    assert_eq!(server.grpc_address(), at);
    let mode = format!("failure_mode_deny: {deny}");
    let envoy = start_envoy(&at, &api, &[("failure_mode_deny: false", &mode)]);
    let ask = || run_curl(&[&envoy.url("/")]).status;
    assert_eq!([ask(), ask()], [200, 429]);
    server.stop();
    let gone = ask();
    assert_eq!(ask(), gone);
    assert_eq!(envoy.counter_value("ratelimit.error"), 2);
    let _server = start();
    // Envoy tries to connect again when it is asked.
    wait_for("Envoy to find it again", || (ask() == 429).then_some(()));
    gone
}

#[test]
fn fail_open_filter_admits_during_outage() {
    assert_eq!(status_during_outage("false"), 200);
}

#[test]
fn fail_closed_filter_denies_during_outage() {
    assert_eq!(status_during_outage("true"), 500);
}
