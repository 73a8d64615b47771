//! Types of setting values and how each is parsed.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use tidegate_core::time::Micros;
use tidegate_net::connect;
use tidegate_redis::RedisAddress;
use tidegate_response::{HeaderStyle, ResetStyle};

/// An invalid value: what is wrong with it, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write {}", self.message, self.hint)
    }
}

impl std::error::Error for ValueError {}

/// URL of the API behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl(pub(crate) connect::OutboundAddress);

impl FromStr for UpstreamUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|error: connect::OutboundAddressError| ValueError {
            message: error.to_string(),
            hint: "a URL such as `http://127.0.0.1:3000`, `https://api.internal` or `h2c://10.0.0.7:50051`",
        })
    }
}

/// Where the counters are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(RedisAddress),
}

impl FromStr for StoreUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        RedisAddress::parse(text).map(Self::Redis).map_err(|error| ValueError {
            message: error.message().to_owned(),
            hint: "`memory`, redis://HOST:6379/0, rediss://HOST (TLS), unix:///PATH, \
                    redis+sentinel://H1,H2,H3/MASTER or redis+cluster://H1,H2,H3",
        })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(address) => address.fmt(f),
        }
    }
}

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub(crate) u64);

/// Smallest useful memory limit; less holds too few counters.
const MIN_MEMORY_BYTES: u64 = 1 << 20;

const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("", 1),
];

impl FromStr for MemorySize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse_bytes(text) {
            Some(size) if size >= MIN_MEMORY_BYTES => Ok(Self(size)),
            Some(_) => Err(ValueError {
                message: "this is too little memory for the counters".to_owned(),
                hint: "at least `1MiB`",
            }),
            None => Err(ValueError {
                message: "this is not an amount of memory".to_owned(),
                hint: "a number with a unit, such as `256MiB` or `2GiB`",
            }),
        }
    }
}

/// Maximum length of a request body, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodySize(pub(crate) u64);

impl FromStr for BodySize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_bytes(text).map(Self).ok_or_else(|| ValueError {
            message: "this is not a size".to_owned(),
            hint: "a number of bytes, or one with a unit such as `64KiB` or `10MiB`",
        })
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    number.parse::<u64>().ok().zip(unit).and_then(|(n, (_, u))| n.checked_mul(*u))
}

/// The format of `X-RateLimit-Reset`. The variants have plain comments, because clap would print
/// doc comments in the help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResetStyleArg {
    // Unix timestamp in seconds, as GitHub sends it.
    #[default]
    Epoch,
    // Seconds to wait, as Envoy sends it.
    Delta,
}

impl From<ResetStyleArg> for ResetStyle {
    fn from(reset: ResetStyleArg) -> Self {
        match reset {
            ResetStyleArg::Epoch => Self::Epoch,
            ResetStyleArg::Delta => Self::Delta,
        }
    }
}

/// Which rate-limit headers responses carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum HeaderStyleArg {
    // X-RateLimit-… and the IETF pair.
    #[default]
    All,
    // X-RateLimit-… only.
    X,
    // RateLimit and RateLimit-Policy only.
    Ietf,
    // X-RateLimit-… and the three RateLimit-… headers of older drafts.
    Legacy,
    // No rate-limit headers; Retry-After is still sent.
    None,
}

impl From<HeaderStyleArg> for HeaderStyle {
    fn from(style: HeaderStyleArg) -> Self {
        match style {
            HeaderStyleArg::All => Self::All,
            HeaderStyleArg::X => Self::X,
            HeaderStyleArg::Ietf => Self::Ietf,
            HeaderStyleArg::Legacy => Self::Legacy,
            HeaderStyleArg::None => Self::None,
        }
    }
}

/// Format of log lines.
#[allow(missing_docs, reason = "a doc comment would lengthen the help")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    // Human-readable.
    #[default]
    Pretty,
    // One JSON object per line.
    Json,
}

/// The lowest level that is logged.
#[allow(missing_docs, reason = "a doc comment would lengthen the help")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// Whether events of level debug are logged.
    pub(crate) const fn includes_debug(self) -> bool {
        matches!(self, Self::Debug | Self::Trace)
    }
}

/// Parses a header name and returns it in lower case (a token of RFC 9110, section 5.6.2).
pub fn parse_header_name(text: &str) -> Result<String, ValueError> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || !text.bytes().all(token) {
        let message = "this is not a valid header name".to_owned();
        return Err(ValueError {
            message,
            hint: "letters, digits and dashes, such as `x-api-key`",
        });
    }
    Ok(text.to_ascii_lowercase())
}

/// Parses the name of a region.
pub fn parse_region(text: &str) -> Result<String, ValueError> {
    if !tidegate_rules::is_region_name(text) {
        return Err(ValueError {
            message: "this is not the name of a region".to_owned(),
            hint: "letters, digits, dashes and underscores, such as `eu-1`",
        });
    }
    Ok(text.to_owned())
}

/// Parses a duration such as `10s`.
pub fn parse_duration(text: &str) -> Result<Micros, ValueError> {
    tidegate_rules::duration::parse(text).map_err(|_| ValueError {
        message: "this is not a duration".to_owned(),
        hint: "a number with a unit, such as `250ms`, `10s`, `5m` or `1h30m`",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes_are_parsed() {
        for (text, bytes) in [
            ("256MiB", 268_435_456),
            ("2 GiB", 2_147_483_648),
            ("1gb", 1_000_000_000),
            ("2097152", 2_097_152),
        ] {
            assert_eq!(text.parse(), Ok(MemorySize(bytes)), "{text}");
        }
        for text in
            ["", "MiB", "1.5GiB", "1KiB", "-1MiB", "99999999999999999999", "9999999999999GiB"]
        {
            assert!(text.parse::<MemorySize>().is_err(), "{text}");
        }
    }
}
