//! `grpc.health.v1.Health`: whether calls should be sent here, told at once or whenever it changes.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::frame;
use super::reply::{Outbox, Reply};
use super::status::{Code, Status};
use crate::protobuf::{Reader, Value, Writer};
use crate::{Status as ProcessStatus, envoy};

/// The service's full name.
pub(super) const SERVICE: &str = "grpc.health.v1.Health";

/// What is asked about: everything, the service, and the name that the reference server uses.
const KNOWN: [&str; 3] = ["", envoy::SERVICE, "ratelimit"];

/// How a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    Yes = 1,
    No = 2,
    /// There is no such service; only those who watch are told so.
    Unknown = 3,
}

/// The health of the process.
pub(super) struct Health {
    status: Arc<ProcessStatus>,
}

impl Health {
    pub(super) const fn new(status: Arc<ProcessStatus>) -> Self {
        Self { status }
    }

    /// How the service of a request is.
    pub(super) fn check(&self, message: &[u8]) -> Result<Bytes, Status> {
        if is_known(message)? {
            return Ok(told(serving(&self.status)));
        }
        let known = "there is no such service; ask for \"\", \"ratelimit\" or the full name of the \
                     rate limit service";
        Err(Status::new(Code::NotFound, known))
    }

    /// How all services are.
    pub(super) fn list(&self) -> Bytes {
        let mut writer = Writer::after(frame::HEAD_BYTES, 128);
        for name in KNOWN {
            writer.message(1, |entry| {
                entry.bytes(1, name.as_bytes());
                entry.message(2, |health| health.number(1, serving(&self.status) as u64));
            });
        }
        frame::finish(writer.finish())
    }

    /// Tells how the service of a request is, and again when the process is on its way out. The call is ended
    /// then, or the connection would never be drained.
    pub(super) fn watch(&self, message: &[u8]) -> Result<Response<Reply>, Status> {
        let (outbox, response) = Reply::stream();
        tokio::spawn(watch(Arc::clone(&self.status), is_known(message)?, outbox));
        Ok(response)
    }
}

async fn watch(status: Arc<ProcessStatus>, known: bool, outbox: Outbox) {
    let first = if known { serving(&status) } else { Serving::Unknown };
    if !outbox.send(told(first)).await {
        return;
    }
    tokio::select! {
        () = outbox.gone() => return,
        () = status.until_draining() => {}
    }
    if first == Serving::Yes && !outbox.send(told(Serving::No)).await {
        return;
    }
    outbox.end(&Status::new(Code::Unavailable, "the process is on its way out")).await;
}

fn serving(status: &ProcessStatus) -> Serving {
    if status.is_ready() { Serving::Yes } else { Serving::No }
}

/// A `HealthCheckResponse`.
fn told(serving: Serving) -> Bytes {
    let mut writer = Writer::after(frame::HEAD_BYTES, 2);
    writer.number(1, serving as u64);
    frame::finish(writer.finish())
}

/// Whether the service of a `HealthCheckRequest` is here.
fn is_known(message: &[u8]) -> Result<bool, Status> {
    let (mut name, mut reader): (&[u8], _) = (b"", Reader::new(message));
    let malformed = |_| Status::new(Code::InvalidArgument, "this is no HealthCheckRequest");
    while let Some(field) = reader.field().map_err(malformed)? {
        if let (1, Value::Bytes(told)) = field {
            name = told;
        }
    }
    Ok(KNOWN.iter().any(|known| known.as_bytes() == name))
}
