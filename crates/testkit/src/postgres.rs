//! PostgreSQL clusters for tests, on reserved loopback ports, and databases in them.
//!
//! Creating a cluster takes a second or two, so concurrent tests of one binary share a cluster
//! ([`TestDatabase::create`]), each with a separate database. PostgreSQL refuses to run as root; in
//! that case it runs as the user that Debian's package created for it.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

use crate::certificates::TestCertificates;
use crate::port::ReservedPort;
use crate::process::{ChildProcess, WAIT_TIMEOUT, eventually, is_alive, poll_until};

/// The superuser, which needs no password.
const USER: &str = "tidegate";

/// Settings of every cluster.
const SETTINGS: [&str; 6] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=16MB",
    "max_connections=100",
    "max_wal_size=2GB",
    "logging_collector=off",
];

/// A PostgreSQL cluster for tests, stopped on drop.
#[derive(Debug)]
pub struct PostgresCluster {
    process: ChildProcess,
    port: ReservedPort,
    folder: TempDir,
    certificates: Option<TestCertificates>,
}

/// A database for one test, initially empty.
#[derive(Debug)]
pub struct TestDatabase {
    cluster: Arc<PostgresCluster>,
    name: String,
}

impl PostgresCluster {
    /// Starts a cluster that may lose the latest transactions when it is killed, and waits until it
    /// answers.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&["fsync=off", "full_page_writes=off", "synchronous_commit=off"])
    }

    /// Starts a cluster that keeps all committed transactions when it is killed, for tests that do
    /// so. It does not sync to disk, because data written to files survives as long as the machine
    /// runs.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    #[must_use]
    pub fn start_durable() -> Self {
        Self::start_with(&["fsync=off"])
    }

    /// Starts a cluster that accepts only TLS connections, with certificates generated for it.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    #[must_use]
    pub fn start_tls() -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a folder");
        let certificates = TestCertificates::generate(folder.path());
        let files = [("cert", certificates.server()), ("key", certificates.server_key())];
        let mut settings = vec!["ssl=on".to_owned()];
        for (name, file) in &files {
            // PostgreSQL rejects a key file that other users can read.
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("a file of ours");
            chown_to_server_user(file);
            settings.push(format!("ssl_{name}_file={}", file.display()));
        }
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let allowed = "hostssl all all 127.0.0.1/32 trust\n";
        let mut cluster = Self::start_in(folder, &settings, Some(allowed));
        cluster.certificates = Some(certificates);
        cluster
    }

    /// Its certificates, if it uses TLS.
    #[must_use]
    pub const fn certificates(&self) -> Option<&TestCertificates> {
        self.certificates.as_ref()
    }

    fn start_with(settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a folder");
        Self::start_in(folder, settings, None)
    }

    /// Starts a cluster. `allowed` is the content of `pg_hba.conf`; by default, every local user
    /// may connect.
    fn start_in(folder: TempDir, settings: &[&str], allowed: Option<&str>) -> Self {
        let (port, data) = (ReservedPort::reserve(), folder.path().join("data"));
        chown_to_server_user(folder.path());
        let mut make = postgres_command("initdb");
        make.args(["--username", USER, "--auth", "trust", "--no-sync", "--encoding", "UTF8"]);
        make.args(["--locale", "C.UTF-8", "-D"]).arg(&data).current_dir(folder.path());
        let output = make.output().expect("initdb: run `cargo xtask setup`");
        assert!(output.status.success(), "initdb failed:\n{}", output_text(&output));
        if let Some(allowed) = allowed {
            fs::write(data.join("pg_hba.conf"), allowed).expect("a file of the cluster");
        }
        let mut command = postgres_command("postgres");
        command.arg("-D").arg(&data).args(["-p", &port.number().to_string()]);
        for setting in SETTINGS.iter().chain(settings) {
            command.args(["-c", setting]);
        }
        command.current_dir(folder.path());
        let process = ChildProcess::start(&command, &folder.path().join("log"));
        let cluster = Self { process, port, folder, certificates: None };
        cluster.await_ready();
        cluster
    }

    /// The process, for pausing or resuming it. Open connections do not notice, because each has a
    /// separate process.
    #[must_use]
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }

    /// Kills all its processes (SIGKILL) and waits until they have exited. The port stays reserved.
    pub fn kill(&self) {
        let children = child_pids(self.process.pid());
        self.process.kill();
        // They exit when they notice that their parent has; until then a new server does not start.
        eventually("the server's processes have exited", || {
            !children.iter().copied().any(is_alive)
        });
    }

    /// Kills the server if it runs, starts it again on the same port and data, and waits until it
    /// answers.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    pub fn restart(&self) {
        if self.process.is_running() {
            self.kill();
        }
        self.process.restart();
        self.await_ready();
    }

    /// Runs SQL on a database and returns the output: values only, one row per line.
    ///
    /// # Panics
    /// If the SQL fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        assert!(output.status.success(), "{sql}\n{}", output_text(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn psql(&self, database: &str, sql: &str) -> Output {
        let mut command = Command::new("psql");
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database), "-c", sql]);
        command.env("PGCONNECT_TIMEOUT", "5").output().expect("psql: run `cargo xtask setup`")
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.port.address())
    }

    fn await_ready(&self) {
        let answered = poll_until(WAIT_TIMEOUT, || {
            if !self.process.is_running() {
                return Some(false);
            }
            self.psql("postgres", "SELECT 1").status.success().then_some(true)
        });
        if answered != Some(true) {
            panic!("PostgreSQL in {:?} does not answer:\n{}", self.folder, self.process.log());
        }
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        // A clean shutdown, so that no shared memory is left behind.
        self.process.quit();
    }
}

