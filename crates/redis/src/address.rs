//! Parses the `--store` URL.

use std::fmt;
use std::path::PathBuf;

/// Address of a Redis or Valkey deployment and how to connect to it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    /// The servers and their topology.
    pub topology: RedisTopology,
    /// Whether to use TLS.
    pub tls: bool,
    /// The database number; clusters only have 0.
    pub database: i64,
    /// The ACL user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// The servers and their topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisTopology {
    /// One server.
    Single(RedisHost),
    /// One server on a Unix socket.
    Unix(PathBuf),
    /// The server that the sentinels report as the primary.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<RedisHost>,
        /// The name of the primary in the sentinels' configuration.
        master: String,
    },
    /// A cluster, with some of its nodes as seeds.
    Cluster(Vec<RedisHost>),
}

/// A host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RedisHost {
    /// A host name or an IP address.
    pub name: String,
    /// The port.
    pub port: u16,
}

/// Why an address is invalid, and which forms are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisAddressError(String);

impl RedisAddressError {
    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedisAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; write redis://HOST:6379/0, rediss://HOST (TLS), unix:///PATH, \
             redis+sentinel://H1,H2,H3/MASTER or redis+cluster://H1,H2,H3",
            self.0
        )
    }
}

impl std::error::Error for RedisAddressError {}

impl RedisAddress {
    /// Parses a URL.
    ///
    /// # Errors
    /// If it is not one of the known forms. The message never contains a password.
    pub fn parse(url: &str) -> Result<Self, RedisAddressError> {
        let invalid = |what: &str| RedisAddressError(what.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("not a URL"))?;
        let (scheme, tls) = match scheme {
            "redis" | "valkey" => ("redis", false),
            "rediss" | "valkeys" => ("redis", true),
            "redis+sentinel" | "valkey+sentinel" => ("sentinel", false),
            "rediss+sentinel" | "valkeys+sentinel" => ("sentinel", true),
            "redis+cluster" | "valkey+cluster" => ("cluster", false),
            "rediss+cluster" | "valkeys+cluster" => ("cluster", true),
            "unix" | "redis+unix" | "valkey+unix" => ("unix", false),
            // Do not quote anything else: it may be part of a password.
            other if other.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'+') => {
                return Err(RedisAddressError(format!("unknown store type `{other}://`")));
            }
            _ => return Err(invalid("unknown store type")),
        };
        let (credentials, location) = match rest.rsplit_once('@') {
            Some((credentials, location)) => (credentials, location),
            None => ("", rest),
        };
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (credentials, None),
        };
        let decoded = |text: &str| {
            percent_decode(text).ok_or_else(|| invalid("invalid %-escape before the `@`"))
        };
        let user = (!user.is_empty()).then(|| decoded(user)).transpose()?;
        let password = password.map(decoded).transpose()?;
        if scheme == "unix" {
            let (path, query) = location.split_once('?').unwrap_or((location, ""));
            if !path.starts_with('/') {
                return Err(invalid("a Unix socket needs an absolute path"));
            }
            let database = match query.strip_prefix("db=") {
                Some(database) => parse_database(database)?,
                None if query.is_empty() => 0,
                None => return Err(invalid("only `db=NUMBER` is allowed after `?`")),
            };
            let topology = RedisTopology::Unix(path.into());
            return Ok(Self { topology, tls, database, user, password });
        }
        if location.contains('?') {
            return Err(invalid("no parameters are allowed after `?`"));
        }
        let (hosts, path) = location.split_once('/').unwrap_or((location, ""));
        let default_port = if scheme == "sentinel" { 26_379 } else { 6_379 };
        let hosts = hosts.split(',').map(|host| RedisHost::parse(host, default_port));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let (topology, database) = match scheme {
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(invalid(
                        "a Sentinel address needs the name of the primary after a `/`",
                    ));
                }
                (RedisTopology::Sentinel { sentinels: hosts, master: master.to_owned() }, database)
            }
            "cluster" if !matches!(path, "" | "0") => {
                return Err(invalid("a cluster has only database 0"));
            }
            "cluster" => (RedisTopology::Cluster(hosts), ""),
            _ => match <[RedisHost; 1]>::try_from(hosts) {
                Ok([host]) => (RedisTopology::Single(host), path),
                Err(_) => {
                    return Err(invalid(
                        "several hosts need redis+sentinel:// or redis+cluster://",
                    ));
                }
            },
        };
        let database = if database.is_empty() { 0 } else { parse_database(database)? };
        Ok(Self { topology, tls, database, user, password })
    }
}

