//! Checks once at startup whether the upstream servers can be reached. The gateway opens in any
//! case, because a server may start later.

use std::time::Duration;

use tidegate_gateway::UpstreamSettings;
use tidegate_net::connect::OutboundAddress;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::telemetry::ServerEvent;

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Logs every server that cannot be resolved or reached.
pub(super) async fn report_unreachable(upstreams: Vec<UpstreamSettings>) {
    for (address, _) in upstreams.iter().flat_map(|upstream| &upstream.servers) {
        if let Err(why) = probe_server(address).await {
            ServerEvent::UpstreamUnreachable { server: &address.to_string(), why: &why }.log();
        }
    }
}

async fn probe_server(address: &OutboundAddress) -> Result<(), String> {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(address.authority())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}
