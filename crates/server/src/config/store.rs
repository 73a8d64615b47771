//! Settings of the counter store: in memory, or a Redis or Valkey server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tidegate_core::time::Micros;
use tidegate_redis::{DEFAULT_DEADLINE, DEFAULT_PREFIX, RedisAddress, RedisTlsConfig};
use tidegate_rules::decode::FieldMap;

use super::read_file;
use super::section::{read_parsed, read_path};
use super::value::{self, StoreUrl};
use crate::error::CommandError;

/// Environment variable for the store password. There is no flag, because command lines are visible
/// to all users of a machine.
const PASSWORD_ENV: &str = "TIDEGATE_STORE_PASSWORD";

/// Shortest and longest allowed `--store-deadline`.
const DEADLINE_RANGE: [Micros; 2] = [Micros::from_millis(1), Micros::from_secs(60)];

/// One layer of the store settings.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialStoreSettings {
    /// Where to keep the counters: `memory`, or a Redis or Valkey shared by several nodes, such as
    /// redis://HOST:6379 [default: memory]
    #[arg(long, value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true)]
    pub(crate) store: Option<StoreUrl>,

    /// How long a decision waits for the store before the rule's `on_fail` applies [default: 5ms]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::parse_duration,
        env = "TIDEGATE_STORE_DEADLINE",
        hide_env_values = true
    )]
    pub(crate) store_deadline: Option<Micros>,

    /// Prefix of all keys in the store [default: tg:]
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_STORE_PREFIX", hide_env_values = true)]
    pub(crate) store_prefix: Option<String>,

    /// ACL user name for the store
    #[arg(long, value_name = "NAME", env = "TIDEGATE_STORE_USER", hide_env_values = true)]
    pub(crate) store_user: Option<String>,

    /// File with the store password; or set TIDEGATE_STORE_PASSWORD
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_PASSWORD_FILE", hide_env_values = true)]
    pub(crate) store_password_file: Option<PathBuf>,

    /// CA certificates that may sign the store's certificate, in PEM [default: the system's CAs]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CA_FILE", hide_env_values = true)]
    pub(crate) store_ca_file: Option<PathBuf>,

    /// Client certificate for the store, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CERT_FILE", hide_env_values = true)]
    pub(crate) store_cert_file: Option<PathBuf>,

    /// Private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_KEY_FILE", hide_env_values = true)]
    pub(crate) store_key_file: Option<PathBuf>,
}

impl PartialStoreSettings {
    /// Fills unset values from `below`.
    pub fn with_fallback(self, below: Self) -> Self {
        Self {
            store: self.store.or(below.store),
            store_deadline: self.store_deadline.or(below.store_deadline),
            store_prefix: self.store_prefix.or(below.store_prefix),
            store_user: self.store_user.or(below.store_user),
            store_password_file: self.store_password_file.or(below.store_password_file),
            store_ca_file: self.store_ca_file.or(below.store_ca_file),
            store_cert_file: self.store_cert_file.or(below.store_cert_file),
            store_key_file: self.store_key_file.or(below.store_key_file),
        }
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(mut self, folder: &Path) -> Self {
        let paths = [
            &mut self.store_password_file,
            &mut self.store_ca_file,
            &mut self.store_cert_file,
            &mut self.store_key_file,
        ];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self
    }

    /// Reads the store settings from a document's `server:` section.
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let mut file = |name| fields.take(name).and_then(|field| read_path(&field));
        let (password, ca) = (file("store_password_file"), file("store_ca_file"));
        let (cert, key) = (file("store_cert_file"), file("store_key_file"));
        let mut text =
            |name| fields.take(name).and_then(|field| Some(field.non_empty_text()?.to_owned()));
        let (prefix, user) = (text("store_prefix"), text("store_user"));
        Self {
            store: fields.take("store").and_then(|field| read_parsed(&field)),
            store_deadline: fields.take("store_deadline").and_then(|field| field.duration()),
            store_prefix: prefix,
            store_user: user,
            store_password_file: password,
            store_ca_file: ca,
            store_cert_file: cert,
            store_key_file: key,
        }
    }
}

/// Validated settings: where the counters are kept.
#[derive(Debug)]
pub enum StoreSettings {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(Box<RedisSettings>),
}

/// Address, credentials and limits for a Redis or Valkey server.
#[derive(Debug)]
pub struct RedisSettings {
    /// Where the server is.
    pub address: RedisAddress,
    pub(crate) tls: RedisTlsConfig,
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
}

impl StoreSettings {
    /// Validates the settings and reads the files they name.
    ///
    /// # Errors
    /// When a file is unreadable or the settings conflict.
    pub fn check(mut typed: PartialStoreSettings) -> Result<Self, CommandError> {
        let Some(StoreUrl::Redis(address)) = typed.store.take() else { return Ok(Self::Memory) };
        let password = || std::env::var(PASSWORD_ENV).ok();
        let flags = |name: &str| format!("--store-{}", name.replace('_', "-"));
        let mut settings = RedisSettings::check(address, &typed, password, flags)?;
        settings.deadline = check_deadline(typed.store_deadline)?;
        settings.prefix = check_prefix(typed.store_prefix)?;
        Ok(Self::Redis(Box::new(settings)))
    }
}

