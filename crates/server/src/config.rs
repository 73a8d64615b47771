//! Settings: as typed in a [`Layer`] (the document's `server:` section; flags and environment),
//! then checked together as [`Settings`]. File gives way to environment, environment to flag.

mod admin;
mod certificate;
mod gateway;
mod grpc;
mod headers;
mod key_secret;
mod listen;
mod resp;
mod section;
mod store;
mod traces;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tidegate_control::file;
use tidegate_core::key::Secret;
use tidegate_core::time::Micros;
use tidegate_edge::Token;
use tidegate_edge::respond::HeaderSettings;
use tidegate_edge::trace;
use tidegate_memory::DEFAULT_MAX_BYTES;

use crate::failure::Failure;
pub(crate) use admin::{AdminLayer, AdminSettings};
pub(crate) use certificate::Certificate;
pub(crate) use gateway::{GatewayLayer, GatewaySettings};
pub(crate) use grpc::{GrpcLayer, GrpcSettings};
pub(crate) use headers::HeaderLayer;
use key_secret::KeySecret;
pub(crate) use listen::{DoorAt, Listen, SocketMode};
pub(crate) use resp::{RespLayer, RespSettings};
pub(crate) use section::read as read_section;
pub(crate) use store::{RedisSettings, StoreLayer, StoreSettings};
pub(crate) use traces::TraceLayer;
pub(crate) use value::{Bytes, LogFormat, LogLevel, UpstreamAt, duration, header_name};

/// The HTTP listener unless it is said otherwise.
pub(crate) const DEFAULT_HTTP: Listen = Listen::loopback(8081);

/// How many violations of a rule are logged each second unless it is said otherwise: enough to see what goes on,
/// and not what fills a disk.
const DEFAULT_LOG_VIOLATIONS: u32 = 5;

/// The largest certificate, key, secret or list of authorities that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A secret shorter than this protects nothing.
const LEAST_SECRET_BYTES: usize = 16;

/// Settings as typed in one place; what is not said is left to the place below.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    #[command(flatten)]
    pub(crate) gateway: GatewayLayer,

    /// Where the HTTP listener is; port 0 takes a free one, `unix:/PATH` is a unix socket, `off`
    /// closes it [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTP", hide_env_values = true)]
    pub(crate) http: Option<Listen>,

    #[command(flatten)]
    pub(crate) grpc: GrpcLayer,

    #[command(flatten)]
    pub(crate) resp: RespLayer,

    /// Who may use listeners on unix sockets: the permissions of the files [default: 0660]
    #[arg(long, value_name = "MODE", env = "TIDEGATE_SOCKET_MODE", hide_env_values = true)]
    pub(crate) socket_mode: Option<SocketMode>,

    /// Threads that answer at the HTTP, gRPC and RESP listeners [default: one less than there are cores]
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_THREADS)),
        env = "TIDEGATE_DOOR_THREADS",
        hide_env_values = true
    )]
    pub(crate) door_threads: Option<u16>,

    #[command(flatten)]
    pub(crate) store: StoreLayer,

    /// Keep the counters in this file over a restart
    #[arg(long, value_name = "FILE", env = "TIDEGATE_SNAPSHOT", hide_env_values = true)]
    pub(crate) snapshot: Option<PathBuf>,

    /// How often that file is written [default: 10s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::duration,
        env = "TIDEGATE_SNAPSHOT_INTERVAL",
        hide_env_values = true
    )]
    pub(crate) snapshot_interval: Option<Micros>,

    /// How much memory the counters may take [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "TIDEGATE_MEMORY_LIMIT", hide_env_values = true)]
    pub(crate) memory_limit: Option<Bytes>,

    /// The file with the secret under which clients are hashed, the same on all nodes [default: one
    /// that is made beside the file of --snapshot or --rules-db]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_KEY_SECRET_FILE", hide_env_values = true)]
    pub(crate) key_secret_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) admin: AdminLayer,

    #[command(flatten)]
    pub(crate) headers: HeaderLayer,

    /// How long requests under way may take to finish when it stops [default: 25s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::duration,
        env = "TIDEGATE_DRAIN_TIMEOUT",
        hide_env_values = true
    )]
    pub(crate) drain_timeout: Option<Micros>,

    /// How log lines look, on stderr [default: pretty]
    #[arg(long, value_name = "FORMAT", value_enum, env = "TIDEGATE_LOG", hide_env_values = true)]
    pub(crate) log: Option<LogFormat>,

    /// What is logged [default: info]
    #[arg(
        long,
        value_name = "LEVEL",
        value_enum,
        env = "TIDEGATE_LOG_LEVEL",
        hide_env_values = true
    )]
    pub(crate) log_level: Option<LogLevel>,

    /// Log at most so many violations of each rule a second, and how many there were besides; 0 logs
    /// none [default: 5]
    #[arg(long, value_name = "N", env = "TIDEGATE_LOG_VIOLATIONS", hide_env_values = true)]
    pub(crate) log_violations: Option<u32>,

    #[command(flatten)]
    pub(crate) traces: TraceLayer,
}