impl TestDatabase {
    /// Creates an empty database in a cluster shared with concurrent tests.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn create() -> Self {
        static SHARED: Mutex<Weak<PostgresCluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = shared.upgrade().unwrap_or_else(|| Arc::new(PostgresCluster::start()));
        *shared = Arc::downgrade(&cluster);
        drop(shared);
        Self::create_in(cluster)
    }

    /// Creates an empty database in this cluster.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn create_in(cluster: Arc<PostgresCluster>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        cluster.sql("postgres", &format!("CREATE DATABASE {name}"));
        Self { cluster, name }
    }

    /// Its URL for the configuration of programs.
    #[must_use]
    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that contains it.
    #[must_use]
    pub fn cluster(&self) -> &PostgresCluster {
        &self.cluster
    }

    /// Runs SQL on it, like [`PostgresCluster::sql`].
    ///
    /// # Panics
    /// If the SQL fails.
    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    /// Runs SQL that must fail, and returns the error.
    ///
    /// # Panics
    /// If it succeeds.
    pub fn sql_error(&self, sql: &str) -> String {
        let output = self.cluster.psql(&self.name, sql);
        assert!(!output.status.success(), "{sql} did not fail");
        output_text(&output)
    }
}

/// A command of the PostgreSQL server, run as a user that it accepts.
fn postgres_command(program: &str) -> Command {
    let program = server_bin_folder().join(program);
    let Some((user, group)) = server_user() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    // Changing the user clears the parent-death signal, so it is set again here. On SIGQUIT the
    // server shuts down at once and cleanly.
    command.args(["--pdeathsig", "QUIT", "--clear-groups"]);
    command.args([format!("--reuid={user}"), format!("--regid={group}")]);
    command.arg("--").arg(program);
    command
}

/// The program folder of the newest server that Debian has installed.
fn server_bin_folder() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| number(path));
    newest.expect("PostgreSQL is missing: run `cargo xtask setup`").join("bin")
}

/// Makes the server's user the owner of a file or folder.
fn chown_to_server_user(path: &Path) {
    if let Some((user, group)) = server_user() {
        chown(path, Some(user), Some(group)).expect("root may change the owner");
    }
}

/// The user and group to run the server as if we are root: `postgres`, or an unprivileged user.
fn server_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("/etc/passwd must be readable");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
        Some((ids.next()?, ids.next()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("a user who is not root"))
}

fn child_pids(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
