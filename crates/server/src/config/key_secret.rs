//! The secret for hashing client identities: the content of `--key-secret-file`, or a secret that
//! this node generates and stores next to its other persistent files.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tidegate_core::key::Secret;
use tidegate_rulestore::{file, sqlite_file};

use super::{StoreSettings, read_secret};
use crate::error::CommandError;

/// Number of random bytes in a generated secret. The file holds them as hexadecimal digits, so it
/// can also be passed as `--key-secret-file`.
const SECRET_BYTES: usize = 32;

/// Read limit. It is larger than a generated file, so that the error can state an oversized file's
/// length.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// The settings that decide where the secret comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySecretSource<'s> {
    pub(super) file: Option<&'s Path>,
    pub(super) store: &'s StoreSettings,
    pub(super) rules_db: Option<&'s str>,
    pub(super) snapshot: Option<&'s Path>,
}

impl KeySecretSource<'_> {
    /// Returns the secret. It is unset where nodes must share one and no file provides it.
    ///
    /// # Errors
    /// When the secret file cannot be read or created, or holds no valid secret.
    pub(super) fn resolve(self) -> Result<Secret, CommandError> {
        if let Some(path) = self.file {
            return Ok(Secret::from_bytes(read_secret(path, "--key-secret-file")?.as_bytes()));
        }
        let database = self.rules_db.map(sqlite_file);
        if matches!(self.store, StoreSettings::Redis(_)) || database == Some(None) {
            return Ok(Secret::UNSET);
        }
        let persistent = [database.flatten(), self.snapshot.map(Path::to_owned)];
        let files: Vec<PathBuf> = persistent.into_iter().flatten().map(secret_path).collect();
        let text = match files.iter().find(|file| exists(file)).or(files.first()) {
            Some(path) => read_or_create(path)?,
            None => generate()?,
        };
        Ok(Secret::from_bytes(text.as_bytes()))
    }
}

/// Path of the secret file that belongs to a persistent file.
fn secret_path(persistent: PathBuf) -> PathBuf {
    let mut path = persistent.into_os_string();
    path.push(".key");
    path.into()
}

/// Whether a path exists; also true for a dangling symbolic link.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Reads the secret file, creating it first if it does not exist.
fn read_or_create(path: &Path) -> Result<String, CommandError> {
    if !exists(path) {
        let created = file::create(path, format!("{}\n", generate()?).as_bytes());
        match created {
            // Another process created the file first: use its secret.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => created.map_err(|error| {
                let advice =
                    "give this user write access to the folder, or write: --key-secret-file FILE";
                unusable_error(path, "create", &format!("{error}\n  {advice}"))
            })?,
        }
    }
    read_secret_file(path)
}

fn read_secret_file(path: &Path) -> Result<String, CommandError> {
    let name = path.display();
    let bytes = file::read_private(path, MAX_FILE_BYTES).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::PermissionDenied => format!("write: chmod 600 {name}, as its owner"),
            _ => restore_advice(path),
        };
        unusable_error(path, "read", &format!("{error}\n  {advice}"))
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    if text.len() != 2 * SECRET_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let (found, digits) = (bytes.len(), 2 * SECRET_BYTES);
        let why = format!("it holds {found} bytes that are not {digits} hexadecimal digits");
        return Err(unusable_error(path, "use", &format!("{why}\n  {}", restore_advice(path))));
    }
    Ok(text.to_owned())
}

fn restore_advice(path: &Path) -> String {
    format!(
        "restore it from a backup, or remove {}: Tidegate then generates a new secret, and no \
         longer finds counters, overrides and subjects hashed under the old one",
        path.display()
    )
}

fn unusable_error(path: &Path, what: &str, why: &str) -> CommandError {
    let name = path.display();
    CommandError::Failed(format!(
        "cannot {what} {name}, the secret for hashing client identities: {why}"
    ))
}

/// Generates a secret and encodes it as hexadecimal digits.
fn generate() -> Result<String, CommandError> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| {
        CommandError::Failed("the system's random number generator failed".to_owned())
    })?;
    Ok(bytes.iter().fold(String::with_capacity(2 * SECRET_BYTES), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
