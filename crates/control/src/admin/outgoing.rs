//! Bodies of answers: whole, or events for as long as somebody listens.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use crate::live::Feed;

/// The body of an answer.
pub enum Outgoing {
    /// All of it is here.
    Whole(Full<Bytes>),
    /// It comes bit by bit.
    Live(Feed),
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Live(feed) => Pin::new(feed).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Live(feed) => feed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Live(feed) => feed.size_hint(),
        }
    }
}

impl From<Bytes> for Outgoing {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes.into())
    }
}

impl From<Full<Bytes>> for Outgoing {
    fn from(body: Full<Bytes>) -> Self {
        Self::Whole(body)
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "Outgoing::Whole",
            Self::Live(_) => "Outgoing::Live",
        })
    }
}
