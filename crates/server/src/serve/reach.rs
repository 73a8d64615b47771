//! Looks once, at the start, whether the servers of the upstreams can be reached. The gateway opens all
//! the same: a server may come later.

use std::time::Duration;

use tidegate_edge::gateway::{Address, UpstreamSettings};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::telemetry::Event;

/// How long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// Reports every server that cannot be resolved or reached.
pub(super) async fn report(upstreams: Vec<UpstreamSettings>) {
    for (address, _) in upstreams.iter().flat_map(|upstream| &upstream.servers) {
        if let Err(why) = reach(address).await {
            Event::UpstreamUnreachable { server: &address.to_string(), why: &why }.tell();
        }
    }
}

async fn reach(address: &Address) -> Result<(), String> {
    match timeout(PATIENCE, TcpStream::connect(address.authority())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}
