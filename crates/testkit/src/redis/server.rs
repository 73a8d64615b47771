//! One server process: how it is started, reached, and brought to obey.

#![expect(clippy::expect_used, reason = "a test whose server does not start cannot go on")]

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::client::{RedisClient, RedisReply};
use super::fake_clock::FakeClock;
use super::tls::{ClientCertificatePolicy, tls_arguments};
use crate::certificates::TestCertificates;
use crate::port::ReservedPort;
use crate::process::{ChildProcess, WAIT_TIMEOUT, poll_until};

/// What every server of ours is told, unless it is a sentinel.
const BASE_ARGUMENTS: [&str; 10] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--enable-debug-command",
    "yes",
    // A replica's first copy starts at once instead of waiting five seconds for others.
    "--repl-diskless-sync-delay",
    "0",
    "--daemonize",
    "no",
];

/// A Redis server of the test's own, killed on drop.
#[derive(Debug)]
pub struct RedisServer {
    process: ChildProcess,
    port: ReservedPort,
    folder: TempDir,
    certificates: Option<TestCertificates>,
    clock: Option<FakeClock>,
}

/// A server as it shall be started.
pub(super) struct RedisServerBuilder {
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    port: ReservedPort,
    folder: TempDir,
    certificates: Option<TestCertificates>,
    clock: Option<FakeClock>,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    /// When it does not, with its log.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more settings, such as `&["--maxmemory", "2mb"]`.
    ///
    /// # Panics
    /// When it does not answer, with its log.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Self {
        RedisServerBuilder::plain().with_arguments(settings).start().wait_ready()
    }

    /// Starts one that speaks only TLS on its port, with certificates made for it. Its Unix socket,
    /// which [`RedisServer::command`] uses then, is plain.
    ///
    /// # Panics
    /// When it does not answer, with its log.
    #[must_use]
    pub fn start_tls(client: ClientCertificatePolicy) -> Self {
        RedisServerBuilder::tls(client).start().wait_ready()
    }

    /// Starts one whose clock is moved by [`RedisServer::step_clock`].
    ///
    /// # Panics
    /// When it does not answer, or the machine has no libfaketime.
    #[must_use]
    pub fn start_with_fake_clock() -> Self {
        RedisServerBuilder::with_fake_clock().start().wait_ready()
    }

    /// Its port of 127.0.0.1: for TLS if it speaks that.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its port as an address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its address as clients are configured with: `redis://…`, or `rediss://…` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.address())
    }

    /// Its Unix socket (a sentinel has none).
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The process, to be paused, resumed or killed.
    #[must_use]
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// The certificates of a server that speaks TLS.
    #[must_use]
    pub const fn certificates(&self) -> Option<&TestCertificates> {
        self.certificates.as_ref()
    }

    /// Kills it if it runs, starts it again on the same port, and waits until it answers. Its data
    /// are lost, except for a cluster node's knowledge of the cluster and a sentinel's of its primary.
    ///
    /// # Panics
    /// When it does not answer, with its log.
    pub fn restart(&self) {
        self.process.kill();
        self.remove_shared_memory();
        self.process.restart();
        self.await_ready();
    }

    /// Asks it to end and waits until it has. The port stays its own.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&self) {
        self.process.terminate();
    }

    /// Moves the clock of a server from [`RedisServer::start_with_fake_clock`] by so many seconds, forwards or
    /// backwards; it goes on from there. Only the wall clock jumps, as in life: the monotonic one,
    /// which the server's own timers use, does not.
    ///
    /// # Panics
    /// When the server was started otherwise.
    pub fn step_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("a server from `start_faked`").step(seconds);
    }

    /// A connection of its own.
    ///
    /// # Errors
    /// When it does not accept.
    pub fn connect(&self) -> io::Result<RedisClient> {
        match self.certificates {
            None => RedisClient::connect(self.address()),
            Some(_) => RedisClient::connect_unix(&self.socket()),
        }
    }

    /// Sends one command over a fresh connection. A refusal is a reply.
    ///
    /// # Panics
    /// When there is no reply within five seconds.
    pub fn command(&self, words: &[impl AsRef<[u8]>]) -> RedisReply {
        match self.try_command(words) {
            Ok(reply) => reply,
            Err(error) => panic!("no reply from {}: {error}\n{}", self.url(), self.process.log()),
        }
    }

    /// The same for a server that may be gone.
    ///
    /// # Errors
    /// When there is no reply within five seconds.
    pub fn try_command(&self, words: &[impl AsRef<[u8]>]) -> io::Result<RedisReply> {
        self.connect()?.command(words)
    }

    /// Sends a command that must be answered with `OK`.
    pub(super) fn expect_ok(&self, words: &[impl AsRef<[u8]>]) {
        let reply = self.command(words);
        let said = words.iter().map(|word| String::from_utf8_lossy(word.as_ref()));
        let said = said.collect::<Vec<_>>().join(" ");
        assert_eq!(reply, RedisReply::Simple("OK".into()), "{} said no to {said}", self.url());
    }

    /// Removes what a killed process leaves outside its folder.
    fn remove_shared_memory(&self) {
        if let Some(clock) = &self.clock {
            clock.remove_shared_memory(self.process.pid());
        }
    }

    /// The server, when it answers.
    pub(super) fn wait_ready(self) -> Self {
        self.await_ready();
        self
    }

    fn await_ready(&self) {
        let answered = poll_until(WAIT_TIMEOUT, || {
            if !self.process.is_running() {
                return Some(false);
            }
            let mut client = self.connect().ok()?;
            client.set_timeout(Duration::from_secs(1)).ok()?;
            (client.command(&["PING"]).ok()? == RedisReply::Simple("PONG".into())).then_some(true)
        });
        if answered != Some(true) {
            let ended = if answered.is_some() { "ended" } else { "runs" };
            panic!("{} does not answer and {ended}:\n{}", self.url(), self.process.log());
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.process.kill();
        self.remove_shared_memory();
    }
}

