//! Why an upstream's server gave no answer, and what the client is told.

use std::fmt;
use std::io;

use http::StatusCode;

use super::outgoing::BodyFault;
use super::server::Server;
use crate::problem::Problem;

/// What went wrong.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(io::Error),
    ConnectTimeout,
    ResponseTimeout,
    /// The client's body; the server is not to blame.
    Body(BodyFault),
    Broken(hyper::Error),
    /// Its answer cannot be passed on.
    Nonsense(&'static str),
    /// It speaks only what cannot change its protocol.
    NoUpgrade,
    /// The request was sent before, and is not there any more.
    Sent,
}

impl Failure {
    /// hyper tells the fault of a request's body as its own error's cause.
    pub(super) fn of(error: hyper::Error) -> Self {
        let fault = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        match fault {
            Some(fault) => Self::Body(*fault),
            None => Self::Broken(error),
        }
    }

    /// Whether no connection came about.
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout)
    }

    /// What the client is told; the log is told more.
    pub(super) fn problem(&self, server: &Server) -> Problem {
        let (status, detail) = match self {
            Self::Body(fault) => return fault.problem(),
            Self::ResponseTimeout | Self::ConnectTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time")
            }
            Self::Connect(_) => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached"),
            Self::Broken(_) => (StatusCode::BAD_GATEWAY, "the upstream's answer broke off"),
            Self::Nonsense(_) => (StatusCode::BAD_GATEWAY, "the upstream's answer makes no sense"),
            Self::NoUpgrade => (StatusCode::BAD_GATEWAY, "the upstream does not change protocols"),
            Self::Sent => (StatusCode::BAD_GATEWAY, "the request was sent, and not answered"),
        };
        tracing::warn!(server = %server.address, why = %self, "an upstream failed");
        Problem::new(status, detail)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::ConnectTimeout => f.write_str("cannot connect in time"),
            Self::ResponseTimeout => f.write_str("no answer in time"),
            Self::Body(fault) => fault.fmt(f),
            Self::Broken(error) => write!(f, "the answer broke off: {error}"),
            Self::Nonsense(what) => write!(f, "the answer makes no sense: {what}"),
            Self::NoUpgrade => f.write_str("HTTP/2 does not change its protocol"),
            Self::Sent => f.write_str("the request was sent before"),
        }
    }
}