impl RedisHost {
    fn parse(text: &str, default_port: u16) -> Result<Self, RedisAddressError> {
        // Do not quote the text: without the `@` behind it, a password looks like a host.
        let invalid = |what: &str| RedisAddressError(what.to_owned());
        let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(invalid("an IPv6 address needs brackets"));
                }
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        if name.is_empty() {
            return Err(invalid("a host is missing"));
        }
        let port = port.map_or(Ok(default_port), str::parse);
        let port = port.ok().filter(|port| *port > 0).ok_or_else(|| invalid("invalid port"))?;
        Ok(Self { name: name.to_owned(), port })
    }
}

impl fmt::Display for RedisHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// Display form, without credentials.
impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |hosts: &[RedisHost]| {
            hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let s = if self.tls { "s" } else { "" };
        match &self.topology {
            RedisTopology::Unix(path) => write!(f, "unix://{}", path.display())?,
            RedisTopology::Single(host) => write!(f, "redis{s}://{host}")?,
            RedisTopology::Sentinel { sentinels, master } => {
                write!(f, "redis{s}+sentinel://{}/{master}", all(sentinels))?;
            }
            RedisTopology::Cluster(seeds) => write!(f, "redis{s}+cluster://{}", all(seeds))?,
        }
        match (self.database, &self.topology) {
            (0, _) => Ok(()),
            (database, RedisTopology::Unix(_)) => write!(f, "?db={database}"),
            (database, _) => write!(f, "/{database}"),
        }
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn parse_database(text: &str) -> Result<i64, RedisAddressError> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| RedisAddressError("the database must be a non-negative number".to_owned()))
}

/// Decodes %-escapes.
fn percent_decode(text: &str) -> Option<String> {
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
    fn address_forms_parse_and_display_without_secrets() {
        for (url, shown) in [
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
            let address = RedisAddress::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
        }
        let address = RedisAddress::parse("redis://al%3Aice:p%40ss@h").unwrap();
        assert_eq!(address.user.as_deref(), Some("al:ice"));
        assert_eq!(address.password.as_deref(), Some("p@ss"));
    }

    #[test]
    fn address_errors_reveal_no_secrets() {
        for (url, what) in [
            ("localhost:6379", "not a URL"),
            ("http://localhost", "unknown store type `http://`"),
            ("redis://u:hunter2@", "a host is missing"),
            ("redis://u:hunter2@h:0", "invalid port"),
            ("redis://u:hunter2h:0", "an IPv6 address needs brackets"),
            ("redis://u/hunter2", "the database must be"),
            ("u:hunter2@redis://h", "unknown store type"),
            ("redis://u:hunter2@h:99999", "invalid port"),
            ("redis://u:hunter2@a,b", "several hosts need"),
            ("redis://u:hunter2@h/x", "the database must be"),
            ("redis://u:hunter%zz@h", "invalid %-escape"),
            ("redis://::1", "an IPv6 address needs brackets"),
            ("redis://h?db=1", "no parameters are allowed after `?`"),
            ("redis+sentinel://a,b", "name of the primary"),
            ("redis+cluster://a/1", "only database 0"),
            ("unix://run/redis.sock", "absolute path"),
            ("unix:///run/redis.sock?x=1", "only `db=NUMBER`"),
        ] {
            let error = RedisAddress::parse(url).expect_err(url).to_string();
            assert!(error.contains(what), "{url}: {error}");
            assert!(!error.contains("hunter"), "{error}");
        }
    }
}