impl RedisServerBuilder {
    /// A server on a plain port.
    pub(super) fn plain() -> Self {
        let plan = Self::new();
        let port = plan.port.number().to_string();
        plan.with_arguments(&BASE_ARGUMENTS).with_arguments(&["--port", &port]).with_socket()
    }

    fn tls(client: ClientCertificatePolicy) -> Self {
        let mut plan = Self::new();
        let certificates = TestCertificates::generate(plan.folder.path());
        let port = plan.port.number().to_string();
        plan = plan
            .with_arguments(&BASE_ARGUMENTS)
            .with_arguments(&["--port", "0", "--tls-port", &port])
            .with_socket();
        plan.arguments.extend(tls_arguments(&certificates, client));
        plan.certificates = Some(certificates);
        plan
    }

    fn with_fake_clock() -> Self {
        let mut plan = Self::plain();
        let clock = FakeClock::new(plan.folder.path());
        plan.environment.extend(clock.environment());
        plan.clock = Some(clock);
        plan
    }

    /// A sentinel, which lives in a file that it rewrites.
    pub(super) fn sentinel(settings: &str) -> Self {
        let mut plan = Self::new();
        let file = plan.folder.path().join("sentinel.conf");
        let port = plan.port.number();
        std::fs::write(&file, format!("port {port}\n{settings}")).expect("a file");
        // The file comes before all options.
        plan.arguments.insert(0, file.into());
        plan.with_arguments(&["--sentinel"])
    }

    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a folder");
        let mut arguments: Vec<OsString> =
            vec!["--bind".into(), "127.0.0.1".into(), "--dir".into()];
        arguments.push(folder.path().into());
        let (port, environment) = (ReservedPort::reserve(), Vec::new());
        Self { arguments, environment, port, folder, certificates: None, clock: None }
    }

    /// The same with more settings.
    pub(super) fn with_arguments(mut self, settings: &[&str]) -> Self {
        self.arguments.extend(settings.iter().map(OsString::from));
        self
    }

    fn with_socket(mut self) -> Self {
        self.arguments.push("--unixsocket".into());
        self.arguments.push(self.folder.path().join("redis.sock").into());
        self
    }

    /// Starts it and does not wait: several may start at once. See [`RedisServer::wait_ready`].
    pub(super) fn start(self) -> RedisServer {
        let Self { arguments: words, environment: variables, port, folder, certificates, clock } =
            self;
        let program = std::env::var_os("TIDEGATE_REDIS_SERVER");
        let mut command = Command::new(program.unwrap_or_else(|| "redis-server".into()));
        command.args(words).envs(variables);
        let process = ChildProcess::start(&command, &folder.path().join("log"));
        RedisServer { process, port, folder, certificates, clock }
    }
}
