//! PROXY protocol versions 1 and 2: a load balancer names the client at the start of a connection.
//!
//! The parser is pure and incremental: from the bytes so far it returns that more are needed, or
//! the header's length and the client. It never auto-detects: a listener is configured to expect
//! the header, and only trusted peers are believed. Otherwise any client could claim any address.
//! The caller must limit the time spent reading.

mod v1;
mod v2;

use std::fmt;
use std::net::SocketAddr;

/// Maximum header length; a buffer of this size always suffices.
pub(crate) const MAX_HEADER_BYTES: usize = v2::MAX_HEADER_BYTES;

/// The version that a listener expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyVersion {
    /// Version 1, one line of text.
    V1,
    /// Version 2, binary.
    V2,
    /// Either version.
    Any,
}

/// Result of parsing the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyParseStatus {
    /// More bytes are needed.
    Incomplete,
    /// The header is complete.
    Complete {
        /// Length of the header; the connection's payload follows.
        len: usize,
        /// The client's address. `None` for the balancer's own connections (health checks), where
        /// the client is the peer itself.
        source: Option<SocketAddr>,
    },
}

/// Why a header is invalid. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeaderError {
    /// The connection does not begin with a header of the expected version.
    NoHeader,
    /// The header is too long.
    TooLong,
    /// The header violates the specification.
    Invalid,
    /// The header's checksum does not match.
    Checksum,
}

/// Parses a header at the start of `bytes`.
///
/// # Errors
/// When no continuation of the bytes could form a valid header.
pub(crate) fn parse(
    version: ProxyVersion,
    bytes: &[u8],
) -> Result<ProxyParseStatus, ProxyHeaderError> {
    if version != ProxyVersion::V2 && may_start_with(bytes, v1::SIGNATURE) {
        v1::parse(bytes)
    } else if version != ProxyVersion::V1 && may_start_with(bytes, v2::SIGNATURE) {
        v2::parse(bytes)
    } else {
        Err(ProxyHeaderError::NoHeader)
    }
}

/// Whether the bytes so far match the signature.
fn may_start_with(bytes: &[u8], signature: &[u8]) -> bool {
    let common = bytes.len().min(signature.len());
    bytes[..common] == signature[..common]
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHeader => "the connection does not begin with a PROXY header",
            Self::TooLong => "the PROXY header is too long",
            Self::Invalid => "the PROXY header is malformed",
            Self::Checksum => "the PROXY header has a wrong checksum",
        })
    }
}

impl std::error::Error for ProxyHeaderError {}

#[cfg(test)]
mod tests;
