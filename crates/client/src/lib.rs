//! A [tower] layer for outbound HTTP calls that behaves well towards the server: it paces calls by
//! the server's rate limit headers *before* the server has to refuse them, honours `Retry-After`,
//! and retries little.
//!
//! It wraps every `tower` service of [`http::Request`] and [`http::Response`]: the clients of
//! hyper-util, reqwest and tonic.
//!
//! ```no_run
//! use bytes::Bytes;
//! use http_body_util::Empty;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tidegate_client::ClientLayer;
//! use tower::{Layer as _, ServiceExt as _};
//!
//! # async fn call() -> Result<(), Box<dyn std::error::Error>> {
//! let http = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
//! let client = ClientLayer::new().clone_bodies().layer(http);
//!
//! let request = http::Request::get("http://api.example/items").body(Empty::new())?;
//! let response = client.oneshot(request).await?; // waits for its turn
//! # let _ = response;
//! # Ok(())
//! # }
//! ```
//!
//! - Calls to one host share one budget ([`key_by`](ClientLayer::key_by)), in the order in which
//!   they arrive. Clones of a layer and of its services share all budgets.
//! - A call never waits past its [`CallDeadline`]. If its turn is later, it fails at once with
//!   [`ClientError::DeadlineTooShort`].
//! - A refused call is retried only if its method is idempotent or [`RetryPolicy`] says so, its
//!   body can be cloned, and the retry budget allows it.
//! - [`SharedQuota`] shares one quota between processes.
//! - [`Pacer`] is the pacing alone, without a clock or I/O.
//!
//! [tower]: https://docs.rs/tower

mod body_clone;
mod call_deadline;
mod client_error;
mod client_layer;
mod client_service;
mod client_state;
mod client_stats;
mod headers;
mod host_budget;
mod key_table;
mod pacing;
mod race;
mod retry;
mod shared_quota;
mod tidegate_quota;

pub use body_clone::{CloneBodies, CloneBodiesWith, CloneBody, NoBodyClones};
pub use call_deadline::CallDeadline;
pub use client_error::ClientError;
pub use client_layer::ClientLayer;
pub use client_service::ClientService;
pub use client_stats::{ClientStats, KeyStats};
pub use headers::{CallOutcome, QuotaNumbers, ResponseHints};
pub use pacing::{Pacer, PacingAnswer, SendTicket};
pub use retry::{FailedCall, RetryPolicy};
pub use shared_quota::{QuotaAnswer, QuotaFuture, SharedQuota, SharedQuotaError};
pub use tidegate_quota::{QuotaUrlError, TidegateQuota};
