//! Where a server of an upstream is and what it speaks, as people write it.

use std::fmt;
use std::str::FromStr;

use http::uri::Authority;

/// Where a server is and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    pub(super) protocol: Protocol,
    pub(super) host: String,
    pub(super) port: u16,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS, as the server likes.
    Https,
    /// HTTP/2 in plain text, as gRPC servers speak it.
    Http2,
}

/// Why a text is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress(&'static str);

impl Address {
    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Whether the server is reached over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.protocol == Protocol::Https
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (protocol, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Protocol::Http, rest),
            Some(("https", rest)) => (Protocol::Https, rest),
            Some(("h2c", rest)) => (Protocol::Http2, rest),
            _ => return Err(BadAddress("it begins with http://, https:// or h2c://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(BadAddress("it has no path: requests keep theirs"));
        }
        let authority =
            Authority::try_from(rest).map_err(|_| BadAddress("it names a host and a port"))?;
        if authority.as_str().contains('@') {
            return Err(BadAddress("it has no user and no password"));
        }
        let usual = if protocol == Protocol::Https { 443 } else { 80 };
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // One that is not a port is none.
            None if authority.as_str() != authority.host() => {
                return Err(BadAddress("its port is a number up to 65535"));
            }
            None => usual,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        match host.is_empty() || port == 0 {
            true => Err(BadAddress("it names a host and a port")),
            false => Ok(Self { protocol, host, port }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Http2 => "h2c",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is not the address of a server: {}", self.0)
    }
}

impl std::error::Error for BadAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_told() {
        for (text, told) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://api.internal/", "http://api.internal:80"),
            ("https://api.internal", "https://api.internal:443"),
            ("h2c://[::1]:50051", "h2c://[::1]:50051"),
        ] {
            assert_eq!(
                text.parse::<Address>().map(|address| address.to_string()).as_deref(),
                Ok(told)
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
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
