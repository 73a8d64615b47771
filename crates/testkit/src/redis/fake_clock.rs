//! A server's clock in the test's hands, by libfaketime.
//!
//! Debian's `redis-server` allocates with jemalloc, which asks for the time while it starts;
//! libfaketime allocates while it answers its first question; the two go round in circles and the
//! server never comes up. So libc is preloaded besides: its `malloc` is found before jemalloc's, and
//! the circle is cut. A faked server is for proofs about time: its figures of memory mix two
//! allocators, and every look at the clock reads a file.

#![expect(clippy::expect_used, reason = "a test that cannot move the clock cannot go on")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A wall clock that is so many seconds off.
#[derive(Debug)]
pub(super) struct FakeClock {
    file: PathBuf,
    ahead: Mutex<i64>,
}

impl FakeClock {
    /// One that is right, kept in a file in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let clock = Self { file: folder.join("clock"), ahead: Mutex::new(0) };
        clock.step(0);
        clock
    }

    pub(super) fn step(&self, seconds: i64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        *ahead += seconds;
        // The file is read at every look at the clock: it must never be seen half written.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{:+}\n", *ahead)).expect("a file");
        fs::rename(&next, &self.file).expect("a file in its place");
    }

    /// Removes the shared memory that libfaketime sets up and a killed process leaves behind.
    pub(super) fn remove_shared_memory(&self, pid: u32) {
        let folder = Path::new("/dev/shm");
        for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
            // It may never have been there.
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

/// Where Debian puts it, whatever the processor.
fn libfaketime_path() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    files.find(|file| file.exists()).expect("libfaketime (`cargo xtask setup` installs it)")
}
