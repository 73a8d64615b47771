//! The API behind the demo's gateway: it says yes to everything.

use std::net::TcpListener as StdListener;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate_edge::listen::{self, Answers, Caller};
use tidegate_edge::{Peer, Status, answer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

struct Shop;

impl Answers for Shop {
    type Body = Full<Bytes>;

    async fn answer(&self, request: Request<Incoming>, _: &Caller) -> Response<Full<Bytes>> {
        answer::json(StatusCode::OK, &serde_json::json!({"path": request.uri().path()}))
    }

    fn believes(&self, _: Peer) -> bool {
        false
    }
}

/// Answers at a listener until it is over.
///
/// # Errors
/// When the runtime cannot have the listener.
pub(super) fn serve(
    listener: StdListener,
    over: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let listener = TcpListener::from_std(listener)?;
    let (settings, status) = (listen::Settings::default(), Arc::new(Status::new()));
    let stopped = over.cancelled_owned();
    Ok(tokio::spawn(listen::serve(listener, Arc::new(Shop), settings, status, stopped)))
}
