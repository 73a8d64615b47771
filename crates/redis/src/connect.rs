//! How a connection is made: to a server, or to whichever the sentinels call the primary.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, ServerError, TlsCertificates, Value, cmd,
};
use tidegate_core::time::Timestamp;

use crate::address::{Address, Host, Topology};

/// How long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Certificates, in PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Who may vouch for the server; none means those that the system trusts.
    pub authorities: Option<Vec<u8>>,
    /// Who we are: certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Where a connection leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// One server.
    Server(Host),
    /// One server of this machine.
    Socket(PathBuf),
    /// Whichever server the sentinels call the primary.
    Primary {
        /// The sentinels.
        sentinels: Vec<Host>,
        /// The name they know it by.
        master: String,
    },
}

impl Place {
    /// Where the one connection leads; in a cluster there are several, and some are named.
    pub(crate) fn of(topology: &Topology) -> Result<Self, &[Host]> {
        Ok(match topology {
            Topology::Single(host) => Self::Server(host.clone()),
            Topology::Unix(path) => Self::Socket(path.clone()),
            Topology::Sentinel { sentinels, master } => {
                Self::Primary { sentinels: sentinels.clone(), master: master.clone() }
            }
            Topology::Cluster(seeds) => return Err(seeds),
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Server(host) => write!(f, "{host}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Primary { master, .. } => write!(f, "the primary of {master}"),
        }
    }
}

/// Makes connections with what is needed to be let in.
#[derive(Debug)]
pub(crate) struct Connector {
    tls: Option<TlsCertificates>,
    settings: RedisConnectionInfo,
}

impl Connector {
    pub(crate) fn new(address: &Address, tls: &Tls) -> Self {
        if address.tls {
            // One for the whole process; that there is one already is as good.
            _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let identity = tls.identity.clone();
        let client_tls =
            identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        let certificates = TlsCertificates { client_tls, root_cert: tls.authorities.clone() };
        let mut settings = RedisConnectionInfo::default()
            .set_db(address.database)
            .set_lib_name("tidegate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &address.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &address.password {
            settings = settings.set_password(password);
        }
        Self { tls: address.tls.then_some(certificates), settings }
    }

    /// A connection to a place.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub(crate) async fn open(&self, place: &Place) -> Result<MultiplexedConnection, String> {
        match place {
            Place::Server(host) => self.to(self.address(host), &self.settings).await,
            Place::Socket(path) => {
                self.to(ConnectionAddr::Unix(path.clone()), &self.settings).await
            }
            Place::Primary { sentinels, master } => {
                let primary = self.primary(sentinels, master).await?;
                let mut connection = self.to(self.address(&primary), &self.settings).await?;
                // Sentinels may be behind: who was primary may be a replica by now.
                match ask(&mut connection, &cmd("ROLE")).await? {
                    Value::Array(role) if role.first() == Some(&word("master")) => Ok(connection),
                    _ => Err(format!("{primary} is not a primary")),
                }
            }
        }
    }

    /// Asks the sentinels who the primary is. All at once: one that says nothing holds up nobody.
    async fn primary(&self, sentinels: &[Host], master: &str) -> Result<Host, String> {
        let asked = sentinels.iter().map(|sentinel| Box::pin(self.primary_by(sentinel, master)));
        select_ok(asked).await.map(|(primary, _)| primary)
    }

    /// The primary in a sentinel's eyes.
    async fn primary_by(&self, sentinel: &Host, master: &str) -> Result<Host, String> {
        let mut question = cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(master);
        let failed = |error| format!("sentinel {sentinel}: {error}");
        let address = || self.address(sentinel);
        let mut open = self.to(address(), &Self::stranger()).await.map_err(failed)?;
        let answer = match ask(&mut open, &question).await {
            // Most sentinels ask nobody who they are; those that do are told.
            Err(error) if error.contains("NOAUTH") => {
                let known = self.settings.clone().set_db(0);
                let mut open = self.to(address(), &known).await.map_err(failed)?;
                ask(&mut open, &question).await
            }
            answer => answer,
        };
        let Value::Array(words) = answer.map_err(failed)? else {
            return Err(format!("{sentinel} knows no primary called {master}"));
        };
        let [Value::BulkString(name), Value::BulkString(port)] = words.as_slice() else {
            return Err(format!("{sentinel} answers strangely"));
        };
        let port = String::from_utf8_lossy(port).parse();
        let port = port.map_err(|_| format!("{sentinel} tells a strange port"))?;
        Ok(Host { name: String::from_utf8_lossy(name).into_owned(), port })
    }

    fn stranger() -> RedisConnectionInfo {
        RedisConnectionInfo::default().set_skip_set_lib_name()
    }

    fn address(&self, host: &Host) -> ConnectionAddr {
        let Host { name, port } = host.clone();
        if self.tls.is_some() {
            ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(name, port)
        }
    }

    async fn to(
        &self,
        address: ConnectionAddr,
        settings: &RedisConnectionInfo,
    ) -> Result<MultiplexedConnection, String> {
        let info = address
            .into_connection_info()
            .map_err(told)?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(settings.clone());
        let client = match (&self.tls, info.addr()) {
            (Some(tls), ConnectionAddr::TcpTls { .. }) => Client::build_with_tls(info, tls.clone()),
            _ => Client::open(info),
        };
        // Our own deadline counts, also where a server accepts and then says nothing.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(None);
        let client = client.map_err(told)?;
        let open = client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(PATIENCE, open).await {
            Ok(connection) => connection.map_err(told),
            Err(_) => Err(format!("no connection within {} s", PATIENCE.as_secs())),
        }
    }
}

/// Asks something that is not a decision.
///
/// # Errors
/// Why there is no answer, for people.
pub(crate) async fn ask(
    connection: &mut MultiplexedConnection,
    question: &Cmd,
) -> Result<Value, String> {
    match tokio::time::timeout(PATIENCE, connection.send_packed_command(question)).await {
        Ok(Ok(Value::ServerError(error))) => Err(said(&error)),
        Ok(answer) => answer.map_err(told),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// A word as servers write it.
pub(crate) fn word(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// An error in the server's own words.
pub(crate) fn said(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// An error for people.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(crate) fn told(error: RedisError) -> String {
    error.to_string()
}

/// The instant that `TIME` tells.
pub(crate) fn instant(answer: &Value) -> Option<Timestamp> {
    let Value::Array(parts) = answer else { return None };
    let mut numbers = parts.iter().filter_map(|part| match part {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    });
    let (seconds, micros) = (numbers.next()?, numbers.next()?);
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?))
}