impl RedisSettings {
    pub(super) fn new(address: RedisAddress, prefix: &str) -> Self {
        let (tls, prefix) = (RedisTlsConfig::default(), prefix.to_owned());
        Self { address, tls, prefix, deadline: DEFAULT_DEADLINE }
    }

    /// Validates the address and the credentials, and reads the files they name. `password` is the
    /// one to use without a password file; `name` gives the full name of a setting.
    pub(super) fn check(
        mut address: RedisAddress,
        typed: &PartialStoreSettings,
        password: impl FnOnce() -> Option<String>,
        name: impl Fn(&str) -> String,
    ) -> Result<Self, CommandError> {
        if let Some(user) = &typed.store_user {
            address.user = Some(user.clone());
        }
        if let Some(path) = &typed.store_password_file {
            let text = read_file(path, &name("password_file"))?;
            let text = String::from_utf8_lossy(&text);
            address.password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
        } else if let Some(password) = password() {
            address.password = Some(password);
        }
        let (ca, cert, key) = (name("ca_file"), name("cert_file"), name("key_file"));
        let authorities =
            typed.store_ca_file.as_deref().map(|path| read_file(path, &ca)).transpose()?;
        let identity = match (&typed.store_cert_file, &typed.store_key_file) {
            (None, None) => None,
            (Some(cert_file), Some(key_file)) => {
                Some((read_file(cert_file, &cert)?, read_file(key_file, &key)?))
            }
            _ => {
                return Err(CommandError::Usage(format!(
                    "a certificate needs its key\n  write: both {cert} and {key}"
                )));
            }
        };
        if !address.tls && (authorities.is_some() || identity.is_some()) {
            return Err(CommandError::Usage(format!(
                "certificates are set, but {address} does not use TLS\n  write: rediss:// (or \
                 rediss+sentinel://, rediss+cluster://)"
            )));
        }
        let tls = RedisTlsConfig { ca_certificates: authorities, identity };
        Ok(Self { tls, ..Self::new(address, DEFAULT_PREFIX) })
    }
}

fn check_deadline(typed: Option<Micros>) -> Result<Duration, CommandError> {
    match typed {
        None => Ok(DEFAULT_DEADLINE),
        Some(deadline) if (DEADLINE_RANGE[0]..=DEADLINE_RANGE[1]).contains(&deadline) => {
            Ok(deadline.into())
        }
        Some(deadline) => Err(CommandError::Usage(format!(
            "--store-deadline {deadline} is out of range\n  write: {} to {}, such as 5ms",
            DEADLINE_RANGE[0], DEADLINE_RANGE[1]
        ))),
    }
}

fn check_prefix(typed: Option<String>) -> Result<String, CommandError> {
    let prefix = typed.unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
    if prefix.contains(['{', '}']) {
        return Err(CommandError::Usage(
            "--store-prefix must not contain braces: Redis Cluster reads them as a hash tag"
                .to_owned(),
        ));
    }
    Ok(prefix)
}

/// The store address for people; never contains a password.
impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(redis) => redis.address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_for_url(url: &str) -> PartialStoreSettings {
        PartialStoreSettings {
            store: Some(url.parse().unwrap()),
            ..PartialStoreSettings::default()
        }
    }

    fn check_error(typed: PartialStoreSettings) -> String {
        StoreSettings::check(typed).expect_err("the settings conflict").to_string()
    }

    #[test]
    fn conflicting_store_settings_give_hint() {
        let file = || Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")));
        let half =
            PartialStoreSettings { store_cert_file: file(), ..settings_for_url("rediss://h") };
        assert!(check_error(half).contains("both --store-cert-file and"));
        let plain = PartialStoreSettings { store_ca_file: file(), ..settings_for_url("redis://h") };
        assert!(check_error(plain).contains("write: rediss://"));
        let slow = PartialStoreSettings {
            store_deadline: Some(Micros::new(10)),
            ..settings_for_url("redis://h")
        };
        assert!(check_error(slow).contains("1ms to 1m"));
        let braces = PartialStoreSettings {
            store_prefix: Some("{a}".to_owned()),
            ..settings_for_url("redis://h")
        };
        assert!(check_error(braces).contains("braces"));
        let missing = PartialStoreSettings {
            store_password_file: Some("/no".into()),
            ..settings_for_url("redis://h")
        };
        assert!(check_error(missing).contains("--store-password-file"));
        assert!(matches!(
            StoreSettings::check(PartialStoreSettings::default()),
            Ok(StoreSettings::Memory)
        ));
    }

    #[test]
    fn store_url_is_parsed() {
        assert_eq!("memory".parse(), Ok(StoreUrl::Memory));
        let error = "mysql://h".parse::<StoreUrl>().expect_err("no such store").to_string();
        assert!(error.starts_with("unknown store type `mysql://`; write `memory`, redis://"));
    }
}
