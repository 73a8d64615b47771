//! The server is unreachable: Envoy follows its filter's failure mode, and limits again afterwards.

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
    let status = || run_curl(&[&envoy.url("/")]).status;
    assert_eq!([status(), status()], [200, 429]);
    server.stop();
    let during_outage = status();
    assert_eq!(status(), during_outage);
    assert_eq!(envoy.counter_value("ratelimit.error"), 2);
    let _server = start();
    // Envoy reconnects when it next needs a decision.
    wait_for("Envoy to reconnect", || (status() == 429).then_some(()));
    during_outage
}

#[test]
fn fail_open_filter_admits_during_outage() {
    assert_eq!(status_during_outage("false"), 200);
}

#[test]
fn fail_closed_filter_denies_during_outage() {
    assert_eq!(status_during_outage("true"), 500);
}