impl Layer {
    /// This layer, and the one below for what it does not say.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            gateway: self.gateway.over(below.gateway),
            http: self.http.or(below.http),
            grpc: self.grpc.over(below.grpc),
            resp: self.resp.over(below.resp),
            socket_mode: self.socket_mode.or(below.socket_mode),
            door_threads: self.door_threads.or(below.door_threads),
            store: self.store.over(below.store),
            snapshot: self.snapshot.or(below.snapshot),
            snapshot_interval: self.snapshot_interval.or(below.snapshot_interval),
            memory_limit: self.memory_limit.or(below.memory_limit),
            key_secret_file: self.key_secret_file.or(below.key_secret_file),
            admin: self.admin.over(below.admin),
            headers: self.headers.over(below.headers),
            drain_timeout: self.drain_timeout.or(below.drain_timeout),
            log: self.log.or(below.log),
            log_level: self.log_level.or(below.log_level),
            log_violations: self.log_violations.or(below.log_violations),
            traces: self.traces.over(below.traces),
        }
    }

    /// The same with relative paths taken from a folder.
    pub(crate) fn beside(mut self, folder: &Path) -> Self {
        let paths = [&mut self.snapshot, &mut self.key_secret_file];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path);
        }
        for door in [&mut self.http, &mut self.grpc.grpc, &mut self.gateway.gateway] {
            *door = door.take().map(|door| door.beside(folder));
        }
        self.resp = self.resp.beside(folder);
        self.store = self.store.beside(folder);
        self.admin = self.admin.beside(folder);
        self.gateway = self.gateway.beside(folder);
        self
    }
}

/// More threads than this are a slip of the finger.
pub(crate) const MOST_THREADS: u16 = 1_024;

/// One core is left to whoever asks and to the rest of the house: on as many threads as there are cores, callers of
/// this machine wait for a whole time slice of the system's before they run.
fn door_threads() -> usize {
    cores().saturating_sub(1).max(1)
}

/// How many cores there are for us.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Settings that were checked, with the files they name already read.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) gateway: Option<GatewaySettings>,
    pub(crate) http: DoorAt,
    pub(crate) grpc: GrpcSettings,
    pub(crate) resp: RespSettings,
    pub(crate) socket_mode: SocketMode,
    pub(crate) door_threads: usize,
    pub(crate) store: StoreSettings,
    pub(crate) snapshot: Option<PathBuf>,
    pub(crate) snapshot_interval: Duration,
    pub(crate) memory_limit: Bytes,
    pub(crate) secret: Secret,
    pub(crate) admin: AdminSettings,
    pub(crate) headers: HeaderSettings,
    pub(crate) drain_timeout: Duration,
    pub(crate) log: LogFormat,
    pub(crate) log_level: LogLevel,
    pub(crate) log_violations: u32,
    pub(crate) traces: Option<trace::Settings>,
}

impl Settings {
    /// The token that opens guarded endpoints to callers from elsewhere.
    pub(crate) fn token(&self) -> Option<&Token> {
        self.admin.token()
    }

    /// Checks what was typed and reads the secrets.
    ///
    /// # Errors
    /// When a file of secrets cannot be read or says too little.
    pub(crate) fn check(typed: Layer) -> Result<Self, Failure> {
        let admin = AdminSettings::check(typed.admin)?;
        let store = StoreSettings::check(typed.store)?;
        if matches!(store, StoreSettings::Redis(_)) && typed.snapshot.is_some() {
            return Err(Failure::Usage(
                "--snapshot keeps counters that are in memory, but --store has them\n  \
                 write: one or the other"
                    .to_owned(),
            ));
        }
        let secret = KeySecret {
            file: typed.key_secret_file.as_deref(),
            store: &store,
            rules_db: admin.rules_db.as_deref(),
            snapshot: typed.snapshot.as_deref(),
        };
        let secret = secret.secret()?;
        let headers = typed.headers.into();
        Ok(Self {
            gateway: GatewaySettings::check(typed.gateway)?,
            store,
            http: Listen::or_default(typed.http, DEFAULT_HTTP),
            grpc: GrpcSettings::new(typed.grpc, headers),
            resp: RespSettings::check(typed.resp)?,
            socket_mode: typed.socket_mode.unwrap_or_default(),
            door_threads: typed.door_threads.map_or_else(door_threads, usize::from),
            snapshot: typed.snapshot,
            snapshot_interval: typed.snapshot_interval.unwrap_or(Micros::from_secs(10)).into(),
            memory_limit: typed.memory_limit.unwrap_or(Bytes(DEFAULT_MAX_BYTES)),
            secret,
            admin,
            headers,
            drain_timeout: typed.drain_timeout.unwrap_or(Micros::from_secs(25)).into(),
            log: typed.log.unwrap_or_default(),
            log_level: typed.log_level.unwrap_or_default(),
            log_violations: typed.log_violations.unwrap_or(DEFAULT_LOG_VIOLATIONS),
            traces: typed.traces.check()?,
        })
    }
}

/// The token of a file.
///
/// # Errors
/// When it cannot be read or is too short.
fn read_token(path: &Path, flag: &str) -> Result<Token, Failure> {
    let text = read_secret(path, flag)?;
    Token::new(&text).map_err(|error| Failure::CouldNot(format!("{}: {error}", path.display())))
}

/// The bytes of a file that a setting names.
///
/// # Errors
/// When it cannot be read.
fn read_file(path: &Path, flag: &str) -> Result<Vec<u8>, Failure> {
    file::read(path, MAX_FILE_BYTES).map_err(|error| {
        Failure::CouldNot(format!("cannot read {} for {flag}: {error}", path.display()))
    })
}

/// The text of a file of secrets, without the line end that editors add.
pub(crate) fn read_secret(path: &Path, flag: &str) -> Result<String, Failure> {
    let name = path.display();
    let text = String::from_utf8(read_file(path, flag)?)
        .map_err(|_| Failure::CouldNot(format!("{name} for {flag} is not UTF-8 text")))?;
    let secret = text.trim();
    if secret.len() < LEAST_SECRET_BYTES {
        return Err(Failure::CouldNot(format!(
            "{name} for {flag} holds {} bytes, at least {LEAST_SECRET_BYTES} are needed\n  \
             write: head -c 32 /dev/urandom | base64 > {name}",
            secret.len()
        )));
    }
    Ok(secret.to_owned())
}
