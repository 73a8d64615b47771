//! A PostgreSQL cluster of the test's own, on a free port of loopback, and databases in it.
//!
//! Making a cluster takes a second or two, so tests of one binary that run at the same time share
//! one ([`TestDatabase::create`]), each with a database of its own. PostgreSQL refuses to run as root:
//! there it runs as the user that Debian's package made for it.

#![expect(clippy::expect_used, reason = "a test whose server does not start cannot go on")]

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

/// Its superuser, who needs no password.
const USER: &str = "tidegate";

/// What every cluster of ours is told.
const SETTINGS: [&str; 6] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=16MB",
    "max_connections=100",
    "max_wal_size=2GB",
    "logging_collector=off",
];

/// A cluster of the test's own, killed on drop.
#[derive(Debug)]
pub struct PostgresCluster {
    process: ChildProcess,
    port: ReservedPort,
    folder: TempDir,
    certificates: Option<TestCertificates>,
}

/// An empty database.
#[derive(Debug)]
pub struct TestDatabase {
    cluster: Arc<PostgresCluster>,
    name: String,
}

impl PostgresCluster {
    /// Starts one that may forget the last moments when it is killed, and waits until it answers.
    ///
    /// # Panics
    /// When it does not, with its log.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&["fsync=off", "full_page_writes=off", "synchronous_commit=off"])
    }

    /// Starts one that keeps what it has said when it is killed: for tests that kill it. It does not wait
    /// for the disk, because a machine that goes on keeps what was written to files.
    ///
    /// # Panics
    /// When it does not answer, with its log.
    #[must_use]
    pub fn start_durable() -> Self {
        Self::start_with(&["fsync=off"])
    }

    /// Starts one that speaks to nobody but over TLS, with certificates of its own.
    ///
    /// # Panics
    /// When it does not answer, with its log.
    #[must_use]
    pub fn start_tls() -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a folder");
        let certificates = TestCertificates::generate(folder.path());
        let files = [("cert", certificates.server()), ("key", certificates.server_key())];
        let mut settings = vec!["ssl=on".to_owned()];
        for (name, file) in &files {
            // A key that others may read is refused.
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

    /// Its certificates, if it has any.
    #[must_use]
    pub const fn certificates(&self) -> Option<&TestCertificates> {
        self.certificates.as_ref()
    }

    fn start_with(settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a folder");
        Self::start_in(folder, settings, None)
    }

    /// Starts one; `allowed` says who may connect, if not everybody on this machine.
    fn start_in(folder: TempDir, settings: &[&str], allowed: Option<&str>) -> Self {
        let (port, data) = (ReservedPort::reserve(), folder.path().join("data"));
        chown_to_server_user(folder.path());
        let mut make = postgres_command("initdb");
        make.args(["--username", USER, "--auth", "trust", "--no-sync", "--encoding", "UTF8"]);
        make.args(["--locale", "C.UTF-8", "-D"]).arg(&data).current_dir(folder.path());
        let output = make.output().expect("initdb: run `cargo xtask setup`");
        assert!(output.status.success(), "no cluster:\n{}", output_text(&output));
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

    /// The process, to be paused or resumed (which its connections do not notice: each has a
    /// process of its own).
    #[must_use]
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }

    /// Ends all its processes without a warning (SIGKILL), and waits until they are gone. The port
    /// stays its own.
    pub fn kill(&self) {
        let children = child_pids(self.process.pid());
        self.process.kill();
        // They end when they find their parent gone; until then a new one does not start.
        eventually("the server's processes are gone", || !children.iter().copied().any(is_alive));
    }

    /// Kills it if it runs, starts it again on the same port and data, and waits until it answers.
    ///
    /// # Panics
    /// When it does not answer, with its log.
    pub fn restart(&self) {
        if self.process.is_running() {
            self.kill();
        }
        self.process.restart();
        self.await_ready();
    }

    /// Runs SQL on a database and returns what it prints: values alone, a line a row.
    ///
    /// # Panics
    /// When the server says no.
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
        // In order, so that nothing of it stays in the machine's memory.
        self.process.quit();
    }
}

impl TestDatabase {
    /// An empty database in a cluster that is shared with the tests that run at the same time.
    ///
    /// # Panics
    /// When there is none to be had.
    #[must_use]
    pub fn create() -> Self {
        static SHARED: Mutex<Weak<PostgresCluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = shared.upgrade().unwrap_or_else(|| Arc::new(PostgresCluster::start()));
        *shared = Arc::downgrade(&cluster);
        drop(shared);
        Self::create_in(cluster)
    }

    /// An empty database in this cluster.
    ///
    /// # Panics
    /// When there is none to be had.
    #[must_use]
    pub fn create_in(cluster: Arc<PostgresCluster>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        cluster.sql("postgres", &format!("CREATE DATABASE {name}"));
        Self { cluster, name }
    }

    /// Its address as programs are configured with.
    #[must_use]
    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it is in.
    #[must_use]
    pub fn cluster(&self) -> &PostgresCluster {
        &self.cluster
    }

    /// Runs SQL on it, as [`PostgresCluster::sql`].
    ///
    /// # Panics
    /// When the server says no.
    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    /// What the server says to SQL that it refuses.
    ///
    /// # Panics
    /// When it does not refuse it.
    pub fn sql_error(&self, sql: &str) -> String {
        let output = self.cluster.psql(&self.name, sql);
        assert!(!output.status.success(), "{sql} is not refused");
        output_text(&output)
    }
}

/// A command of the server's, as a user that it agrees to run as.
fn postgres_command(program: &str) -> Command {
    let program = server_bin_folder().join(program);
    let Some((user, group)) = server_user() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    // Changing the user clears the signal that ends it with us, so it is set here. On SIGQUIT it
    // ends at once and in order.
    command.args(["--pdeathsig", "QUIT", "--clear-groups"]);
    command.args([format!("--reuid={user}"), format!("--regid={group}")]);
    command.arg("--").arg(program);
    command
}

/// Where the newest server is that Debian has installed.
fn server_bin_folder() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| number(path));
    newest.expect("PostgreSQL is not here: run `cargo xtask setup`").join("bin")
}

/// Lets whoever runs it have a file or a folder.
fn chown_to_server_user(path: &Path) {
    if let Some((user, group)) = server_user() {
        chown(path, Some(user), Some(group)).expect("it is ours to give");
    }
}

/// Who runs it if we are root: its own user, or nobody.
fn server_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("the users of this machine");
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
