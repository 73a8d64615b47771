//! A folder for the rules of a demo and what is changed of them, gone when the demo ends.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use tidegate_server::error::CommandError;

/// A folder that is removed with everything in it when this is dropped.
#[derive(Debug)]
pub(super) struct TempFolder(PathBuf);

impl TempFolder {
    /// Makes one that nobody else reads; one that is there already is not ours.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn create() -> Result<Self, CommandError> {
        let path = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        let why = |error| CommandError::Failed(format!("cannot make {}: {error}", path.display()));
        made.map_err(why)?;
        Ok(Self(path))
    }

    /// Where a file of that name is in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into it and says where.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, CommandError> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // What cannot be removed stays with the other temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
