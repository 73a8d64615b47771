//! The PROXY protocol, version 1 and 2: a load balancer says at the start of a connection whose it
//! is.
//!
//! Pure and incremental: given what has come so far it answers that more is needed, or how long the
//! header is and whom it names. Never detected: a listener is told to expect it, from peers that
//! are trusted, or any client could name whom it likes. Who reads must bound the time.

mod v1;
mod v2;

use std::fmt;
use std::net::SocketAddr;

/// No header is longer than this; a buffer of this size always suffices.
pub(crate) const MAX_BYTES: usize = v2::MAX_BYTES;

/// What a listener expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// One line of text.
    V1,
    /// Binary.
    V2,
    /// Either of them.
    Any,
}

/// What the bytes say so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More are needed.
    Incomplete,
    /// The header is all there.
    Complete {
        /// How many bytes it has; what follows is the connection's own.
        len: usize,
        /// Whose connection it is; nobody is named for the balancer's own (health checks), and
        /// then it is the peer's.
        source: Option<SocketAddr>,
    },
}

/// Why the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// It does not begin with a header of that version.
    NoHeader,
    /// The header is too long.
    TooLong,
    /// The header breaks the rules.
    Invalid,
    /// The header was damaged on its way.
    Checksum,
}

/// Reads a header at the start of `bytes`.
///
/// # Errors
/// When no continuation of the bytes could make a header.
pub(crate) fn parse(version: Version, bytes: &[u8]) -> Result<Parsed, Malformed> {
    if version != Version::V2 && may_begin(bytes, v1::SIGNATURE) {
        v1::parse(bytes)
    } else if version != Version::V1 && may_begin(bytes, v2::SIGNATURE) {
        v2::parse(bytes)
    } else {
        Err(Malformed::NoHeader)
    }
}

/// Whether the bytes begin with a signature, as far as they go.
fn may_begin(bytes: &[u8], signature: &[u8]) -> bool {
    let common = bytes.len().min(signature.len());
    bytes[..common] == signature[..common]
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHeader => "the connection does not begin with a PROXY header",
            Self::TooLong => "the PROXY header is too long",
            Self::Invalid => "the PROXY header is malformed",
            Self::Checksum => "the checksum of the PROXY header is wrong",
        })
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests;
