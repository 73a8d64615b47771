//! A restart under load: Envoy is told to go on with the successor, and no call is lost.

use std::thread;

use tidegate_testkit::nginx::Nginx;

use super::{API, envoy, tidegate};
use crate::support::programs::h2load;
use crate::support::{Folder, Successors};

#[test]
fn no_call_of_envoy_is_lost_when_a_new_process_takes_over() {
    let (folder, api) = (Folder::new(), Nginx::start(API));
    let server = tidegate(&folder, &[("100/min", "1000000/30d")], &[]);
    let changes = [("failure_mode_deny: false", "failure_mode_deny: true")];
    let envoy = envoy(&server.grpc(), &api, &changes);
    let url = envoy.url("/");
    let load = thread::spawn(move || h2load(&["--h1", "-D", "4", "-c", "20", &url]));
    let mut line = Successors::of(&server);
    line.next();
    line.next();
    let load = load.join().unwrap();
    assert_eq!((load.failed, load.refused), (0, 0), "{load:?}");
    assert!(load.passed > 100, "{load:?}");
    assert_eq!(envoy.count("ratelimit.error"), 0);
}
