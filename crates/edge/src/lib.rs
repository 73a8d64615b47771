//! The doors: the only crate that knows a wire format.
//!
//! A request becomes [`Facts`](tidegate_rules::Facts) ([`extract`], [`path`], [`json`]), the engine
//! decides, and the [`Decision`](tidegate_engine::Decision) becomes a status, headers and a body
//! ([`respond`], [`json`]). No rule is matched and nothing is counted here.

pub mod answer;
mod bell;
mod brief;
pub mod date;
pub mod envoy;
pub mod extract;
pub mod gateway;
pub mod grpc;
pub mod http;
mod identity;
pub mod json;
pub mod listen;
mod method;
pub mod path;
mod peer;
pub mod problem;
mod protobuf;
pub mod resp;
pub mod respond;
mod status;
mod token;
pub mod trace;

pub use peer::Peer;
pub use status::{Reloads, Status, Told};
pub use token::{EmptyToken, Token, bearer};
