//! Traces of a running server, as a collector and an upstream see them.

mod collector;
mod context;
mod doors;
mod settings;

use crate::support::{Collector, Server};

/// The caller's place in its trace.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// Kinds of spans.
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// What a caller says that is sampled.
fn sampled() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// A gateway that tells a collector.
fn gateway(upstream: &str, collector: &Collector, args: &[&str]) -> Server {
    Server::in_front_of(upstream, &[&["--otlp", &collector.url()], args].concat())
}
