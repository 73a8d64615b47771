//! Address and protocol of an upstream server, parsed from a URL such as `https://api.internal`.

use std::fmt;
use std::str::FromStr;

use http::uri::Authority;

/// Address and protocol of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutboundAddress {
    /// The protocol and whether it runs over TLS.
    pub protocol: OutboundProtocol,
    /// The host name or IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// The protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutboundProtocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS; ALPN decides which.
    Https,
    /// HTTP/2 without TLS (h2c), as used by gRPC servers.
    Http2,
}

/// Why a text is not a valid server address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundAddressError(&'static str);

impl OutboundAddress {
    /// Host and port, with brackets around an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Whether connections to the server use TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.protocol == OutboundProtocol::Https
    }
}

impl FromStr for OutboundAddress {
    type Err = OutboundAddressError;

    fn from_str(text: &str) -> Result<Self, OutboundAddressError> {
        let (protocol, rest) = match text.split_once("://") {
            Some(("http", rest)) => (OutboundProtocol::Http, rest),
            Some(("https", rest)) => (OutboundProtocol::Https, rest),
            Some(("h2c", rest)) => (OutboundProtocol::Http2, rest),
            _ => {
                return Err(OutboundAddressError("it must begin with http://, https:// or h2c://"));
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(OutboundAddressError("it must not have a path; requests keep theirs"));
        }
        let authority = Authority::try_from(rest)
            .map_err(|_| OutboundAddressError("it must name a host and a port"))?;
        if authority.as_str().contains('@') {
            return Err(OutboundAddressError("it must not contain a user or password"));
        }
        let default_port = if protocol == OutboundProtocol::Https { 443 } else { 80 };
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // The authority has a port that is not a valid number.
            None if authority.as_str() != authority.host() => {
                return Err(OutboundAddressError("the port must be a number up to 65535"));
            }
            None => default_port,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        match host.is_empty() || port == 0 {
            true => Err(OutboundAddressError("it must name a host and a port")),
            false => Ok(Self { protocol, host, port }),
        }
    }
}

impl fmt::Display for OutboundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            OutboundProtocol::Http => "http",
            OutboundProtocol::Https => "https",
            OutboundProtocol::Http2 => "h2c",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl fmt::Display for OutboundAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid server address: {}", self.0)
    }
}

impl std::error::Error for OutboundAddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_as_text() {
        for (text, expected) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://api.internal/", "http://api.internal:80"),
            ("https://api.internal", "https://api.internal:443"),
            ("h2c://[::1]:50051", "h2c://[::1]:50051"),
        ] {
            assert_eq!(
                text.parse::<OutboundAddress>().map(|address| address.to_string()).as_deref(),
                Ok(expected)
            );
        }
        for text in [
            "",
            "localhost:3000",
            "ftp://a",
            "http://",
            "http://a/path",
            "http://a?q",
            "http://u@a",
            "http://a:0",
            "http://a:99999",
            "http://a b",
            "http://:80",
        ] {
            assert!(text.parse::<OutboundAddress>().is_err(), "{text}");
        }
    }
}
