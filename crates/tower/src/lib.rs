//! Rate limits for HTTP services, as a tower layer.
//!
//! ```
//! use tidegate::Limiter;
//! use tidegate_tower::RateLimitLayer;
//!
//! # fn handler() -> axum::Router { axum::Router::new() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder().limit("100/min by ip burst 20").build()?;
//! let app = handler().layer(RateLimitLayer::new(limiter)?);
//! # let _ = app; Ok(()) }
//! ```
//!
//! The layer fits every service of the `http` types: axum, tonic, hyper. It does what the Tidegate
//! gateway does in front of a service:
//!
//! - The rules document says [who a client is](RateLimitLayer): its address, behind trusted proxies
//!   too, its API key, its user. Nothing that a client can forge is believed by default.
//! - The rules say which limits apply, by route, method, tier or any other fact. One layer around
//!   the whole service is enough, and all clones of the service share its counters.
//! - Responses carry the rate-limit headers. A refused request gets status 429, `Retry-After`, and a
//!   body in the format that it accepts. A gRPC call gets `RESOURCE_EXHAUSTED`.
//! - The charge can depend on the response: [`RateLimitLayer::charge_if`] and costs that a response
//!   header or body determines. Concurrency slots are held until the response body has ended.
//!
//! The layer needs the address of the connection: see [`PeerAddress`].

mod admission;
mod body;
mod error;
mod layer;
mod peer_address;
mod service;

pub use body::RateLimitBody;
pub use error::LayerError;
pub use layer::RateLimitLayer;
pub use peer_address::PeerAddress;
pub use service::RateLimit;

pub use tidegate_response::{HeaderSettings, HeaderStyle, ResetStyle};
