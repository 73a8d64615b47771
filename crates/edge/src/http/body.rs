//! Reads the body of a request up to a cap and no further.
//!
//! A long body is read only while there is room for it in the memory that long bodies share: many callers that
//! each send a large one must not exhaust the process.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer;
use crate::problem::Problem;

/// A body of up to this many bytes is short: it needs no room.
pub(crate) const SHORT_BYTES: usize = 64 * 1024;

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

/// The memory that long bodies share. A caller that finds none free waits, in the order in which they came, and
/// its body stays unread meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    max_bytes: u32,
}

/// A body that was read. It keeps its place in the room until it is dropped.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

/// How long the whole body is, as its first bytes say; none if they do not.
pub(crate) type Announced = fn(&[u8]) -> Option<usize>;

impl Room {
    /// Room for the given number of bytes of long bodies.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let max_bytes = u32::try_from(max_bytes.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { free: Arc::new(Semaphore::new(max_bytes as usize)), max_bytes }
    }

    /// A place for the given number of bytes; a body that is longer than the room has it for itself.
    async fn place(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        // Nobody closes it.
        Arc::clone(&self.free).acquire_many_owned(bytes).await.ok()
    }
}

/// The whole body; it is not copied when it comes in one piece.
///
/// # Errors
/// When it is too long or does not come.
pub async fn read<B>(body: B, max_bytes: usize, patience: Duration) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes> + Unpin,
{
    let read = within(body, max_bytes, patience, None).await?;
    Ok(read.bytes)
}

/// The same of a body that may be long.
pub(crate) async fn read_long<B>(
    body: B,
    max_bytes: usize,
    patience: Duration,
    room: (&Room, Announced),
) -> Result<Whole, Unread>
where
    B: Body<Data = Bytes> + Unpin,
{
    within(body, max_bytes, patience, Some(room)).await
}

async fn within<B>(
    body: B,
    max_bytes: usize,
    patience: Duration,
    room: Option<(&Room, Announced)>,
) -> Result<Whole, Unread>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(Unread::TooLarge { max_bytes });
    }
    let mut read = pin!(collect(body, max_bytes, room));
    // Most bodies are there with their head; a timer is set for the others.
    if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
        return read;
    }
    Box::pin(tokio::time::timeout(patience, read)).await.unwrap_or(Err(Unread::TooSlow))
}

async fn collect<B>(
    mut body: B,
    max_bytes: usize,
    room: Option<(&Room, Announced)>,
) -> Result<Whole, Unread>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (mut first, mut joined, mut place) = (Bytes::new(), BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::BrokenOff)?.into_data() else {
            continue;
        };
        let length = first.len() + joined.len() + data.len();
        if length > max_bytes {
            return Err(Unread::TooLarge { max_bytes });
        }
        if first.is_empty() && joined.is_empty() {
            first = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&data);
        }
        // Most come in one piece, and say so: to ask for another would be to ask in vain.
        if body.is_end_stream() {
            break;
        }
        if let (Some((room, announced)), None, true) = (room, &place, length > SHORT_BYTES) {
            let told = announced(if first.is_empty() { &joined } else { &first });
            let rest = body.size_hint().exact().and_then(|rest| usize::try_from(rest).ok());
            let whole = told.or(rest.map(|rest| length + rest)).unwrap_or(max_bytes);
            place = room.place(whole.min(max_bytes)).await;
            joined.reserve(whole.min(max_bytes).saturating_sub(joined.len()));
        }
    }
    let bytes = if joined.is_empty() { first } else { joined.freeze() };
    Ok(Whole { bytes, _place: place })
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
