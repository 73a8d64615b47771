//! Opens connections: to a server, or to the server that the sentinels report as the primary.

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

use crate::address::{RedisAddress, RedisHost, RedisTopology};

/// Timeout of a connection attempt and of commands that are not decisions.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// TLS certificates, in PEM.
#[derive(Clone, Debug, Default)]
pub struct RedisTlsConfig {
    /// The CA certificates that verify the server; `None` means the system's.
    pub ca_certificates: Option<Vec<u8>>,
    /// Our client certificate and private key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// The server to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionTarget {
    /// One server.
    Server(RedisHost),
    /// One server on a Unix socket.
    Socket(PathBuf),
    /// The server that the sentinels report as the primary.
    Primary {
        /// The sentinels.
        sentinels: Vec<RedisHost>,
        /// The name of the primary in the sentinels' configuration.
        master: String,
    },
}

impl ConnectionTarget {
    /// The target of a topology with a single connection; `Err` holds the seed nodes of a cluster.
    pub(crate) fn from_topology(topology: &RedisTopology) -> Result<Self, &[RedisHost]> {
        Ok(match topology {
            RedisTopology::Single(host) => Self::Server(host.clone()),
            RedisTopology::Unix(path) => Self::Socket(path.clone()),
            RedisTopology::Sentinel { sentinels, master } => {
                Self::Primary { sentinels: sentinels.clone(), master: master.clone() }
            }
            RedisTopology::Cluster(seeds) => return Err(seeds),
        })
    }
}

impl std::fmt::Display for ConnectionTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Server(host) => write!(f, "{host}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Primary { master, .. } => write!(f, "the primary of {master}"),
        }
    }
}

/// Opens connections with the configured TLS and credentials.
#[derive(Debug)]
pub(crate) struct RedisConnector {
    tls: Option<TlsCertificates>,
    settings: RedisConnectionInfo,
}

impl RedisConnector {
    pub(crate) fn new(address: &RedisAddress, tls: &RedisTlsConfig) -> Self {
        if address.tls {
            // The provider is process-wide; an error means that one is already installed.
            _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let identity = tls.identity.clone();
        let client_tls =
            identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        let certificates = TlsCertificates { client_tls, root_cert: tls.ca_certificates.clone() };
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

    /// Opens a connection to a target.
    ///
    /// # Errors
    /// The reason, as readable text.
    pub(crate) async fn open(
        &self,
        target: &ConnectionTarget,
    ) -> Result<MultiplexedConnection, String> {
        match target {
            ConnectionTarget::Server(host) => {
                self.connect(self.address(host), &self.settings).await
            }
            ConnectionTarget::Socket(path) => {
                self.connect(ConnectionAddr::Unix(path.clone()), &self.settings).await
            }
            ConnectionTarget::Primary { sentinels, master } => {
                let primary = self.find_primary(sentinels, master).await?;
                let mut connection = self.connect(self.address(&primary), &self.settings).await?;
                // Sentinels may be outdated: the former primary may be a replica by now.
                match send_command(&mut connection, &cmd("ROLE")).await? {
                    Value::Array(role) if role.first() == Some(&bulk_string("master")) => {
                        Ok(connection)
                    }
                    _ => Err(format!(
                        "{primary} is not a primary, although a sentinel reports it as one"
                    )),
                }
            }
        }
    }

    /// Finds the primary. Queries all sentinels in parallel, so one that hangs delays nothing.
    async fn find_primary(
        &self,
        sentinels: &[RedisHost],
        master: &str,
    ) -> Result<RedisHost, String> {
        let queries =
            sentinels.iter().map(|sentinel| Box::pin(self.query_sentinel(sentinel, master)));
        select_ok(queries).await.map(|(primary, _)| primary)
    }

    /// The primary that one sentinel reports.
    async fn query_sentinel(
        &self,
        sentinel: &RedisHost,
        master: &str,
    ) -> Result<RedisHost, String> {
        let mut command = cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(master);
        let failed = |error| format!("sentinel {sentinel}: {error}");
        let address = || self.address(sentinel);
        let mut open =
            self.connect(address(), &Self::anonymous_settings()).await.map_err(failed)?;
        let answer = match send_command(&mut open, &command).await {
            // Most sentinels need no authentication; retry with credentials if this one does.
            Err(error) if error.contains("NOAUTH") => {
                let known = self.settings.clone().set_db(0);
                let mut open = self.connect(address(), &known).await.map_err(failed)?;
                send_command(&mut open, &command).await
            }
            answer => answer,
        };
        let Value::Array(words) = answer.map_err(failed)? else {
            return Err(format!("sentinel {sentinel} knows no primary named {master}"));
        };
        let [Value::BulkString(name), Value::BulkString(port)] = words.as_slice() else {
            return Err(format!("sentinel {sentinel}: unexpected reply"));
        };
        let port = String::from_utf8_lossy(port).parse();
        let port = port.map_err(|_| format!("sentinel {sentinel}: invalid port in the reply"))?;
        Ok(RedisHost { name: String::from_utf8_lossy(name).into_owned(), port })
    }

    fn anonymous_settings() -> RedisConnectionInfo {
        RedisConnectionInfo::default().set_skip_set_lib_name()
    }

    fn address(&self, host: &RedisHost) -> ConnectionAddr {
        let RedisHost { name, port } = host.clone();
        if self.tls.is_some() {
            ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(name, port)
        }
    }

    async fn connect(
        &self,
        address: ConnectionAddr,
        settings: &RedisConnectionInfo,
    ) -> Result<MultiplexedConnection, String> {
        let info = address
            .into_connection_info()
            .map_err(error_text)?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(settings.clone());
        let client = match (&self.tls, info.addr()) {
            (Some(tls), ConnectionAddr::TcpTls { .. }) => Client::build_with_tls(info, tls.clone()),
            _ => Client::open(info),
        };
        // Our own timeout also covers a server that accepts the connection and then stays silent.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        let client = client.map_err(error_text)?;
        let open = client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(CONNECT_TIMEOUT, open).await {
            Ok(connection) => connection.map_err(error_text),
            Err(_) => Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())),
        }
    }
}

/// Sends a command that is not a decision.
///
/// # Errors
/// The reason, as readable text.
pub(crate) async fn send_command(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, String> {
    match tokio::time::timeout(CONNECT_TIMEOUT, connection.send_packed_command(command)).await {
        Ok(Ok(Value::ServerError(error))) => Err(server_error_text(&error)),
        Ok(answer) => answer.map_err(error_text),
        Err(_) => Err(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

/// A string as servers encode it.
pub(crate) fn bulk_string(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// The text of a server error.
pub(crate) fn server_error_text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// The text of a client error.
#[expect(clippy::needless_pass_by_value, reason = "signature required by map_err")]
pub(crate) fn error_text(error: RedisError) -> String {
    error.to_string()
}

/// The time in a reply to `TIME`.
pub(crate) fn parse_time(answer: &Value) -> Option<Timestamp> {
    let Value::Array(parts) = answer else { return None };
    let mut numbers = parts.iter().filter_map(|part| match part {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    });
    let (seconds, micros) = (numbers.next()?, numbers.next()?);
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?))
}
