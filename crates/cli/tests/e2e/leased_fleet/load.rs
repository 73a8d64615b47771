//! Load on a fleet, skewed and moving.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{all_rules, facts_of};
use crate::support::{HttpTestClient, now};

/// One node gets this many times the demand of each other node, a second long.
const SKEW: u32 = 8;

/// Connections to each node.
const CONNECTIONS: u32 = 3;

/// How far a connection may be behind. What it did not send in a longer stall is skipped.
const MAX_BEHIND: Duration = Duration::from_millis(100);

/// Requests to all rules in turn, until it is stopped.
pub(super) struct FleetLoad {
    stopped: Arc<AtomicBool>,
    connections: Vec<JoinHandle<()>>,
}

impl FleetLoad {
    /// Sends `per_second` requests a second to nodes at these addresses.
    pub(super) fn start(addresses: &[&str], per_second: u64) -> Self {
        let per_second = u32::try_from(per_second).unwrap();
        let (stopped, started) = (Arc::new(AtomicBool::new(false)), now());
        let nodes = u32::try_from(addresses.len()).unwrap();
        let connect = |(node, number): (u32, u32)| {
            let pace = ConnectionPace { node, nodes, number, per_second };
            let (stopped, address) = (Arc::clone(&stopped), addresses[node as usize].to_owned());
            thread::spawn(move || pace.run(&address, started, &stopped))
        };
        let all = (0..nodes).flat_map(|node| (0..CONNECTIONS).map(move |number| (node, number)));
        let connections = all.map(connect).collect();
        Self { stopped, connections }
    }

    pub(super) fn stop(mut self) {
        self.stopped.store(true, Relaxed);
        let connections = std::mem::take(&mut self.connections);
        connections.into_iter().for_each(|connection| connection.join().unwrap());
    }
}

/// Ends the load of a test that fails.
impl Drop for FleetLoad {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
    }
}

/// When a connection sends its requests.
#[derive(Clone, Copy)]
struct ConnectionPace {
    node: u32,
    nodes: u32,
    number: u32,
    per_second: u32,
}

impl ConnectionPace {
    fn run(self, address: &str, started: Instant, stopped: &AtomicBool) {
        let request = |rule| json!({ "facts": facts_of(rule) }).to_string();
        let requests: Vec<String> = all_rules().into_iter().map(request).collect();
        let (mut due, mut client) = (Duration::ZERO, None);
        for request in requests.iter().cycle().skip((self.node + self.number) as usize) {
            due += self.gap_at(due);
            due = due.max(started.elapsed().saturating_sub(MAX_BEHIND));
            thread::sleep(due.saturating_sub(started.elapsed()));
            if stopped.load(Relaxed) {
                return;
            }
            // A node that was killed accepts no connection.
            if send(&mut client, address, request).is_err() {
                client = None;
            }
        }
    }

    /// The time between two requests.
    fn gap_at(self, at: Duration) -> Duration {
        let is_hot = at.as_secs() % u64::from(self.nodes) == u64::from(self.node);
        let parts = if is_hot { SKEW } else { 1 };
        let all_parts = (SKEW + self.nodes - 1) * CONNECTIONS;
        Duration::from_secs(1) * all_parts / (parts * self.per_second)
    }
}

fn send(client: &mut Option<HttpTestClient>, address: &str, body: &str) -> io::Result<()> {
    if client.is_none() {
        *client = Some(HttpTestClient::try_connect(address)?);
    }
    if let Some(client) = client {
        let head = client.request_head("POST", "/v1/check", body.len());
        client.try_send(&format!("{head}{body}"))?;
        client.try_read_response()?;
    }
    Ok(())
}
