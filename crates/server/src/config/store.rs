//! Where the counters are and how they are reached: as typed, and checked with its files read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tidegate_core::time::Micros;
use tidegate_redis::{Address, DEFAULT_DEADLINE, DEFAULT_PREFIX, Tls};
use tidegate_rules::decode::Fields;

use super::read_file;
use super::section::{parsed, path};
use super::value::{self, StoreAt};
use crate::failure::Failure;

/// The password, for those who keep secrets in the environment; there is no flag for it, because
/// everybody on a machine sees its command lines.
const PASSWORD: &str = "TIDEGATE_STORE_PASSWORD";

/// The shortest and longest time that a decision may be given.
const DEADLINES: [Micros; 2] = [Micros::from_millis(1), Micros::from_secs(60)];

/// The settings of the store, as typed in one place.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreLayer {
    /// Where the counters are: `memory`, or a Redis or Valkey that several nodes share, such as
    /// redis://HOST:6379 [default: memory]
    #[arg(long, value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true)]
    pub(crate) store: Option<StoreAt>,

    /// How long a decision may wait for the store; then the rule's `on_fail` answers [default: 5ms]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::duration,
        env = "TIDEGATE_STORE_DEADLINE",
        hide_env_values = true
    )]
    pub(crate) store_deadline: Option<Micros>,

    /// What the names of keys begin with [default: tg:]
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_STORE_PREFIX", hide_env_values = true)]
    pub(crate) store_prefix: Option<String>,

    /// The ACL user
    #[arg(long, value_name = "NAME", env = "TIDEGATE_STORE_USER", hide_env_values = true)]
    pub(crate) store_user: Option<String>,

    /// The file with the password; or set TIDEGATE_STORE_PASSWORD
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_PASSWORD_FILE", hide_env_values = true)]
    pub(crate) store_password_file: Option<PathBuf>,

    /// Who may vouch for the store's certificate, in PEM [default: whom this machine trusts]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CA_FILE", hide_env_values = true)]
    pub(crate) store_ca_file: Option<PathBuf>,

    /// Our certificate for the store, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CERT_FILE", hide_env_values = true)]
    pub(crate) store_cert_file: Option<PathBuf>,

    /// The key to that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_KEY_FILE", hide_env_values = true)]
    pub(crate) store_key_file: Option<PathBuf>,
}

impl StoreLayer {
    /// This layer, and the one below for what it does not say.
    pub(crate) fn over(self, below: Self) -> Self {
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

    /// The same with relative paths taken from a folder.
    pub(super) fn beside(mut self, folder: &Path) -> Self {
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

    /// Reads the settings of a document's `server:` section.
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let mut file = |name| fields.take(name).and_then(|field| path(&field));
        let (password, ca) = (file("store_password_file"), file("store_ca_file"));
        let (cert, key) = (file("store_cert_file"), file("store_key_file"));
        let mut word = |name| fields.take(name).and_then(|field| Some(field.word()?.to_owned()));
        let (prefix, user) = (word("store_prefix"), word("store_user"));
        Self {
            store: fields.take("store").and_then(|field| parsed(&field)),
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

/// Where the counters are, checked.
#[derive(Debug)]
pub(crate) enum StoreSettings {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(Box<RedisSettings>),
}

/// A Redis or Valkey, with what is needed to be let in.
#[derive(Debug)]
pub(crate) struct RedisSettings {
    pub(crate) address: Address,
    pub(crate) tls: Tls,
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
}

impl StoreSettings {
    /// Checks what was typed and reads the files.
    ///
    /// # Errors
    /// When a file cannot be read or the settings do not go together.
    pub(crate) fn check(typed: StoreLayer) -> Result<Self, Failure> {
        let Some(StoreAt::Redis(mut address)) = typed.store else { return Ok(Self::Memory) };
        if let Some(user) = typed.store_user {
            address.user = Some(user);
        }
        if let Some(path) = &typed.store_password_file {
            let text = read_file(path, "--store-password-file")?;
            let text = String::from_utf8_lossy(&text);
            address.password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
        } else if let Ok(password) = std::env::var(PASSWORD) {
            address.password = Some(password);
        }
        let authorities = typed
            .store_ca_file
            .as_deref()
            .map(|path| read_file(path, "--store-ca-file"))
            .transpose()?;
        let identity = match (&typed.store_cert_file, &typed.store_key_file) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                Some((read_file(cert, "--store-cert-file")?, read_file(key, "--store-key-file")?))
            }
            _ => {
                return Err(Failure::Usage(
                    "a certificate needs its key\n  write: both --store-cert-file and \
                     --store-key-file"
                        .to_owned(),
                ));
            }
        };
        if !address.tls && (authorities.is_some() || identity.is_some()) {
            return Err(Failure::Usage(format!(
                "certificates are given, but {address} is not TLS\n  write: rediss:// (or \
                 rediss+sentinel://, rediss+cluster://)"
            )));
        }
        let deadline = typed.store_deadline.unwrap_or(Micros::from_millis(
            u64::try_from(DEFAULT_DEADLINE.as_millis()).unwrap_or(u64::MAX),
        ));
        if !(DEADLINES[0]..=DEADLINES[1]).contains(&deadline) {
            return Err(Failure::Usage(format!(
                "--store-deadline {deadline} makes no sense\n  write: {} to {}, such as 5ms",
                DEADLINES[0], DEADLINES[1]
            )));
        }
        let prefix = typed.store_prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        if prefix.contains(['{', '}']) {
            return Err(Failure::Usage(
                "--store-prefix must not have braces: they decide where a cluster keeps a key"
                    .to_owned(),
            ));
        }
        let tls = Tls { authorities, identity };
        let deadline = deadline.into();
        Ok(Self::Redis(Box::new(RedisSettings { address, tls, prefix, deadline })))
    }
}

/// As people are shown it; a password is never part of it.
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

    fn at(url: &str) -> StoreLayer {
        StoreLayer { store: Some(url.parse().unwrap()), ..StoreLayer::default() }
    }

    fn refused(typed: StoreLayer) -> String {
        StoreSettings::check(typed).expect_err("it does not go together").to_string()
    }

    #[test]
    fn what_does_not_go_together_is_said_with_what_to_write() {
        let file = || Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")));
        let half = StoreLayer { store_cert_file: file(), ..at("rediss://h") };
        assert!(refused(half).contains("both --store-cert-file and"));
        let plain = StoreLayer { store_ca_file: file(), ..at("redis://h") };
        assert!(refused(plain).contains("write: rediss://"));
        let slow = StoreLayer { store_deadline: Some(Micros::new(10)), ..at("redis://h") };
        assert!(refused(slow).contains("1ms to 1m"));
        let braces = StoreLayer { store_prefix: Some("{a}".to_owned()), ..at("redis://h") };
        assert!(refused(braces).contains("braces"));
        let missing = StoreLayer { store_password_file: Some("/no".into()), ..at("redis://h") };
        assert!(refused(missing).contains("--store-password-file"));
        assert!(matches!(StoreSettings::check(StoreLayer::default()), Ok(StoreSettings::Memory)));
    }

    #[test]
    fn a_store_is_read_as_typed() {
        assert_eq!("memory".parse(), Ok(StoreAt::Memory));
        let error = "mysql://h".parse::<StoreAt>().expect_err("no such store").to_string();
        assert!(error.starts_with("no store is called `mysql://`; write `memory`, redis://"));
    }
}
