//! A copy of the book in force, in a file of this node: what it starts from when the database is gone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::book::{Book, Kept, Kind};
use crate::file;

/// Where the copy is.
#[derive(Clone, Debug)]
pub struct Copy(PathBuf);

/// The first thing in the file, by which it is told from others.
const FORMAT: &str = "tidegate rules copy 1";

/// The largest copy that is read: a million overrides take a few hundred megabytes.
const MAX_BYTES: u64 = 1 << 30;

/// How long that may take.
const READ_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Written {
    format: String,
    version: u64,
    entries: Vec<(String, String, u64, String)>,
}

impl Copy {
    /// A copy at a path.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written; the one before stays.
    pub async fn write(&self, book: &Book) -> io::Result<()> {
        let entries = Kind::ALL.into_iter().flat_map(|kind| {
            book.all(kind, None).map(move |(id, kept)| {
                (kind.name().to_owned(), id.to_owned(), kept.version, kept.value.clone())
            })
        });
        let (format, version) = (FORMAT.to_owned(), book.version());
        let written = Written { format, version, entries: entries.collect() };
        let path = self.0.clone();
        let text = serde_json::to_vec(&written).map_err(io::Error::other)?;
        tokio::task::spawn_blocking(move || file::replace(&path, &text))
            .await
            .map_err(io::Error::other)?
    }

    /// Reads it; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is not ours.
    pub fn read(&self) -> io::Result<Option<Book>> {
        let text = match file::read_within(&self.0, MAX_BYTES, READ_DEADLINE) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let foreign = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let written: Written = serde_json::from_slice(&text)
            .map_err(|error| foreign(&format!("it is not a copy of rules: {error}")))?;
        if written.format != FORMAT {
            return Err(foreign("it is not a copy of rules that this version knows"));
        }
        let entries = written.entries.into_iter().map(|(kind, id, version, value)| {
            let kind = Kind::of(&kind).ok_or_else(|| foreign("it has entries of unknown kind"))?;
            Ok((kind, id, Kept { value, version }))
        });
        let entries = entries.collect::<io::Result<Vec<_>>>()?;
        Ok(Some(Book::new(written.version, entries)))
    }
}
