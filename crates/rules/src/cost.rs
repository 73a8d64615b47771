//! The cost of a request, which the rule, the request or the response determines.
//!
//! This module parses the numbers in headers, so that all APIs interpret them the same way. The
//! APIs supply the header values and the sizes of the bodies.

use std::fmt;

/// Where the cost of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// The rule sets the same cost for every request.
    Fixed(u64),
    /// A request header contains the cost.
    Header {
        /// The header's name in lower case.
        name: Box<str>,
        /// The largest accepted value.
        max: u64,
    },
    /// One for each started block of the request body.
    Body {
        /// The block size in bytes.
        part: u64,
    },
    /// A response header contains the cost; until then an estimate applies.
    ResponseHeader {
        /// The header's name in lower case.
        name: Box<str>,
        /// The largest accepted value.
        max: u64,
        /// Charged until the cost is known.
        estimate: u64,
    },
    /// One for each started block of the response body; until then an estimate applies.
    Response {
        /// The block size in bytes.
        part: u64,
        /// Charged until the cost is known.
        estimate: u64,
    },
}

/// Bytes counted in the bodies of a request and its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyBytes {
    /// Bytes of the request body, if they were counted.
    pub request: Option<u64>,
    /// Bytes of the response body, if they were counted.
    pub response: Option<u64>,
}

impl CostSource {
    /// The cost without further information: the fixed cost, the estimate, or one.
    #[must_use]
    pub const fn base(&self) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { .. } | Self::Body { .. } => 1,
            Self::ResponseHeader { estimate, .. } | Self::Response { estimate, .. } => *estimate,
        }
    }

    /// Whether the request determines the cost.
    #[must_use]
    pub const fn is_from_request(&self) -> bool {
        matches!(self, Self::Header { .. } | Self::Body { .. })
    }

    /// Whether the end of the response may give a more precise cost. This includes request bodies,
    /// because a request need not declare its body size.
    #[must_use]
    pub const fn is_known_after_response(&self) -> bool {
        matches!(self, Self::Body { .. } | Self::ResponseHeader { .. } | Self::Response { .. })
    }

    /// The cost of a request from its header values and its declared body size: at least one.
    ///
    /// A missing header counts as one. A header that is not a single whole number counts as `max`:
    /// an error of the component that sets it must not make requests cheap.
    pub fn request_cost<'v, V: IntoIterator<Item = &'v [u8]>>(
        &self,
        header: impl FnOnce(&str) -> V,
        body_bytes: Option<u64>,
    ) -> u64 {
        match self {
            Self::Header { name, max } => match parse_whole_number(header(name)) {
                HeaderNumber::Missing => 1,
                HeaderNumber::Number(number) => number.clamp(1, *max),
                HeaderNumber::Invalid => *max,
            },
            Self::Body { part } => count_parts(body_bytes.unwrap_or_default(), *part),
            other => other.base(),
        }
    }

    /// The final cost from the header values of the response and the counted body bytes. `None` if
    /// they contain no cost; the amount already charged then stays.
    ///
    /// A header that is missing or not a single whole number is ignored: the client should not pay
    /// for an error of the upstream. The header may be 0. A body costs at least one; otherwise a
    /// client that disconnects early would pay nothing.
    pub fn response_cost<'v, V: IntoIterator<Item = &'v [u8]>>(
        &self,
        header: impl FnOnce(&str) -> V,
        seen: BodyBytes,
    ) -> Option<u64> {
        match self {
            Self::ResponseHeader { name, max, .. } => match parse_whole_number(header(name)) {
                HeaderNumber::Number(number) => Some(number.min(*max)),
                HeaderNumber::Missing | HeaderNumber::Invalid => None,
            },
            Self::Response { part, .. } => seen.response.map(|bytes| count_parts(bytes, *part)),
            Self::Body { part } => seen.request.map(|bytes| count_parts(bytes, *part)),
            Self::Fixed(_) | Self::Header { .. } => None,
        }
    }
}

