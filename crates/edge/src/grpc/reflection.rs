//! Server reflection, v1 and v1alpha, which differ in nothing but the name: which services there are, and the
//! files that describe them. With it grpcurl and its like need no `.proto`.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::descriptors;
use super::frame::{self, Inbox};
use super::reply::{Outbox, Reply};
use super::status::{Code, Status};
use crate::protobuf::{Malformed, Reader, Value, Writer};

/// Answers the questions of a call, one after the other, for as long as they come.
pub(super) fn answer(questions: Incoming, max_bytes: usize) -> Response<Reply> {
    let (outbox, response) = Reply::stream();
    tokio::spawn(async move {
        let ended = converse(questions, max_bytes, &outbox).await;
        outbox.end(&ended.err().unwrap_or(Status::OK)).await;
    });
    response
}

async fn converse(
    mut questions: Incoming,
    max_bytes: usize,
    outbox: &Outbox,
) -> Result<(), Status> {
    let mut inbox = Inbox::default();
    loop {
        while let Some(message) = inbox.next(max_bytes)? {
            let malformed = |Malformed| {
                Status::new(Code::InvalidArgument, "this is no ServerReflectionRequest")
            };
            if !outbox.send(reply(&message).map_err(malformed)?).await {
                return Ok(());
            }
        }
        let frame = tokio::select! {
            frame = questions.frame() => frame,
            () = outbox.gone() => None,
        };
        match frame {
            None | Some(Err(_)) => return Ok(()),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    inbox.add(&data);
                }
            }
        }
    }
}

/// What is asked for.
enum Asked<'a> {
    Services,
    File(&'a [u8]),
    Symbol(&'a [u8]),
    /// Extensions, of which there are none.
    Extensions,
}

fn reply(message: &[u8]) -> Result<Bytes, Malformed> {
    let (mut host, mut asked, mut reader) = (&b""[..], None, Reader::new(message));
    while let Some(field) = reader.field()? {
        match field {
            (1, Value::Bytes(told)) => host = told,
            (3, Value::Bytes(name)) => asked = Some(Asked::File(name)),
            (4, Value::Bytes(name)) => asked = Some(Asked::Symbol(name)),
            (5 | 6, Value::Bytes(_)) => asked = Some(Asked::Extensions),
            (7, Value::Bytes(_)) => asked = Some(Asked::Services),
            _ => {}
        }
    }
    let mut writer = Writer::after(frame::HEAD_BYTES, 256);
    writer.bytes(1, host);
    writer.entry(2, message);
    let set = descriptors::set();
    let files = match asked {
        Some(Asked::Services) => {
            writer.message(6, |list| {
                for name in set.services() {
                    list.message(1, |service| service.bytes(1, name.as_bytes()));
                }
            });
            return Ok(frame::finish(writer.finish()));
        }
        Some(Asked::File(name)) => set.file(name),
        Some(Asked::Symbol(name)) => set.file_with(name),
        Some(Asked::Extensions) => None,
        None => return Err(Malformed),
    };
    match files {
        Some(files) => writer.message(4, |response| {
            files.iter().for_each(|file| response.entry(1, file));
        }),
        None => writer.message(7, |error| {
            error.number(1, Code::NotFound as u64);
            error.bytes(2, b"nothing here has this name");
        }),
    }
    Ok(frame::finish(writer.finish()))
}
