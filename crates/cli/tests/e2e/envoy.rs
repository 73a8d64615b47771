//! The gRPC listener with independent clients: Envoy with the bootstrap of `examples/envoy`, and a
//! Python gRPC client that knows the messages only from server reflection.

mod exact_admission;
mod example;
mod failure_mode;
mod graceful_restart;
mod listener;
mod python_client;

use std::path::{Path, PathBuf};

use tidegate_testkit::envoy::EnvoyServer;
use tidegate_testkit::nginx::NginxServer;

use crate::support::ServerProcess;

/// The nginx configuration of the API behind Envoy.
const API_CONFIG: &str = "location /large { return 200 1234567890123456789012345678901234567890; } location / { return 200 ok; }";

/// A path in the repository.
fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read_example(name: &str) -> String {
    std::fs::read_to_string(repository_path("examples/envoy").join(name)).unwrap()
}

/// Starts Envoy with the example's bootstrap, in front of an API, with some text replaced.
fn start_envoy(tidegate: &str, api: &NginxServer, changes: &[(&str, &str)]) -> EnvoyServer {
    let mut text = read_example("envoy.yaml");
    // Tests assert outcomes; on a busy machine the example's 50 ms may pass without a fault.
    for (old, new) in [("timeout: 0.050s", "timeout: 10s")].iter().chain(changes) {
        assert!(text.contains(old), "the example has no `{old}`");
        text = text.replace(old, new);
    }
    let (_, tidegate) = tidegate.rsplit_once(':').unwrap_or_default();
    let port = |number: &str| format!("port_value: {number}");
    EnvoyServer::start(|listen, admin| {
        text.replace(&port("10000"), &port(&listen.to_string()))
            .replace(&port("9901"), &port(&admin.to_string()))
            .replace(&port("8082"), &port(tidegate))
            .replace(&port("3000"), &port(&api.address().port().to_string()))
    })
}

/// Starts a server with a gRPC listener and the example's rules, with some text replaced.
fn start_tidegate(
    folder: &crate::support::TestFolder,
    changes: &[(&str, &str)],
    args: &[&str],
) -> ServerProcess {
    let mut rules = read_example("rules.yaml");
    for (old, new) in changes {
        assert!(rules.contains(old), "the example has no `{old}`");
        rules = rules.replace(old, new);
    }
    let file = folder.write("rules.yaml", rules);
    ServerProcess::with_config(&file, &[&["--grpc", "127.0.0.1:0"], args].concat())
}
