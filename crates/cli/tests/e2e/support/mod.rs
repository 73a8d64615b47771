//! Helpers that start the program, wait for its output and compare it with golden files.

pub mod certificate_authority;
pub mod external_programs;
pub mod flask;
pub mod http_client;
pub mod otlp_collector;
pub mod recording_upstream;
pub mod server_process;
pub mod successors;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use certificate_authority::TestCertificateAuthority;
pub use external_programs::{call_grpc, run_curl};
pub use flask::FlaskApp;
pub use http_client::HttpTestClient;
pub use otlp_collector::TestOtlpCollector;
pub use recording_upstream::RecordingUpstream;
pub use server_process::ServerProcess;
pub use successors::SuccessorChain;

/// Longer than anything takes on a busy machine, but shorter than the 30 seconds after which the
/// program rereads its file without a change notification.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The program, without environment variables that could change its output. Listeners that few
/// tests need are off unless a flag enables them: otherwise all tests would compete for the same
/// default ports.
pub fn tidegate_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        let known = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "RUST_LOG"];
        let text = name.to_string_lossy();
        if text.starts_with("TIDEGATE_")
            || text.starts_with("OTEL_")
            || known.contains(&text.as_ref())
        {
            command.env_remove(&name);
        }
    }
    disable_default_ports(&mut command);
    command.stdin(Stdio::null());
    command
}

/// Turns off listeners that a test does not enable, or moves them to a free port. Many tests run
/// in parallel, and the program exits if a default port is in use.
pub fn disable_default_ports(command: &mut Command) {
    command.env("TIDEGATE_GRPC", "off").env("TIDEGATE_ADMIN", "off");
    command.env("TIDEGATE_RESP", "127.0.0.1:0");
}

/// Runs the program until it exits; fails after a timeout.
#[track_caller]
pub fn run_tidegate(args: &[&str]) -> Output {
    let mut command = tidegate_command();
    command.args(args).current_dir(golden_folder());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = read_in_background(child.stdout.take().unwrap());
    let err = read_in_background(child.stderr.take().unwrap());
    let status = wait_for_exit(&mut child, &format!("`tidegate {}` to exit", args.join(" ")));
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// Waits until a process has exited. Kills it and fails after a timeout.
#[track_caller]
fn wait_for_exit(child: &mut Child, what: &str) -> ExitStatus {
    let deadline = now() + TEST_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("timed out waiting for {what}");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn read_in_background(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

pub fn utf8_text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Compares with a golden file; `UPDATE_GOLDEN=1` rewrites it.
#[track_caller]
pub fn assert_golden(name: &str, actual: &str) {
    tidegate_fixtures::golden::assert_golden(&golden_folder().join(name), actual);
}

/// Calls `poll` until it returns a value; fails after a timeout.
#[track_caller]
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(now() < deadline, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline for a process that may hang")]
pub fn now() -> Instant {
    Instant::now()
}

/// A temporary folder, deleted when this is dropped.
pub struct TestFolder(PathBuf);

impl TestFolder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("tidegate-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The URL of an SQLite database in this folder.
    pub fn database_url(&self) -> String {
        format!("sqlite:{}", self.path("tidegate.db").display())
    }

    /// Writes a file in place and returns its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// Writes a temporary file and renames it over the target, as editors do.
    pub fn replace_atomically(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let temporary = self.write(&format!("{name}~"), contents);
        let path = self.path(name);
        std::fs::rename(temporary, &path).unwrap();
        path
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
