//! Response bodies: buffered, or a stream of live events that lasts as long as the connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use tidegate_telemetry::live_feed::LiveFeed;

/// The body of a response.
pub enum AdminBody {
    /// A complete body.
    Buffered(Full<Bytes>),
    /// A stream of server-sent events.
    Live(LiveFeed),
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Buffered(body) => Pin::new(body).poll_frame(cx),
            Self::Live(feed) => Pin::new(feed).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered(body) => body.is_end_stream(),
            Self::Live(feed) => feed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Buffered(body) => body.size_hint(),
            Self::Live(feed) => feed.size_hint(),
        }
    }
}

impl From<Bytes> for AdminBody {
    fn from(bytes: Bytes) -> Self {
        Self::Buffered(bytes.into())
    }
}

impl From<Full<Bytes>> for AdminBody {
    fn from(body: Full<Bytes>) -> Self {
        Self::Buffered(body)
    }
}

impl std::fmt::Debug for AdminBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Buffered(_) => "AdminBody::Buffered",
            Self::Live(_) => "AdminBody::Live",
        })
    }
}
