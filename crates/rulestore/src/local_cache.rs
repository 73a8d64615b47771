//! Local copy of the active configuration: lets the node start while the database is down.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::file;
use crate::rule_config::{EntryKind, RuleConfig, StoredEntry};

/// Path of the copy.
#[derive(Clone, Debug)]
pub struct LocalCache(PathBuf);

/// Format marker that identifies the file.
const FORMAT: &str = "tidegate rules copy 1";

/// Maximum size to read: a million overrides take a few hundred megabytes.
const MAX_BYTES: u64 = 1 << 30;

/// Deadline for reading the copy.
const READ_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct CacheFile {
    format: String,
    version: u64,
    entries: Vec<(String, String, u64, String)>,
}

impl LocalCache {
    /// Uses the given path.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The path of the copy.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the copy atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written; the previous copy is kept.
    pub async fn write(&self, config: &RuleConfig) -> io::Result<()> {
        let entries = EntryKind::ALL.into_iter().flat_map(|kind| {
            config.entries(kind, None).map(move |(id, entry)| {
                (kind.name().to_owned(), id.to_owned(), entry.version, entry.value.clone())
            })
        });
        let (format, version) = (FORMAT.to_owned(), config.version());
        let content = CacheFile { format, version, entries: entries.collect() };
        let path = self.0.clone();
        let text = serde_json::to_vec(&content).map_err(io::Error::other)?;
        tokio::task::spawn_blocking(move || file::replace(&path, &text))
            .await
            .map_err(io::Error::other)?
    }

    /// Reads the copy; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has another format.
    pub fn read(&self) -> io::Result<Option<RuleConfig>> {
        let text = match file::read_with_deadline(&self.0, MAX_BYTES, READ_DEADLINE) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let content: CacheFile = serde_json::from_slice(&text)
            .map_err(|error| invalid(&format!("not a valid rules copy: {error}")))?;
        if content.format != FORMAT {
            return Err(invalid(
                "unknown rules copy format; it was written by another version of Tidegate",
            ));
        }
        let entries = content.entries.into_iter().map(|(kind, id, version, value)| {
            let kind = EntryKind::from_name(&kind)
                .ok_or_else(|| invalid("contains entries of an unknown kind"))?;
            Ok((kind, id, StoredEntry { value, version }))
        });
        let entries = entries.collect::<io::Result<Vec<_>>>()?;
        Ok(Some(RuleConfig::new(content.version, entries)))
    }
}
