//! Where the counters are: what `--store` says, taken apart.

use std::fmt;
use std::path::PathBuf;

/// A Redis or Valkey, and how it is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Which servers, and how they stand to each other.
    pub topology: Topology,
    /// Whether to speak TLS.
    pub tls: bool,
    /// The database; clusters have only 0.
    pub database: i64,
    /// The ACL user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// Which servers, and how they stand to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Host),
    /// One server on a socket of this machine.
    Unix(PathBuf),
    /// Whichever server the sentinels call the primary.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<Host>,
        /// The name they know the primary by.
        master: String,
    },
    /// A cluster, of which these are some nodes.
    Cluster(Vec<Host>),
}

/// A host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// A name or an address.
    pub name: String,
    /// The port.
    pub port: u16,
}

/// What is wrong with an address, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl AddressError {
    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; write redis://HOST:6379/0, rediss://HOST (TLS), unix:///PATH, \
             redis+sentinel://H1,H2,H3/MASTER or redis+cluster://H1,H2,H3",
            self.0
        )
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// When it is not one of the known forms; the message never repeats a password.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let wrong = |what: &str| AddressError(what.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("not a URL"))?;
        let (scheme, tls) = match scheme {
            "redis" | "valkey" => ("redis", false),
            "rediss" | "valkeys" => ("redis", true),
            "redis+sentinel" | "valkey+sentinel" => ("sentinel", false),
            "rediss+sentinel" | "valkeys+sentinel" => ("sentinel", true),
            "redis+cluster" | "valkey+cluster" => ("cluster", false),
            "rediss+cluster" | "valkeys+cluster" => ("cluster", true),
            "unix" | "redis+unix" | "valkey+unix" => ("unix", false),
            // Anything else may be a part of a password.
            other if other.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'+') => {
                return Err(AddressError(format!("no store is called `{other}://`")));
            }
            _ => return Err(wrong("no store is called that")),
        };
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (credentials, place),
            None => ("", rest),
        };
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (credentials, None),
        };
        let decoded = |text: &str| decode(text).ok_or_else(|| wrong("bad %-escape before the `@`"));
        let user = (!user.is_empty()).then(|| decoded(user)).transpose()?;
        let password = password.map(decoded).transpose()?;
        if scheme == "unix" {
            let (path, query) = place.split_once('?').unwrap_or((place, ""));
            if !path.starts_with('/') {
                return Err(wrong("a socket needs a whole path"));
            }
            let database = match query.strip_prefix("db=") {
                Some(database) => number(database)?,
                None if query.is_empty() => 0,
                None => return Err(wrong("after `?` only `db=NUMBER` is known")),
            };
            let topology = Topology::Unix(path.into());
            return Ok(Self { topology, tls, database, user, password });
        }
        if place.contains('?') {
            return Err(wrong("nothing is known after `?`"));
        }
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let default_port = if scheme == "sentinel" { 26_379 } else { 6_379 };
        let hosts = hosts.split(',').map(|host| Host::parse(host, default_port));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let (topology, database) = match scheme {
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(wrong("sentinels need the name of the primary after a `/`"));
                }
                (Topology::Sentinel { sentinels: hosts, master: master.to_owned() }, database)
            }
            "cluster" if !matches!(path, "" | "0") => {
                return Err(wrong("a cluster has only database 0"));
            }
            "cluster" => (Topology::Cluster(hosts), ""),
            _ => match <[Host; 1]>::try_from(hosts) {
                Ok([host]) => (Topology::Single(host), path),
                Err(_) => {
                    return Err(wrong("several hosts need redis+sentinel:// or redis+cluster://"));
                }
            },
        };
        let database = if database.is_empty() { 0 } else { number(database)? };
        Ok(Self { topology, tls, database, user, password })
    }
}

impl Host {
    fn parse(text: &str, default_port: u16) -> Result<Self, AddressError> {
        // Not shown: without the `@` behind it, a password looks like a host.
        let wrong = |what: &str| AddressError(what.to_owned());
        let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(wrong("an IPv6 address needs brackets"));
                }
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        if name.is_empty() {
            return Err(wrong("a host is missing"));
        }
        let port = port.map_or(Ok(default_port), str::parse);
        let port = port.ok().filter(|port| *port > 0).ok_or_else(|| wrong("not a port"))?;
        Ok(Self { name: name.to_owned(), port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// For people: where it is, without who we are there.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all =
            |hosts: &[Host]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let s = if self.tls { "s" } else { "" };
        match &self.topology {
            Topology::Unix(path) => write!(f, "unix://{}", path.display())?,
            Topology::Single(host) => write!(f, "redis{s}://{host}")?,
            Topology::Sentinel { sentinels, master } => {
                write!(f, "redis{s}+sentinel://{}/{master}", all(sentinels))?;
            }
            Topology::Cluster(seeds) => write!(f, "redis{s}+cluster://{}", all(seeds))?,
        }
        match (self.database, &self.topology) {
            (0, _) => Ok(()),
            (database, Topology::Unix(_)) => write!(f, "?db={database}"),
            (database, _) => write!(f, "/{database}"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn number(text: &str) -> Result<i64, AddressError> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number
        .ok_or_else(|| AddressError("what follows the host is no number of a database".to_owned()))
}

/// Undoes %-escapes.
fn decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_read_and_told_without_their_secrets() {
        for (url, told) in [
            ("redis://localhost", "redis://localhost:6379"),
            ("redis://:p%40ss@10.0.0.1:7000/3", "redis://10.0.0.1:7000/3"),
            ("rediss://user:secret@[::1]:6380", "rediss://[::1]:6380"),
            ("valkey://h", "redis://h:6379"),
            ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
            (
                "redis+sentinel://a,b:1,c/mymaster/4",
                "redis+sentinel://a:26379,b:1,c:26379/mymaster/4",
            ),
            ("redis+cluster://a,b:7001", "redis+cluster://a:6379,b:7001"),
        ] {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.to_string(), told);
            assert_eq!(format!("{address:?}"), told);
        }
        let address = Address::parse("redis://al%3Aice:p%40ss@h").unwrap();
        assert_eq!(address.user.as_deref(), Some("al:ice"));
        assert_eq!(address.password.as_deref(), Some("p@ss"));
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, what) in [
            ("localhost:6379", "not a URL"),
            ("http://localhost", "no store is called `http://`"),
            ("redis://u:hunter2@", "a host is missing"),
            ("redis://u:hunter2@h:0", "not a port"),
            ("redis://u:hunter2h:0", "an IPv6 address needs brackets"),
            ("redis://u/hunter2", "no number of a database"),
            ("u:hunter2@redis://h", "no store is called that"),
            ("redis://u:hunter2@h:99999", "not a port"),
            ("redis://u:hunter2@a,b", "several hosts need"),
            ("redis://u:hunter2@h/x", "no number of a database"),
            ("redis://u:hunter%zz@h", "bad %-escape"),
            ("redis://::1", "an IPv6 address needs brackets"),
            ("redis://h?db=1", "nothing is known after `?`"),
            ("redis+sentinel://a,b", "name of the primary"),
            ("redis+cluster://a/1", "only database 0"),
            ("unix://run/redis.sock", "whole path"),
            ("unix:///run/redis.sock?x=1", "only `db=NUMBER`"),
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains(what), "{url}: {error}");
            assert!(!error.contains("hunter"), "{error}");
        }
    }
}
