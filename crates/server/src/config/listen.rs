//! Where a door listens, as typed, and who may use the file that it listens in.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::value::Wrong;

/// The longest path that the system takes for a socket (`sun_path` holds one byte more, unix(7)).
const MAX_PATH_BYTES: usize = 107;

/// Where a door listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// At an address; port 0 takes a free one.
    At(SocketAddr),
    /// At a port of this machine, or at a free one if that is taken.
    Preferred(u16),
    /// In a file.
    Unix(PathBuf),
    /// Nowhere.
    Off,
}

/// Where a door listens, and whether somebody asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DoorAt {
    /// Somebody asked for it, so it must open.
    Asked(Listen),
    /// Nobody said anything.
    Default(Listen),
}

/// The permissions of a socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketMode(pub(crate) u32);

impl Listen {
    /// A port of this machine alone.
    pub(crate) const fn loopback(port: u16) -> Self {
        Self::At(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))
    }

    /// The same with a relative path taken from a folder.
    pub(crate) fn beside(self, folder: &Path) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(folder.join(path)),
            other => other,
        }
    }

    /// Somebody asked for this, or nobody for anything.
    pub(crate) fn or_default(asked: Option<Self>, default: Self) -> DoorAt {
        asked.map_or(DoorAt::Default(default), DoorAt::Asked)
    }
}

impl DoorAt {
    /// Where.
    pub(crate) const fn listen(&self) -> &Listen {
        match self {
            Self::Asked(listen) | Self::Default(listen) => listen,
        }
    }
}

impl Default for SocketMode {
    /// The owner and the group: whoever may write to it may ask, and reset what is counted.
    fn default() -> Self {
        Self(0o660)
    }
}

impl FromStr for Listen {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return socket_path(path).map(Self::Unix);
        }
        if let Ok(port) = text.trim_start_matches("localhost:").parse() {
            return Ok(Self::loopback(port));
        }
        text.parse().map(Self::At).map_err(|_| Wrong {
            message: "this is not an address to listen on".to_owned(),
            write: "an IP and a port, such as `127.0.0.1:8081` or `[::1]:8081`, \
                    `unix:/run/tidegate/http.sock`, or `off`",
        })
    }
}

/// The path of a socket; `unix:///run/x` names the same as `unix:/run/x`.
fn socket_path(text: &str) -> Result<PathBuf, Wrong> {
    let wrong = |message: &str, write| Err(Wrong { message: message.to_owned(), write });
    if text.is_empty() || text.ends_with('/') {
        return wrong("this names no file", "a path such as `unix:/run/tidegate/http.sock`");
    }
    if text.starts_with('@') {
        let message = "a socket without a file has no permissions: anyone here could ask";
        return wrong(message, "a path such as `unix:/run/tidegate/http.sock`");
    }
    if text.len() > MAX_PATH_BYTES {
        return wrong("the path is too long for a socket", "one of at most 107 bytes");
    }
    Ok(Path::new(text).components().collect())
}

impl FromStr for SocketMode {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits =
            (3..=4).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
        mode.map(Self).ok_or_else(|| Wrong {
            message: "these are not the permissions of a file".to_owned(),
            write: "octal digits as `chmod` takes them, such as `0660` or `0600`",
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(addr) => addr.fmt(f),
            Self::Preferred(port) => write!(f, "{}:{port}", Ipv4Addr::LOCALHOST),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Off => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_typed() {
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
            assert_eq!(text.parse::<Listen>().map(|at| at.to_string()), Ok(shown.to_owned()));
        }
        let long = format!("unix:/{}", "x".repeat(107));
        let wrong = ["", "OFF", "127.0.0.1", "127.0.0.1:99999", "example.org:80"];
        for text in wrong.into_iter().chain(["unix:", "unix:/run/", "unix:@name", &long]) {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_relative_socket_starts_at_the_document() {
        let beside = |text: &str| text.parse::<Listen>().unwrap().beside(Path::new("/etc/x"));
        assert_eq!(beside("unix:http.sock").to_string(), "unix:/etc/x/http.sock");
        assert_eq!(beside("unix:/run/http.sock").to_string(), "unix:/run/http.sock");
        assert_eq!(beside("off"), Listen::Off);
    }

    #[test]
    fn permissions_are_octal() {
        for (text, mode) in [("0660", 0o660), ("600", 0o600), ("0777", 0o777)] {
            assert_eq!(text.parse(), Ok(SocketMode(mode)), "{text}");
        }
        for text in ["", "66", "0680", "1777", "07777", "+660", "rw-rw----"] {
            assert!(text.parse::<SocketMode>().is_err(), "{text}");
        }
    }
}
