//! Server settings. [`PartialSettings`] holds one layer: the document's `server:` section, or flags
//! and environment. `Settings` is the merged and validated result. Flags override environment
//! variables, which override the document.

mod admin;
mod certificate;
mod gateway;
mod grpc;
mod headers;
mod key_secret;
mod listen;
mod region_stores;
mod resp;
mod section;
mod store;
mod traces;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::FalseyValueParser;
use tidegate_core::key::Secret;
use tidegate_core::time::Micros;
use tidegate_memory::DEFAULT_MAX_BYTES;
use tidegate_response::HeaderSettings;
use tidegate_rulestore::file;
use tidegate_telemetry::trace;
use tidegate_web::{BearerToken, LogPaths};

use crate::error::CommandError;
pub use admin::{AdminSettings, PartialAdminSettings};
pub(crate) use certificate::ListenerCertificate;
pub use gateway::{GatewaySettings, PartialGatewaySettings};
pub use grpc::{GrpcSettings, PartialGrpcSettings};
pub(crate) use headers::PartialHeaderSettings;
use key_secret::KeySecretSource;
pub use listen::{ListenSetting, ListenSpec, SocketMode};
pub use region_stores::{PartialRegionStores, RegionStoreSettings};
pub use resp::{PartialRespSettings, RespSettings};
pub(crate) use section::read_section;
pub use store::{PartialStoreSettings, RedisSettings, StoreSettings};
pub(crate) use traces::PartialTraceSettings;
pub use value::{
    LogFormat, LogLevel, MemorySize, UpstreamUrl, parse_duration, parse_header_name, parse_region,
};

/// Default address of the HTTP API.
pub const DEFAULT_HTTP: ListenSpec = ListenSpec::loopback(8081);

/// Default for `--log-violations`: enough lines per rule and second to see a problem, too few to
/// fill a disk.
const DEFAULT_LOG_VIOLATIONS: u32 = 5;

/// Largest certificate, key, secret or CA file that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Shorter secrets can be guessed, so they are rejected.
const MIN_SECRET_BYTES: usize = 16;

/// One layer of settings; unset values come from the layer below.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialSettings {
    /// The region in the document; `--region` is one of the [rule options].
    ///
    /// [rule options]: crate::args::RuleSourceArgs
    #[arg(skip)]
    pub(crate) region: Option<String>,

    /// Gateway settings.
    #[command(flatten)]
    pub gateway: PartialGatewaySettings,

    /// HTTP API address; port 0 picks a free port, `unix:/PATH` is a Unix socket, `off` disables it
    /// [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTP", hide_env_values = true)]
    pub http: Option<ListenSpec>,

    /// gRPC API settings.
    #[command(flatten)]
    pub grpc: PartialGrpcSettings,

    /// RESP API settings.
    #[command(flatten)]
    pub resp: PartialRespSettings,

    /// File permissions of Unix sockets, which decide who may connect [default: 0660]
    #[arg(long, value_name = "MODE", env = "TIDEGATE_SOCKET_MODE", hide_env_values = true)]
    pub(crate) socket_mode: Option<SocketMode>,

    /// Worker threads of the HTTP, gRPC and RESP APIs [default: number of cores minus one]
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_THREADS)),
        env = "TIDEGATE_API_THREADS",
        hide_env_values = true
    )]
    pub(crate) api_threads: Option<u16>,

    /// Store settings.
    #[command(flatten)]
    pub store: PartialStoreSettings,

    /// Stores of other regions.
    #[command(flatten)]
    pub region_stores: PartialRegionStores,

    /// Save the counters to this file and restore them after a restart
    #[arg(long, value_name = "FILE", env = "TIDEGATE_SNAPSHOT", hide_env_values = true)]
    pub(crate) snapshot: Option<PathBuf>,

    /// How often to write the snapshot file [default: 10s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::parse_duration,
        env = "TIDEGATE_SNAPSHOT_INTERVAL",
        hide_env_values = true
    )]
    pub(crate) snapshot_interval: Option<Micros>,

    /// Memory limit for the counters [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "TIDEGATE_MEMORY_LIMIT", hide_env_values = true)]
    pub(crate) memory_limit: Option<MemorySize>,

    /// File with the secret for hashing client identities; must be the same on all nodes [default:
    /// generated next to the --snapshot or --rules-db file]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_KEY_SECRET_FILE", hide_env_values = true)]
    pub key_secret_file: Option<PathBuf>,

    /// Admin API settings.
    #[command(flatten)]
    pub admin: PartialAdminSettings,

    #[command(flatten)]
    pub(crate) headers: PartialHeaderSettings,

    /// Time that in-flight requests get to finish on shutdown [default: 25s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::parse_duration,
        env = "TIDEGATE_DRAIN_TIMEOUT",
        hide_env_values = true
    )]
    pub(crate) drain_timeout: Option<Micros>,

    /// Log format on stderr [default: pretty]
    #[arg(long, value_name = "FORMAT", value_enum, env = "TIDEGATE_LOG", hide_env_values = true)]
    pub(crate) log: Option<LogFormat>,

    /// Lowest level that is logged [default: info]
    #[arg(
        long,
        value_name = "LEVEL",
        value_enum,
        env = "TIDEGATE_LOG_LEVEL",
        hide_env_values = true
    )]
    pub log_level: Option<LogLevel>,

    /// Log at most N violations per rule and second, plus a count of the suppressed ones; 0
    /// disables it [default: 5]
    #[arg(long, value_name = "N", env = "TIDEGATE_LOG_VIOLATIONS", hide_env_values = true)]
    pub(crate) log_violations: Option<u32>,

    /// Log the request paths that clients send, which may hold personal data, instead of endpoint
    /// patterns
    #[arg(
        long,
        env = "TIDEGATE_LOG_PATHS",
        hide_env_values = true,
        num_args = 0,
        default_missing_value = "true",
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) log_paths: Option<bool>,

    #[command(flatten)]
    pub(crate) traces: PartialTraceSettings,
}

