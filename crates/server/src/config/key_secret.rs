//! The secret under which clients are hashed: the one of `--key-secret-file`, or one that this node
//! generates and keeps beside what outlives the process.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tidegate_control::{file, sqlite_file};
use tidegate_core::key::Secret;

use super::{StoreSettings, read_secret};
use crate::failure::Failure;

/// How many random bytes a generated secret has. The file has two hexadecimal digits for each, so
/// that it can also be given as `--key-secret-file`.
const BYTES: usize = 32;

/// More than a generated file holds, so that a message can say how much too large one is.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// Where the secret comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySecret<'s> {
    pub(super) file: Option<&'s Path>,
    pub(super) store: &'s StoreSettings,
    pub(super) rules_db: Option<&'s str>,
    pub(super) snapshot: Option<&'s Path>,
}

impl KeySecret<'_> {
    /// The secret; unset where other nodes need the same one and no file has it.
    ///
    /// # Errors
    /// When its file cannot be read, created or used.
    pub(super) fn secret(self) -> Result<Secret, Failure> {
        if let Some(path) = self.file {
            return Ok(Secret::from_bytes(read_secret(path, "--key-secret-file")?.as_bytes()));
        }
        let database = self.rules_db.map(sqlite_file);
        if matches!(self.store, StoreSettings::Redis(_)) || database == Some(None) {
            return Ok(Secret::UNSET);
        }
        let kept = [database.flatten(), self.snapshot.map(Path::to_owned)];
        let files: Vec<PathBuf> = kept.into_iter().flatten().map(key_file).collect();
        let text = match files.iter().find(|file| exists(file)).or(files.first()) {
            Some(path) => kept_text(path)?,
            None => generate()?,
        };
        Ok(Secret::from_bytes(text.as_bytes()))
    }
}

/// The file of the secret beside another one.
fn key_file(kept: PathBuf) -> PathBuf {
    let mut path = kept.into_os_string();
    path.push(".key");
    path.into()
}

/// Whether something stands at a path, also a link that leads nowhere.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The secret of a file, which is created if there is none.
fn kept_text(path: &Path) -> Result<String, Failure> {
    if !exists(path) {
        let created = file::create(path, format!("{}\n", generate()?).as_bytes());
        match created {
            // Another process was faster: both use what it wrote.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => created.map_err(|error| {
                let advice = "let this user write to the folder, or write: --key-secret-file FILE";
                unusable(path, "create", &format!("{error}\n  {advice}"))
            })?,
        }
    }
    read(path)
}

fn read(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let bytes = file::read_private(path, MAX_FILE_BYTES).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::PermissionDenied => format!("write: chmod 600 {name}, as its owner"),
            _ => restore(path),
        };
        unusable(path, "read", &format!("{error}\n  {advice}"))
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    if text.len() != 2 * BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let (found, digits) = (bytes.len(), 2 * BYTES);
        let why = format!("it holds {found} bytes that are not {digits} hexadecimal digits");
        return Err(unusable(path, "use", &format!("{why}\n  {}", restore(path))));
    }
    Ok(text.to_owned())
}

fn restore(path: &Path) -> String {
    format!(
        "restore it from a backup, or remove {}: a new one is made, and what was hashed under the \
         old one (counters, overrides, subjects) is no longer found",
        path.display()
    )
}

fn unusable(path: &Path, what: &str, why: &str) -> Failure {
    let name = path.display();
    Failure::CouldNot(format!(
        "cannot {what} {name}, the secret under which clients are hashed: {why}"
    ))
}

/// A new secret in hexadecimal digits.
fn generate() -> Result<String, Failure> {
    let mut bytes = [0; BYTES];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Failure::CouldNot("the system has no random numbers".to_owned()))?;
    Ok(bytes.iter().fold(String::with_capacity(2 * BYTES), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