/// The text shown to users.
impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(cost) => write!(f, "{cost}"),
            Self::Header { name, max } => {
                write!(f, "from the request header {name}, at most {max}")
            }
            Self::Body { part } => write!(f, "1 for each {part} bytes of the request"),
            Self::ResponseHeader { name, max, estimate } => {
                write!(f, "from the response header {name}, at most {max}, {estimate} until then")
            }
            Self::Response { part, estimate } => {
                write!(f, "1 for each {part} bytes of the response, {estimate} until then")
            }
        }
    }
}

/// The number in a header.
enum HeaderNumber {
    Missing,
    Number(u64),
    Invalid,
}

fn parse_whole_number<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> HeaderNumber {
    let mut values = values.into_iter();
    let Some(value) = values.next() else { return HeaderNumber::Missing };
    let digits = value.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !is_number || values.next().is_some() {
        return HeaderNumber::Invalid;
    }
    // A number with too many digits for `u64` is valid, and large.
    let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    HeaderNumber::Number(number.unwrap_or(u64::MAX))
}

/// Number of started blocks, at least one.
fn count_parts(bytes: u64, part: u64) -> u64 {
    bytes.div_ceil(part.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: BodyBytes = BodyBytes { request: None, response: None };

    fn header_values(of: &'static [&'static str]) -> impl Iterator<Item = &'static [u8]> {
        of.iter().map(|value| value.as_bytes())
    }

    /// Clients can set the header unless a trusted proxy overwrites it, so it never lowers the cost
    /// below one.
    #[test]
    fn invalid_request_header_costs_maximum() {
        let cost = CostSource::Header { name: "x-cost".into(), max: 1_000 };
        for (said, expected) in [
            (&[][..], 1),
            (&["7"][..], 7),
            (&[" 7 "][..], 7),
            (&["007"][..], 7),
            (&["0"][..], 1),
            (&["1000"][..], 1_000),
            (&["1001"][..], 1_000),
            (&["99999999999999999999999999"][..], 1_000),
            (&[""][..], 1_000),
            (&["-5"][..], 1_000),
            (&["+5"][..], 1_000),
            (&["1.5"][..], 1_000),
            (&["1e3"][..], 1_000),
            (&["1, 2"][..], 1_000),
            (&["1", "1"][..], 1_000),
            (&["٧"][..], 1_000),
        ] {
            assert_eq!(cost.request_cost(|_| header_values(said), None), expected, "{said:?}");
        }
        assert_eq!(
            cost.response_cost(|_| header_values(&["5"]), NONE),
            None,
            "it is known already"
        );
    }

    #[test]
    fn invalid_response_header_is_ignored() {
        let cost = CostSource::ResponseHeader { name: "x-tokens".into(), max: 1_000, estimate: 50 };
        assert_eq!(
            cost.request_cost(|_| header_values(&["7"]), None),
            50,
            "a request's header says nothing"
        );
        for (said, expected) in [
            (&[][..], None),
            (&["7"][..], Some(7)),
            (&["0"][..], Some(0)),
            (&["5000"][..], Some(1_000)),
            (&["99999999999999999999999999"][..], Some(1_000)),
            (&["many"][..], None),
            (&["1", "2"][..], None),
        ] {
            assert_eq!(cost.response_cost(|_| header_values(said), NONE), expected, "{said:?}");
        }
    }

    #[test]
    fn body_cost_counts_started_parts() {
        let (body, response) =
            (CostSource::Body { part: 1_024 }, CostSource::Response { part: 1_024, estimate: 9 });
        for (bytes, expected) in [(0, 1), (1, 1), (1_024, 1), (1_025, 2), (u64::MAX, 1 << 54)] {
            assert_eq!(body.request_cost(|_| header_values(&[]), Some(bytes)), expected);
            let seen = BodyBytes { request: Some(bytes), response: None };
            assert_eq!(body.response_cost(|_| header_values(&[]), seen), Some(expected));
            let seen = BodyBytes { response: Some(bytes), ..NONE };
            assert_eq!(response.response_cost(|_| header_values(&[]), seen), Some(expected));
        }
        assert_eq!(
            body.request_cost(|_| header_values(&[]), None),
            1,
            "a size that is not declared"
        );
        assert_eq!(response.request_cost(|_| header_values(&[]), Some(5_000)), 9);
        assert_eq!(response.response_cost(|_| header_values(&[]), NONE), None);
    }
}