impl PartialSettings {
    /// Fills unset values from `below`.
    pub(crate) fn with_fallback(self, below: Self) -> Self {
        Self {
            region: self.region.or(below.region),
            gateway: self.gateway.with_fallback(below.gateway),
            http: self.http.or(below.http),
            grpc: self.grpc.with_fallback(below.grpc),
            resp: self.resp.with_fallback(below.resp),
            socket_mode: self.socket_mode.or(below.socket_mode),
            api_threads: self.api_threads.or(below.api_threads),
            store: self.store.with_fallback(below.store),
            region_stores: self.region_stores.with_fallback(below.region_stores),
            snapshot: self.snapshot.or(below.snapshot),
            snapshot_interval: self.snapshot_interval.or(below.snapshot_interval),
            memory_limit: self.memory_limit.or(below.memory_limit),
            key_secret_file: self.key_secret_file.or(below.key_secret_file),
            admin: self.admin.with_fallback(below.admin),
            headers: self.headers.with_fallback(below.headers),
            drain_timeout: self.drain_timeout.or(below.drain_timeout),
            log: self.log.or(below.log),
            log_level: self.log_level.or(below.log_level),
            log_violations: self.log_violations.or(below.log_violations),
            log_paths: self.log_paths.or(below.log_paths),
            traces: self.traces.with_fallback(below.traces),
        }
    }

    /// Resolves relative paths against `folder`.
    pub(crate) fn resolve_paths(mut self, folder: &Path) -> Self {
        let paths = [&mut self.snapshot, &mut self.key_secret_file];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path);
        }
        for spec in [&mut self.http, &mut self.grpc.grpc, &mut self.gateway.gateway] {
            *spec = spec.take().map(|spec| spec.resolve_path(folder));
        }
        self.resp = self.resp.resolve_paths(folder);
        self.store = self.store.resolve_paths(folder);
        self.region_stores = self.region_stores.resolve_paths(folder);
        self.admin = self.admin.resolve_paths(folder);
        self.gateway = self.gateway.resolve_paths(folder);
        self
    }
}

/// Upper bound for thread counts; a larger number is a typing error.
pub(crate) const MAX_THREADS: u16 = 1_024;

/// Leaves one core to local clients and to background tasks. With one thread per core, clients on
/// the same machine wait a whole scheduler time slice before they run.
fn default_api_threads() -> usize {
    core_count().saturating_sub(1).max(1)
}

/// Number of cores available to this process.
fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Validated settings; the files they name have been read.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) gateway: Option<GatewaySettings>,
    pub(crate) http: ListenSetting,
    pub(crate) grpc: GrpcSettings,
    pub(crate) resp: RespSettings,
    pub(crate) socket_mode: SocketMode,
    pub(crate) api_threads: usize,
    pub(crate) store: StoreSettings,
    pub(crate) region_stores: Vec<RegionStoreSettings>,
    pub(crate) snapshot: Option<PathBuf>,
    pub(crate) snapshot_interval: Duration,
    pub(crate) memory_limit: MemorySize,
    pub(crate) secret: Secret,
    pub(crate) admin: AdminSettings,
    pub(crate) headers: HeaderSettings,
    pub(crate) drain_timeout: Duration,
    pub(crate) log: LogFormat,
    pub(crate) log_level: LogLevel,
    pub(crate) log_violations: u32,
    pub(crate) log_paths: LogPaths,
    pub(crate) traces: Option<trace::Settings>,
}

