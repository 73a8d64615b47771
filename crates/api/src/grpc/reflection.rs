//! Server reflection, v1 and v1alpha, which differ only in name. Lists the services and their
//! descriptors, so tools such as grpcurl need no `.proto` files.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::descriptor_pool;
use super::frame::{self, GrpcMessageDecoder};
use super::response_body::{GrpcBody, GrpcMessageSender};
use super::status::{GrpcCode, GrpcStatus};
use tidegate_web::protobuf::{ProtoDecodeError, ProtoReader, ProtoWriter, WireValue};

/// Answers the queries of a call in order until the client ends the call.
pub(super) fn serve_reflection(queries: Incoming, max_bytes: usize) -> Response<GrpcBody> {
    let (outbox, response) = GrpcBody::streaming_response();
    tokio::spawn(async move {
        let ended = answer_queries(queries, max_bytes, &outbox).await;
        outbox.finish(&ended.err().unwrap_or(GrpcStatus::OK)).await;
    });
    response
}

async fn answer_queries(
    mut queries: Incoming,
    max_bytes: usize,
    outbox: &GrpcMessageSender,
) -> Result<(), GrpcStatus> {
    let mut decoder = GrpcMessageDecoder::default();
    loop {
        while let Some(message) = decoder.next_message(max_bytes)? {
            let malformed = |ProtoDecodeError| {
                GrpcStatus::new(GrpcCode::InvalidArgument, "invalid ServerReflectionRequest")
            };
            if !outbox.send(answer_query(&message).map_err(malformed)?).await {
                return Ok(());
            }
        }
        let frame = tokio::select! {
            frame = queries.frame() => frame,
            () = outbox.closed() => None,
        };
        match frame {
            None | Some(Err(_)) => return Ok(()),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    decoder.push_bytes(&data);
                }
            }
        }
    }
}

/// A reflection query.
enum ReflectionQuery<'a> {
    Services,
    File(&'a [u8]),
    Symbol(&'a [u8]),
    /// Extensions; this server defines none.
    Extensions,
}

fn answer_query(message: &[u8]) -> Result<Bytes, ProtoDecodeError> {
    let (mut host, mut query, mut reader) = (&b""[..], None, ProtoReader::new(message));
    while let Some(field) = reader.next_field()? {
        match field {
            (1, WireValue::Bytes(value)) => host = value,
            (3, WireValue::Bytes(name)) => query = Some(ReflectionQuery::File(name)),
            (4, WireValue::Bytes(name)) => query = Some(ReflectionQuery::Symbol(name)),
            (5 | 6, WireValue::Bytes(_)) => query = Some(ReflectionQuery::Extensions),
            (7, WireValue::Bytes(_)) => query = Some(ReflectionQuery::Services),
            _ => {}
        }
    }
    let mut writer = ProtoWriter::with_reserved_prefix(frame::PREFIX_BYTES, 256);
    writer.bytes(1, host);
    writer.repeated_bytes(2, message);
    let pool = descriptor_pool::shared_pool();
    let files = match query {
        Some(ReflectionQuery::Services) => {
            writer.message(6, |list| {
                for name in pool.services() {
                    list.message(1, |service| service.bytes(1, name.as_bytes()));
                }
            });
            return Ok(frame::finish_message(writer.finish()));
        }
        Some(ReflectionQuery::File(name)) => pool.file_by_name(name),
        Some(ReflectionQuery::Symbol(name)) => pool.file_containing_symbol(name),
        Some(ReflectionQuery::Extensions) => None,
        None => return Err(ProtoDecodeError),
    };
    match files {
        Some(files) => writer.message(4, |response| {
            files.iter().for_each(|file| response.repeated_bytes(1, file));
        }),
        None => writer.message(7, |error| {
            error.varint_field(1, GrpcCode::NotFound as u64);
            error.bytes(2, b"no such file or symbol");
        }),
    }
    Ok(frame::finish_message(writer.finish()))
}
