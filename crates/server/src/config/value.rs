//! The values that settings have, and how each is typed.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use tidegate_core::time::Micros;
use tidegate_edge::gateway;
use tidegate_edge::respond::{HeaderStyle, ResetStyle};
use tidegate_redis::Address;

/// What is wrong with a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) write: &'static str,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write {}", self.message, self.write)
    }
}

impl std::error::Error for Wrong {}

/// Where the API behind the gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamAt(pub(crate) gateway::Address);

impl FromStr for UpstreamAt {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|error: gateway::BadAddress| Wrong {
            message: error.to_string(),
            write: "such as `http://127.0.0.1:3000`, `https://api.internal` or `h2c://10.0.0.7:50051`",
        })
    }
}

/// Where the counters are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreAt {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(Address),
}

impl FromStr for StoreAt {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        Address::parse(text).map(Self::Redis).map_err(|wrong| Wrong {
            message: wrong.message().to_owned(),
            write: "`memory`, redis://HOST:6379/0, rediss://HOST (TLS), unix:///PATH, \
                    redis+sentinel://H1,H2,H3/MASTER or redis+cluster://H1,H2,H3",
        })
    }
}

impl fmt::Display for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(address) => address.fmt(f),
        }
    }
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// Less holds no counters worth speaking of.
const LEAST_BYTES: u64 = 1 << 20;

const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("", 1),
];

impl FromStr for Bytes {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match amount(text) {
            Some(size) if size >= LEAST_BYTES => Ok(Self(size)),
            Some(_) => Err(Wrong {
                message: "this is too little to count in".to_owned(),
                write: "at least `1MiB`",
            }),
            None => Err(Wrong {
                message: "this is not an amount of memory".to_owned(),
                write: "a number with a unit, such as `256MiB` or `2GiB`",
            }),
        }
    }
}

/// How long something may be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) u64);

impl FromStr for Length {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        amount(text).map(Self).ok_or_else(|| Wrong {
            message: "this is not a length".to_owned(),
            write: "a number of bytes, or one with a unit such as `64KiB` or `10MiB`",
        })
    }
}

fn amount(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    number.parse::<u64>().ok().zip(unit).and_then(|(n, (_, u))| n.checked_mul(*u))
}

/// What `X-RateLimit-Reset` tells. Plain comments: help stays short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reset {
    // The instant, in seconds since 1970, as GitHub does
    #[default]
    Epoch,
    // The wait, in seconds, as Envoy does
    Delta,
}

impl From<Reset> for ResetStyle {
    fn from(reset: Reset) -> Self {
        match reset {
            Reset::Epoch => Self::Epoch,
            Reset::Delta => Self::Delta,
        }
    }
}

/// Which headers tell the limit and what is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    // X-RateLimit-… and the IETF pair
    #[default]
    All,
    // X-RateLimit-… alone
    X,
    // RateLimit and RateLimit-Policy alone
    Ietf,
    // X-RateLimit-… and the trio RateLimit-… of older drafts
    Legacy,
    // Neither; Retry-After is told all the same
    None,
}

impl From<Style> for HeaderStyle {
    fn from(style: Style) -> Self {
        match style {
            Style::All => Self::All,
            Style::X => Self::X,
            Style::Ietf => Self::Ietf,
            Style::Legacy => Self::Legacy,
            Style::None => Self::None,
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    // For people
    #[default]
    Pretty,
    // One JSON object a line, for programs
    Json,
}

/// What is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    // What went wrong
    Error,
    // And what may go wrong
    Warn,
    // And what changed
    #[default]
    Info,
    // And how it came about
    Debug,
    // And everything else
    Trace,
}

/// The name of a header, in lower case (a token of RFC 9110, section 5.6.2).
pub(crate) fn header_name(text: &str) -> Result<String, Wrong> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || !text.bytes().all(token) {
        let message = "this is not the name of a header".to_owned();
        return Err(Wrong { message, write: "letters, digits and dashes, such as `x-api-key`" });
    }
    Ok(text.to_ascii_lowercase())
}

/// Reads a span of time such as `10s`.
pub(crate) fn duration(text: &str) -> Result<Micros, Wrong> {
    tidegate_rules::duration::parse(text).map_err(|_| Wrong {
        message: "this is not a span of time".to_owned(),
        write: "a number with a unit, such as `250ms`, `10s`, `5m` or `1h30m`",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read_as_typed() {
        for (text, bytes) in [
            ("256MiB", 268_435_456),
            ("2 GiB", 2_147_483_648),
            ("1gb", 1_000_000_000),
            ("2097152", 2_097_152),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in
            ["", "MiB", "1.5GiB", "1KiB", "-1MiB", "99999999999999999999", "9999999999999GiB"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
