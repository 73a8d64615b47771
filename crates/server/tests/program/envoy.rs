//! The gRPC door with programs that nobody here wrote: Envoy with the bootstrap of `examples/envoy`, and a
//! gRPC client in Python that knows nothing but what reflection tells it.

mod client;
mod exact;
mod example;
mod failure;
mod restart;
mod serve;

use std::path::{Path, PathBuf};

use tidegate_testkit::envoy::Envoy;
use tidegate_testkit::nginx::Nginx;

use crate::support::Server;

/// What is behind Envoy.
const API: &str = "location /large { return 200 1234567890123456789012345678901234567890; } location / { return 200 well; }";

/// A folder of the checkout.
fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn example(name: &str) -> String {
    std::fs::read_to_string(checkout("examples/envoy").join(name)).unwrap()
}

/// The example's bootstrap between a client and an API, with some of its text changed.
fn envoy(tidegate: &str, api: &Nginx, changes: &[(&str, &str)]) -> Envoy {
    let mut text = example("envoy.yaml");
    // Tests assert outcomes; on a busy machine the example's 50 ms may pass with nobody at fault.
    for (old, new) in [("timeout: 0.050s", "timeout: 10s")].iter().chain(changes) {
        assert!(text.contains(old), "the example has no `{old}`");
        text = text.replace(old, new);
    }
    let (_, tidegate) = tidegate.rsplit_once(':').unwrap_or_default();
    let port = |number: &str| format!("port_value: {number}");
    Envoy::start(|listen, admin| {
        text.replace(&port("10000"), &port(&listen.to_string()))
            .replace(&port("9901"), &port(&admin.to_string()))
            .replace(&port("8082"), &port(tidegate))
            .replace(&port("3000"), &port(&api.address().port().to_string()))
    })
}

/// A server with the gRPC door, and the rules of a file of the example with some of its text changed.
fn tidegate(folder: &crate::support::Folder, changes: &[(&str, &str)], args: &[&str]) -> Server {
    let mut rules = example("rules.yaml");
    for (old, new) in changes {
        assert!(rules.contains(old), "the example has no `{old}`");
        rules = rules.replace(old, new);
    }
    let file = folder.write("rules.yaml", rules);
    Server::with_config(&file, &[&["--grpc", "127.0.0.1:0"], args].concat())
}
