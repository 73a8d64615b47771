//! Small wire types that several crates share: peer addresses, problem documents (RFC 9457), JSON
//! and protobuf readers and writers, dates, bearer tokens and the process status.

pub mod date;
pub mod http_response;
pub mod json;
mod log_paths;
mod peer;
pub mod percent;
pub mod problem;
mod process_status;
pub mod protobuf;
mod token;

pub use log_paths::LogPaths;
pub use peer::Peer;
pub use process_status::{ProcessStatus, ReadyView, ReloadCounts};
pub use token::{BearerToken, EmptyTokenError, read_bearer_token};
