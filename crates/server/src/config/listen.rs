//! Listen addresses and the permissions of Unix socket files.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::value::ValueError;

/// Longest path of a Unix socket: `sun_path` has 108 bytes, one of them for the final NUL, see
/// unix(7).
const MAX_PATH_BYTES: usize = 107;

/// Where a listener binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenSpec {
    /// A socket address; port 0 picks a free port.
    Address(SocketAddr),
    /// A loopback port, or a free one if that port is taken.
    PreferredPort(u16),
    /// A Unix socket with this path.
    Unix(PathBuf),
    /// The listener is disabled.
    Off,
}

/// Where a listener binds, and whether the user configured it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenSetting {
    /// Configured by the user: failing to bind is an error.
    Explicit(ListenSpec),
    /// Not configured: this is the default.
    Default(ListenSpec),
}

/// Permissions of a Unix socket file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(pub(crate) u32);

impl ListenSpec {
    /// A port on the loopback interface.
    pub(crate) const fn loopback(port: u16) -> Self {
        Self::Address(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))
    }

    /// Resolves a relative socket path against `folder`.
    pub(crate) fn resolve_path(self, folder: &Path) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(folder.join(path)),
            other => other,
        }
    }

    /// Returns the configured address, or the default if there is none.
    pub(crate) fn explicit_or_default(configured: Option<Self>, default: Self) -> ListenSetting {
        configured.map_or(ListenSetting::Default(default), ListenSetting::Explicit)
    }
}

impl ListenSetting {
    /// The address itself.
    pub const fn spec(&self) -> &ListenSpec {
        match self {
            Self::Explicit(listen) | Self::Default(listen) => listen,
        }
    }
}

impl Default for SocketMode {
    /// Owner and group only: anyone who can write to the socket can use the API, including reset.
    fn default() -> Self {
        Self(0o660)
    }
}

impl FromStr for ListenSpec {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return parse_socket_path(path).map(Self::Unix);
        }
        if let Ok(port) = text.trim_start_matches("localhost:").parse() {
            return Ok(Self::loopback(port));
        }
        text.parse().map(Self::Address).map_err(|_| ValueError {
            message: "this is not an address to listen on".to_owned(),
            hint: "an IP and a port, such as `127.0.0.1:8081` or `[::1]:8081`, \
                    `unix:/run/tidegate/http.sock`, or `off`",
        })
    }
}

/// Parses a socket path; `unix:///run/x` equals `unix:/run/x`.
fn parse_socket_path(text: &str) -> Result<PathBuf, ValueError> {
    let error = |message: &str, hint| Err(ValueError { message: message.to_owned(), hint });
    if text.is_empty() || text.ends_with('/') {
        return error(
            "this is not the path of a file",
            "a path such as `unix:/run/tidegate/http.sock`",
        );
    }
    if text.starts_with('@') {
        let message = "an abstract socket has no file permissions: every local user could connect";
        return error(message, "a path such as `unix:/run/tidegate/http.sock`");
    }
    if text.len() > MAX_PATH_BYTES {
        return error("the path is too long for a socket", "one of at most 107 bytes");
    }
    Ok(Path::new(text).components().collect())
}

impl FromStr for SocketMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits =
            (3..=4).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
        mode.map(Self).ok_or_else(|| ValueError {
            message: "this is not a valid file mode".to_owned(),
            hint: "octal digits as `chmod` takes them, such as `0660` or `0600`",
        })
    }
}

impl fmt::Display for ListenSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(addr) => addr.fmt(f),
            Self::PreferredPort(port) => write!(f, "{}:{port}", Ipv4Addr::LOCALHOST),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Off => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_parsed() {
        for (text, shown) in [
            ("off", "off"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::1]:8081", "[::1]:8081"),
            ("8081", "127.0.0.1:8081"),
            ("localhost:9", "127.0.0.1:9"),
            ("unix:/run/tidegate/http.sock", "unix:/run/tidegate/http.sock"),
            ("unix:///run/http.sock", "unix:/run/http.sock"),
            ("unix:http.sock", "unix:http.sock"),
        ] {
            assert_eq!(text.parse::<ListenSpec>().map(|at| at.to_string()), Ok(shown.to_owned()));
        }
        let long = format!("unix:/{}", "x".repeat(107));
        let wrong = ["", "OFF", "127.0.0.1", "127.0.0.1:99999", "example.org:80"];
        for text in wrong.into_iter().chain(["unix:", "unix:/run/", "unix:@name", &long]) {
            assert!(text.parse::<ListenSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn relative_socket_path_uses_document_folder() {
        let resolved =
            |text: &str| text.parse::<ListenSpec>().unwrap().resolve_path(Path::new("/etc/x"));
        assert_eq!(resolved("unix:http.sock").to_string(), "unix:/etc/x/http.sock");
        assert_eq!(resolved("unix:/run/http.sock").to_string(), "unix:/run/http.sock");
        assert_eq!(resolved("off"), ListenSpec::Off);
    }

    #[test]
    fn socket_mode_is_octal() {
        for (text, mode) in [("0660", 0o660), ("600", 0o600), ("0777", 0o777)] {
            assert_eq!(text.parse(), Ok(SocketMode(mode)), "{text}");
        }
        for text in ["", "66", "0680", "1777", "07777", "+660", "rw-rw----"] {
            assert!(text.parse::<SocketMode>().is_err(), "{text}");
        }
    }
}
