//! Why an upstream server sent no usable response, and the error that the client receives.

use std::fmt;
use std::io;

use http::StatusCode;

use super::request_body::RequestBodyError;
use super::upstream_server::UpstreamServer;
use tidegate_web::problem::HttpError;

/// Why an upstream request failed.
#[derive(Debug)]
pub(super) enum UpstreamError {
    Connect(io::Error),
    ConnectTimeout,
    ResponseTimeout,
    /// The client's request body failed; the server is not at fault.
    Body(RequestBodyError),
    ConnectionBroken(hyper::Error),
    /// The response cannot be forwarded.
    InvalidResponse(&'static str),
    /// The server negotiated HTTP/2, which has no upgrades.
    UpgradeUnsupported,
    /// The request was already sent and is no longer available.
    AlreadySent,
}

impl UpstreamError {
    /// hyper wraps an error of the request body: it is the source of the hyper error.
    pub(super) fn from_hyper(error: hyper::Error) -> Self {
        let body_error = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        match body_error {
            Some(body_error) => Self::Body(*body_error),
            None => Self::ConnectionBroken(error),
        }
    }

    /// Whether the connection could not be established.
    pub(super) const fn is_connect_failure(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout)
    }

    /// Logs the details and returns the error for the client, which reveals less.
    pub(super) fn to_http_error(&self, server: &UpstreamServer) -> HttpError {
        let (status, detail) = match self {
            Self::Body(body_error) => return body_error.to_http_error(),
            Self::ResponseTimeout | Self::ConnectTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "the upstream did not respond in time")
            }
            Self::Connect(_) => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached"),
            Self::ConnectionBroken(_) => {
                (StatusCode::BAD_GATEWAY, "the connection to the upstream was lost")
            }
            Self::InvalidResponse(_) => {
                (StatusCode::BAD_GATEWAY, "the upstream sent an invalid response")
            }
            Self::UpgradeUnsupported => {
                (StatusCode::BAD_GATEWAY, "the upstream does not support protocol upgrades")
            }
            Self::AlreadySent => (
                StatusCode::BAD_GATEWAY,
                "the upstream did not respond and the request cannot be resent",
            ),
        };
        tracing::warn!(server = %server.address, why = %self, "upstream request failed");
        HttpError::new(status, detail)
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::ConnectTimeout => f.write_str("connect timed out"),
            Self::ResponseTimeout => f.write_str("response timed out"),
            Self::Body(body_error) => body_error.fmt(f),
            Self::ConnectionBroken(error) => {
                write!(f, "connection lost: {error}")?;
                // hyper's text says only which layer failed.
                match std::error::Error::source(error) {
                    Some(cause) => write!(f, ": {cause}"),
                    None => Ok(()),
                }
            }
            Self::InvalidResponse(what) => write!(f, "invalid response: {what}"),
            Self::UpgradeUnsupported => f.write_str("HTTP/2 does not support upgrades"),
            Self::AlreadySent => f.write_str("the request was already sent"),
        }
    }
}
