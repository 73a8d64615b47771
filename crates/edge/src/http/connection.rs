//! One connection: hyper speaks, a watchdog ends it when the other side dawdles.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_core::store::Store;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::stream::{Phase, Stream, Traffic};
use super::{Door, answer};
use crate::problem::Problem;

/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Speaks HTTP on a connection until it ends, dawdles, or `ending` turns true and the request under
/// way is answered.
pub(crate) async fn speak<S: Store + 'static, L: Store + 'static>(
    tcp: TcpStream,
    caller: IpAddr,
    door: Arc<Door<S, L>>,
    ending: watch::Receiver<bool>,
) {
    let traffic = Arc::new(Traffic::default());
    let stream = TokioIo::new(Stream::new(tcp, Arc::clone(&traffic)));
    let service = service_fn(|request| {
        let (door, traffic) = (Arc::clone(&door), Arc::clone(&traffic));
        async move { Ok::<_, Infallible>(answered(&door, &traffic, request, caller).await) }
    });
    let mut http = http1::Builder::new();
    http.max_buf_size(MAX_HEAD_BYTES).pipeline_flush(true).header_read_timeout(None);
    let mut connection = pin!(http.serve_connection(stream, service));
    let dawdling = dawdling(&traffic, door.settings.header_timeout, door.settings.idle_timeout);
    let mut ended = pin!(async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = until_told(ending) => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    });
    let ended = tokio::select! {
        biased;
        ended = &mut ended => ended,
        () = dawdling => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

async fn until_told(mut ending: watch::Receiver<bool>) {
    // An error says that nobody is left to tell.
    let _ = ending.wait_for(|ending| *ending).await;
}

async fn answered<S: Store, L: Store>(
    door: &Door<S, L>,
    traffic: &Traffic,
    request: Request<Incoming>,
    caller: IpAddr,
) -> Response<Full<Bytes>> {
    let response = if traffic.begin(request.headers()) {
        door.answer(request, caller).await
    } else {
        let detail = "Transfer-Encoding and Content-Length disagree on where the request ends";
        let mut response = answer::problem(&Problem::new(StatusCode::BAD_REQUEST, detail));
        answer::close(&mut response);
        response
    };
    traffic.end();
    response
}

/// Returns when a connection has been at the same thing for too long. It looks now and then rather
/// than set a timer for every request.
async fn dawdling(traffic: &Traffic, head_timeout: Duration, idle_timeout: Duration) {
    let step = (head_timeout.min(idle_timeout) / 2).max(Duration::from_millis(10));
    let (mut at, mut spent) = (traffic.phase(), Duration::ZERO);
    loop {
        tokio::time::sleep(step).await;
        let now = traffic.phase();
        spent = if now == at { spent + step } else { Duration::ZERO };
        at = now;
        let patience = match at {
            Phase::Head => head_timeout,
            Phase::Idle { .. } => idle_timeout,
            // The store has its own deadline, and a body that does not come is given up by its reader.
            Phase::Answering => continue,
        };
        if spent >= patience {
            return;
        }
    }
}
