//! The upstream API of the demo's gateway: responds 200 to every request.

use std::net::TcpListener as StdListener;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate_net::listen::{self, ConnectionInfo, HttpHandler};
use tidegate_web::{Peer, ProcessStatus, http_response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use tidegate_server::error::CommandError;

struct DemoUpstream;

impl HttpHandler for DemoUpstream {
    type Body = Full<Bytes>;

    async fn handle(
        &self,
        request: Request<Incoming>,
        _: &ConnectionInfo,
    ) -> Response<Full<Bytes>> {
        http_response::json(StatusCode::OK, &serde_json::json!({"path": request.uri().path()}))
    }

    fn trusts_peer(&self, _: Peer) -> bool {
        false
    }
}

/// Serves a listener until `stop` is cancelled.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub(super) fn serve(
    listener: StdListener,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, CommandError> {
    let listener = TcpListener::from_std(listener)?;
    let (settings, status) = (listen::Settings::default(), Arc::new(ProcessStatus::new()));
    let stopped = stop.cancelled_owned();
    Ok(tokio::spawn(listen::serve(listener, Arc::new(DemoUpstream), settings, status, stopped)))
}
