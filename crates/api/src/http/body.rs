//! Reads request bodies up to a maximum size.
//!
//! All long bodies share a memory budget, and a body is read only while it fits. This keeps many
//! clients with large bodies from exhausting the memory of the process.

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

use tidegate_web::http_response;
use tidegate_web::problem::HttpError;

/// Bodies of up to this many bytes are not charged to the memory budget.
pub(crate) const MAX_SHORT_BODY_BYTES: usize = 64 * 1024;

/// Why a body could not be read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReadError {
    /// It is longer than the maximum.
    TooLarge {
        /// The maximum.
        max_bytes: usize,
    },
    /// It did not arrive in time.
    TimedOut,
    /// The client aborted it.
    Aborted,
}

/// Memory shared by all long bodies. A body that does not fit waits in FIFO order and stays unread
/// meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemoryBudget {
    free: Arc<Semaphore>,
    max_bytes: u32,
}

/// A body that was read. It holds its share of the memory budget until it is dropped.
#[derive(Debug)]
pub(crate) struct CollectedBody {
    pub(crate) bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Returns the total length of a body as declared in its first bytes, if it is.
pub(crate) type LengthParser = fn(&[u8]) -> Option<usize>;

impl BodyMemoryBudget {
    /// A budget of `max_bytes` for long bodies.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let max_bytes = u32::try_from(max_bytes.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { free: Arc::new(Semaphore::new(max_bytes as usize)), max_bytes }
    }

    /// Waits for `bytes` of the budget. A body longer than the whole budget takes all of it.
    async fn acquire(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        // This fails only on a closed semaphore, and it is never closed.
        Arc::clone(&self.free).acquire_many_owned(bytes).await.ok()
    }
}

/// Reads the whole body, without copying if it arrives in one piece.
///
/// # Errors
/// The body is too long, or does not arrive completely and in time.
pub async fn read<B>(body: B, max_bytes: usize, timeout: Duration) -> Result<Bytes, BodyReadError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let read = read_with_timeout(body, max_bytes, timeout, None).await?;
    Ok(read.bytes)
}

/// Like [`read`], but charges a long body to a memory budget.
pub(crate) async fn read_budgeted<B>(
    body: B,
    max_bytes: usize,
    timeout: Duration,
    budget: (&BodyMemoryBudget, LengthParser),
) -> Result<CollectedBody, BodyReadError>
where
    B: Body<Data = Bytes> + Unpin,
{
    read_with_timeout(body, max_bytes, timeout, Some(budget)).await
}

async fn read_with_timeout<B>(
    body: B,
    max_bytes: usize,
    timeout: Duration,
    budget: Option<(&BodyMemoryBudget, LengthParser)>,
) -> Result<CollectedBody, BodyReadError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(BodyReadError::TooLarge { max_bytes });
    }
    let mut read = pin!(collect(body, max_bytes, budget));
    // Most bodies arrive with the request head; only the others need a timer.
    if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
        return read;
    }
    Box::pin(tokio::time::timeout(timeout, read)).await.unwrap_or(Err(BodyReadError::TimedOut))
}

async fn collect<B>(
    mut body: B,
    max_bytes: usize,
    budget: Option<(&BodyMemoryBudget, LengthParser)>,
) -> Result<CollectedBody, BodyReadError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (mut first, mut joined, mut permit) = (Bytes::new(), BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyReadError::Aborted)?.into_data() else {
            continue;
        };
        let length = first.len() + joined.len() + data.len();
        if length > max_bytes {
            return Err(BodyReadError::TooLarge { max_bytes });
        }
        if first.is_empty() && joined.is_empty() {
            first = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&data);
        }
        // Most bodies arrive in one frame and report their end, which saves another poll.
        if body.is_end_stream() {
            break;
        }
        if let (Some((budget, declared_length)), None, true) =
            (budget, &permit, length > MAX_SHORT_BODY_BYTES)
        {
            let declared = declared_length(if first.is_empty() { &joined } else { &first });
            let rest = body.size_hint().exact().and_then(|rest| usize::try_from(rest).ok());
            let whole = declared.or(rest.map(|rest| length + rest)).unwrap_or(max_bytes);
            permit = budget.acquire(whole.min(max_bytes)).await;
            joined.reserve(whole.min(max_bytes).saturating_sub(joined.len()));
        }
    }
    let bytes = if joined.is_empty() { first } else { joined.freeze() };
    Ok(CollectedBody { bytes, _permit: permit })
}

impl BodyReadError {
    /// Converts the error to a response. It closes the connection: the rest of the body is unread,
    /// so no other request can follow.
    #[must_use]
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let problem = match self {
            Self::TooLarge { max_bytes } => HttpError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is longer than {max_bytes} bytes"),
            ),
            Self::TimedOut => {
                HttpError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
            }
            Self::Aborted => HttpError::new(StatusCode::BAD_REQUEST, "the client aborted the body"),
        };
        let mut response = http_response::problem(&problem);
        http_response::set_connection_close(&mut response);
        response
    }
}
