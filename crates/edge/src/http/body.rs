//! Reads the body of a request up to a cap and no further.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;

use crate::answer;
use crate::problem::Problem;

/// A body that was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is longer than this door takes.
    TooLarge {
        /// How much it takes.
        max_bytes: usize,
    },
    /// It did not come in time.
    TooSlow,
    /// It broke off.
    BrokenOff,
}

/// The whole body; it is not copied when it comes in one piece.
///
/// # Errors
/// When it is too long or does not come.
pub async fn read<B>(body: B, max_bytes: usize, patience: Duration) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(Unread::TooLarge { max_bytes });
    }
    let mut read = pin!(collect(body, max_bytes));
    // Most bodies are there with their head; a timer is set for the others.
    if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
        return read;
    }
    Box::pin(tokio::time::timeout(patience, read)).await.unwrap_or(Err(Unread::TooSlow))
}

async fn collect<B>(mut body: B, max_bytes: usize) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::BrokenOff)?.into_data() else {
            continue;
        };
        if first.len() + rest.len() + data.len() > max_bytes {
            return Err(Unread::TooLarge { max_bytes });
        }
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
        // Most come in one piece, and say so: to ask for another would be to ask in vain.
        if body.is_end_stream() {
            break;
        }
    }
    if rest.is_empty() {
        return Ok(first);
    }
    Ok([first, rest.freeze()].concat().into())
}

impl Unread {
    /// The answer to it. The rest is still under way, so no other request can follow on the connection.
    #[must_use]
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let problem = match self {
            Self::TooLarge { max_bytes } => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body has more than {max_bytes} bytes"),
            ),
            Self::TooSlow => {
                Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")
            }
            Self::BrokenOff => Problem::new(StatusCode::BAD_REQUEST, "the body broke off"),
        };
        let mut response = answer::problem(&problem);
        answer::close(&mut response);
        response
    }
}