impl Settings {
    /// The token that remote callers need for guarded endpoints.
    pub(crate) fn token(&self) -> Option<&BearerToken> {
        self.admin.token()
    }

    /// Validates the settings of a node in `region`, and reads the secret files.
    ///
    /// # Errors
    /// When the settings conflict, or a secret file is unreadable or too short.
    pub(crate) fn check(
        typed: PartialSettings,
        region: Option<&str>,
    ) -> Result<Self, CommandError> {
        let admin = AdminSettings::check(typed.admin)?;
        let store = StoreSettings::check(typed.store)?;
        let region_stores = typed.region_stores.check(region, &store)?;
        if matches!(store, StoreSettings::Redis(_)) && typed.snapshot.is_some() {
            return Err(CommandError::Usage(
                "--snapshot saves in-memory counters, but --store keeps the counters in Redis\n  \
                 write: either --snapshot or --store"
                    .to_owned(),
            ));
        }
        let secret = KeySecretSource {
            file: typed.key_secret_file.as_deref(),
            store: &store,
            rules_db: admin.rules_db.as_deref(),
            snapshot: typed.snapshot.as_deref(),
        };
        let secret = secret.resolve()?;
        let headers = typed.headers.into();
        Ok(Self {
            gateway: GatewaySettings::check(typed.gateway)?,
            store,
            region_stores,
            http: ListenSpec::explicit_or_default(typed.http, DEFAULT_HTTP),
            grpc: GrpcSettings::new(typed.grpc, headers),
            resp: RespSettings::check(typed.resp)?,
            socket_mode: typed.socket_mode.unwrap_or_default(),
            api_threads: typed.api_threads.map_or_else(default_api_threads, usize::from),
            snapshot: typed.snapshot,
            snapshot_interval: typed.snapshot_interval.unwrap_or(Micros::from_secs(10)).into(),
            memory_limit: typed.memory_limit.unwrap_or(MemorySize(DEFAULT_MAX_BYTES)),
            secret,
            admin,
            headers,
            drain_timeout: typed.drain_timeout.unwrap_or(Micros::from_secs(25)).into(),
            log: typed.log.unwrap_or_default(),
            log_level: typed.log_level.unwrap_or_default(),
            log_violations: typed.log_violations.unwrap_or(DEFAULT_LOG_VIOLATIONS),
            log_paths: match typed.log_paths {
                Some(true) => LogPaths::Raw,
                _ => LogPaths::Patterns,
            },
            traces: typed.traces.check()?,
        })
    }
}

/// Reads a bearer token from a file.
///
/// # Errors
/// When the file is unreadable or the token is too short.
fn read_token(path: &Path, flag: &str) -> Result<BearerToken, CommandError> {
    let text = read_secret(path, flag)?;
    BearerToken::new(&text)
        .map_err(|error| CommandError::Failed(format!("{}: {error}", path.display())))
}

/// Reads a file that a setting names.
///
/// # Errors
/// When the file is unreadable or too large.
fn read_file(path: &Path, flag: &str) -> Result<Vec<u8>, CommandError> {
    file::read(path, MAX_FILE_BYTES).map_err(|error| {
        CommandError::Failed(format!("cannot read {} for {flag}: {error}", path.display()))
    })
}

/// Reads a secret from a file, without surrounding whitespace such as the final newline.
pub fn read_secret(path: &Path, flag: &str) -> Result<String, CommandError> {
    let name = path.display();
    let text = String::from_utf8(read_file(path, flag)?)
        .map_err(|_| CommandError::Failed(format!("{name} for {flag} is not UTF-8 text")))?;
    let secret = text.trim();
    if secret.len() < MIN_SECRET_BYTES {
        return Err(CommandError::Failed(format!(
            "{name} for {flag} holds {} bytes, but a secret needs at least {MIN_SECRET_BYTES}\n  \
             write: head -c 32 /dev/urandom | base64 > {name}",
            secret.len()
        )));
    }
    Ok(secret.to_owned())
}
