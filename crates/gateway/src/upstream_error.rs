//! Why an upstream's server gave no answer, and what the client is told.

use std::fmt;
use std::io;

use http::StatusCode;

use super::request_body::RequestBodyError;
use super::upstream_server::UpstreamServer;
use tidegate_web::problem::HttpError;

/// What went wrong.
#[derive(Debug)]
pub(super) enum UpstreamError {
    Connect(io::Error),
    ConnectTimeout,
    ResponseTimeout,
    /// The client's body; the server is not to blame.
    Body(RequestBodyError),
    ConnectionBroken(hyper::Error),
    /// Its answer cannot be passed on.
    InvalidResponse(&'static str),
    /// It speaks only what cannot change its protocol.
    UpgradeUnsupported,
    /// The request was sent before, and is not there any more.
    AlreadySent,
}

impl UpstreamError {
    /// hyper tells the fault of a request's body as its own error's cause.
    pub(super) fn from_hyper(error: hyper::Error) -> Self {
        let fault = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        match fault {
            Some(fault) => Self::Body(*fault),
            None => Self::ConnectionBroken(error),
        }
    }

    /// Whether no connection came about.
    pub(super) const fn is_connect_failure(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout)
    }

    /// What the client is told; the log is told more.
    pub(super) fn to_http_error(&self, server: &UpstreamServer) -> HttpError {
        let (status, detail) = match self {
            Self::Body(fault) => return fault.to_http_error(),
            Self::ResponseTimeout | Self::ConnectTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time")
            }
            Self::Connect(_) => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached"),
            Self::ConnectionBroken(_) => {
                (StatusCode::BAD_GATEWAY, "the upstream's answer broke off")
            }
            Self::InvalidResponse(_) => {
                (StatusCode::BAD_GATEWAY, "the upstream's answer makes no sense")
            }
            Self::UpgradeUnsupported => {
                (StatusCode::BAD_GATEWAY, "the upstream does not change protocols")
            }
            Self::AlreadySent => {
                (StatusCode::BAD_GATEWAY, "the request was sent, and not answered")
            }
        };
        tracing::warn!(server = %server.address, why = %self, "an upstream failed");
        HttpError::new(status, detail)
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::ConnectTimeout => f.write_str("cannot connect in time"),
            Self::ResponseTimeout => f.write_str("no answer in time"),
            Self::Body(fault) => fault.fmt(f),
            Self::ConnectionBroken(error) => write!(f, "the answer broke off: {error}"),
            Self::InvalidResponse(what) => write!(f, "the answer makes no sense: {what}"),
            Self::UpgradeUnsupported => f.write_str("HTTP/2 does not change its protocol"),
            Self::AlreadySent => f.write_str("the request was sent before"),
        }
    }
}
