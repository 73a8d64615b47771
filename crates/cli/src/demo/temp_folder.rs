//! Temporary folder for the demo's rules and database; removed when the demo ends.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use tidegate_server::error::CommandError;

/// A folder that is removed with everything in it when this is dropped.
#[derive(Debug)]
pub(super) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a folder with mode 0700. An existing folder is never reused, because another user
    /// may have created it.
    ///
    /// # Errors
    /// If the folder cannot be created or already exists.
    pub(super) fn create() -> Result<Self, CommandError> {
        let path = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            CommandError::Failed(format!("cannot create {}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }

    /// The path of a file in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into the folder and returns its path.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, CommandError> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // Best effort: leftovers stay in the system's temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}
