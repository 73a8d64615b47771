//! `grpc.health.v1.Health`: reports whether this server accepts calls, once or on every change.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::frame;
use super::response_body::{GrpcBody, GrpcMessageSender};
use super::status::{GrpcCode, GrpcStatus};
use crate::envoy;
use tidegate_web::ProcessStatus;
use tidegate_web::protobuf::{ProtoReader, ProtoWriter, WireValue};

/// Full name of the gRPC service.
pub(super) const SERVICE: &str = "grpc.health.v1.Health";

/// Names that can be checked: the whole server, the rate limit service, and the name that the
/// reference server uses.
const KNOWN_SERVICES: [&str; 3] = ["", envoy::SERVICE, "ratelimit"];

/// Health of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServingStatus {
    Serving = 1,
    NotServing = 2,
    /// There is no such service. Only `Watch` reports this; `Check` fails with `NotFound`.
    ServiceUnknown = 3,
}

/// The health service, backed by the status of the process.
pub(super) struct GrpcHealthService {
    status: Arc<ProcessStatus>,
}

impl GrpcHealthService {
    pub(super) const fn new(status: Arc<ProcessStatus>) -> Self {
        Self { status }
    }

    /// Handles `Check`: returns the health of the requested service.
    pub(super) fn check(&self, message: &[u8]) -> Result<Bytes, GrpcStatus> {
        if is_known_service(message)? {
            return Ok(encode_status(serving_status(&self.status)));
        }
        let message = "unknown service; check \"\", \"ratelimit\" or the full name of the rate \
                       limit service";
        Err(GrpcStatus::new(GrpcCode::NotFound, message))
    }

    /// Handles `List`: returns the health of all services.
    pub(super) fn list(&self) -> Bytes {
        let mut writer = ProtoWriter::with_reserved_prefix(frame::PREFIX_BYTES, 128);
        for name in KNOWN_SERVICES {
            writer.message(1, |entry| {
                entry.bytes(1, name.as_bytes());
                entry.message(2, |health| {
                    health.varint_field(1, serving_status(&self.status) as u64);
                });
            });
        }
        frame::finish_message(writer.finish())
    }

    /// Handles `Watch`: sends the health of the requested service now and again when the server
    /// starts to drain. The call then ends; otherwise its connection would never drain.
    pub(super) fn watch(&self, message: &[u8]) -> Result<Response<GrpcBody>, GrpcStatus> {
        let (outbox, response) = GrpcBody::streaming_response();
        tokio::spawn(stream_status(Arc::clone(&self.status), is_known_service(message)?, outbox));
        Ok(response)
    }
}

async fn stream_status(status: Arc<ProcessStatus>, known: bool, outbox: GrpcMessageSender) {
    let first = if known { serving_status(&status) } else { ServingStatus::ServiceUnknown };
    if !outbox.send(encode_status(first)).await {
        return;
    }
    tokio::select! {
        () = outbox.closed() => return,
        () = status.wait_for_drain() => {}
    }
    if first == ServingStatus::Serving
        && !outbox.send(encode_status(ServingStatus::NotServing)).await
    {
        return;
    }
    outbox.finish(&GrpcStatus::new(GrpcCode::Unavailable, "the server is shutting down")).await;
}

fn serving_status(status: &ProcessStatus) -> ServingStatus {
    if status.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// A `HealthCheckResponse`.
fn encode_status(serving: ServingStatus) -> Bytes {
    let mut writer = ProtoWriter::with_reserved_prefix(frame::PREFIX_BYTES, 2);
    writer.varint_field(1, serving as u64);
    frame::finish_message(writer.finish())
}

/// Returns whether a `HealthCheckRequest` names a known service.
fn is_known_service(message: &[u8]) -> Result<bool, GrpcStatus> {
    let (mut name, mut reader): (&[u8], _) = (b"", ProtoReader::new(message));
    let malformed = |_| GrpcStatus::new(GrpcCode::InvalidArgument, "invalid HealthCheckRequest");
    while let Some(field) = reader.next_field().map_err(malformed)? {
        if let (1, WireValue::Bytes(value)) = field {
            name = value;
        }
    }
    Ok(KNOWN_SERVICES.iter().any(|known| known.as_bytes() == name))
}
