//! A graceful restart under load: Envoy moves to the successor, and no call is lost.

use std::thread;

use tidegate_testkit::nginx::NginxServer;

use super::{API_CONFIG, start_envoy, start_tidegate};
use crate::support::external_programs::run_h2load;
use crate::support::{SuccessorChain, TestFolder};

#[test]
fn graceful_restart_loses_no_envoy_call() {
    let (folder, api) = (TestFolder::new(), NginxServer::start(API_CONFIG));
    let server = start_tidegate(&folder, &[("100/min", "1000000/30d")], &[]);
    let changes = [("failure_mode_deny: false", "failure_mode_deny: true")];
    let envoy = start_envoy(&server.grpc_address(), &api, &changes);
    let url = envoy.url("/");
    let load = thread::spawn(move || run_h2load(&["--h1", "-D", "4", "-c", "20", &url]));
    let mut chain = SuccessorChain::new(&server);
    chain.replace_process();
    chain.replace_process();
    let load = load.join().unwrap();
    assert_eq!((load.failed, load.refused), (0, 0), "{load:?}");
    assert!(load.passed > 100, "{load:?}");
    assert_eq!(envoy.counter_value("ratelimit.error"), 0);
}
