//! The server is gone: Envoy does what its filter says, and is limited again when it is back.

use tidegate_testkit::nginx::Nginx;
use tidegate_testkit::port::Port;

use super::{API, envoy, example};
use crate::support::{Folder, Server, curl, wait_for};

fn status_while_gone(deny: &str) -> u16 {
    let (folder, api, port) = (Folder::new(), Nginx::start(API), Port::take());
    let at = port.address().to_string();
    let start = || {
        let file = folder.write("rules.yaml", example("rules.yaml").replace("100/min", "1/30d"));
        Server::with_config(&file, &["--grpc", &at])
    };
    let server = start();
    assert_eq!(server.grpc(), at);
    let mode = format!("failure_mode_deny: {deny}");
    let envoy = envoy(&at, &api, &[("failure_mode_deny: false", &mode)]);
    let ask = || curl(&[&envoy.url("/")]).status;
    assert_eq!([ask(), ask()], [200, 429]);
    server.stop();
    let gone = ask();
    assert_eq!(ask(), gone);
    assert_eq!(envoy.count("ratelimit.error"), 2);
    let _server = start();
    // Envoy tries to connect again when it is asked.
    wait_for("Envoy to find it again", || (ask() == 429).then_some(()));
    gone
}

#[test]
fn requests_pass_where_the_filter_fails_open() {
    assert_eq!(status_while_gone("false"), 200);
}

#[test]
fn requests_are_refused_where_the_filter_fails_closed() {
    assert_eq!(status_while_gone("true"), 500);
}
