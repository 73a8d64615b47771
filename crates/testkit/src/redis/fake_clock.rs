//! A server's clock under the test's control, by libfaketime.
//!
//! Debian's `redis-server` allocates with jemalloc, which reads the time while it starts.
//! libfaketime allocates when it is first called. The two recurse endlessly, and the server never
//! starts. Preloading libc as well breaks the recursion, because its `malloc` is found before
//! jemalloc's. A server with a fake clock is for tests of time only: its memory statistics mix two
//! allocators, and every read of the clock reads a file.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A wall clock with an offset in seconds.
#[derive(Debug)]
pub(super) struct FakeClock {
    file: PathBuf,
    ahead: Mutex<i64>,
}

impl FakeClock {
    /// Creates a clock without an offset, controlled by a file in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let clock = Self { file: folder.join("clock"), ahead: Mutex::new(0) };
        clock.step(0);
        clock
    }

    pub(super) fn step(&self, seconds: i64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        *ahead += seconds;
        // The file is read whenever the clock is, so it must be replaced atomically.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{:+}\n", *ahead)).expect("a file");
        fs::rename(&next, &self.file).expect("a file in its place");
    }

    /// Removes the shared memory that libfaketime creates and a killed process leaves behind.
    pub(super) fn remove_shared_memory(&self, pid: u32) {
        let folder = Path::new("/dev/shm");
        for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
            // It may not exist.
            let _ = fs::remove_file(folder.join(name));
        }
    }

    pub(super) fn environment(&self) -> [(&'static str, OsString); 4] {
        let mut preload = libfaketime_path().into_os_string();
        preload.push(" libc.so.6");
        [
            ("LD_PRELOAD", preload),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// Finds the library where Debian installs it, for any architecture.
fn libfaketime_path() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    files.find(|file| file.exists()).expect("libfaketime is missing: run `cargo xtask setup`")
}
