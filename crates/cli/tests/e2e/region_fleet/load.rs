//! Demand that is in one region at a time, with a little in the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::{HttpTestClient, now};

/// Connections to each node.
const CONNECTIONS: u32 = 2;

/// The other regions have this part of the demand.
const IDLE_PART: u32 = 40;

/// How far a connection may be behind. What it did not send in a longer stall is skipped.
const MAX_BEHIND: Duration = Duration::from_millis(100);

/// Requests to nodes of all regions until it is stopped.
pub(super) struct RegionLoad {
    target: Arc<LoadTarget>,
    connections: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadTarget {
    region: AtomicUsize,
    stopped: AtomicBool,
}

impl RegionLoad {
    /// Sends `per_second` requests a second to the nodes of the first region.
    pub(super) fn start(addresses: &[Vec<String>], per_second: u64) -> Self {
        let target = Arc::<LoadTarget>::default();
        let per_second = u32::try_from(per_second).unwrap();
        let mut connections = Vec::new();
        for (region, nodes) in addresses.iter().enumerate() {
            let gap = Duration::from_secs(1) * CONNECTIONS * u32::try_from(nodes.len()).unwrap()
                / per_second;
            for address in nodes.iter().flat_map(|node| vec![node.clone(); CONNECTIONS as usize]) {
                let target = Arc::clone(&target);
                connections.push(thread::spawn(move || target.send_to(&address, region, gap)));
            }
        }
        Self { target, connections }
    }

    pub(super) fn move_to(&self, region: usize) {
        self.target.region.store(region, Relaxed);
    }

    pub(super) fn stop(&mut self) {
        self.target.stopped.store(true, Relaxed);
        self.connections.drain(..).for_each(|connection| connection.join().unwrap());
    }
}

/// Ends the load of a test that fails.
impl Drop for RegionLoad {
    fn drop(&mut self) {
        self.target.stopped.store(true, Relaxed);
    }
}

impl LoadTarget {
    fn send_to(&self, address: &str, region: usize, gap: Duration) {
        let (started, mut due, mut client) = (now(), Duration::ZERO, None);
        while !self.stopped.load(Relaxed) {
            let is_hot = self.region.load(Relaxed) == region;
            due += if is_hot { gap } else { gap * IDLE_PART };
            due = due.max(started.elapsed().saturating_sub(MAX_BEHIND));
            thread::sleep(due.saturating_sub(started.elapsed()));
            // A node that was killed accepts no connection.
            if send(&mut client, address).is_err() {
                client = None;
            }
        }
    }
}

fn send(client: &mut Option<HttpTestClient>, address: &str) -> io::Result<()> {
    if client.is_none() {
        *client = Some(HttpTestClient::try_connect(address)?);
    }
    if let Some(client) = client {
        let body = r#"{"facts":{}}"#;
        let head = client.request_head("POST", "/v1/check", body.len());
        client.try_send(&format!("{head}{body}"))?;
        client.try_read_response()?;
    }
    Ok(())
}
