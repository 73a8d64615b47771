//! A Redis server process: starting, connecting, stopping and restarting it.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

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

/// Arguments of every server except sentinels.
const BASE_ARGUMENTS: [&str; 10] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--enable-debug-command",
    "yes",
    // Start a replica's first sync at once instead of waiting five seconds for other replicas.
    "--repl-diskless-sync-delay",
    "0",
    "--daemonize",
    "no",
];

/// A Redis server for one test, killed on drop.
#[derive(Debug)]
pub struct RedisServer {
    process: ChildProcess,
    port: ReservedPort,
    folder: TempDir,
    certificates: Option<TestCertificates>,
    clock: Option<FakeClock>,
}

/// Configuration of a server to be started.
pub(super) struct RedisServerBuilder {
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    port: ReservedPort,
    folder: TempDir,
    certificates: Option<TestCertificates>,
    clock: Option<FakeClock>,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with additional settings, such as `&["--maxmemory", "2mb"]`.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Self {
        RedisServerBuilder::plain().with_arguments(settings).start().wait_ready()
    }

    /// Starts a server that accepts only TLS on its port, with certificates generated for it. Its
    /// Unix socket, which [`RedisServer::command`] then uses, is plain.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    #[must_use]
    pub fn start_tls(client: ClientCertificatePolicy) -> Self {
        RedisServerBuilder::tls(client).start().wait_ready()
    }

    /// Starts a server whose clock can be moved by [`RedisServer::step_clock`].
    ///
    /// # Panics
    /// If it does not answer, or if libfaketime is not installed.
    #[must_use]
    pub fn start_with_fake_clock() -> Self {
        RedisServerBuilder::with_fake_clock().start().wait_ready()
    }

    /// Its port on 127.0.0.1; the TLS port if it uses TLS.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its socket address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its URL for the configuration of clients: `redis://…`, or `rediss://…` with TLS.
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

    /// The process, for pausing, resuming or killing it.
    #[must_use]
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// The certificates of a TLS server.
    #[must_use]
    pub const fn certificates(&self) -> Option<&TestCertificates> {
        self.certificates.as_ref()
    }

    /// Kills the server if it runs, starts it again on the same port, and waits until it answers.
    /// Its data is lost, except a cluster node's cluster state and a sentinel's knowledge of its
    /// primary.
    ///
    /// # Panics
    /// If it does not answer; the message contains its log.
    pub fn restart(&self) {
        self.process.kill();
        self.remove_shared_memory();
        self.process.restart();
        self.await_ready();
    }

    /// Terminates the server and waits until it has exited. The port stays reserved.
    ///
    /// # Panics
    /// If it does not exit.
    pub fn stop(&self) {
        self.process.terminate();
    }

    /// Moves the clock of a server from [`RedisServer::start_with_fake_clock`] by `seconds`,
    /// forwards or backwards; it then continues from there. Only the wall clock jumps, as on real
    /// machines. The monotonic clock, which the server's timers use, does not.
    ///
    /// # Panics
    /// If the server has no fake clock.
    pub fn step_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("a server from `start_with_fake_clock`").step(seconds);
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If the server does not accept.
    pub fn connect(&self) -> io::Result<RedisClient> {
        match self.certificates {
            None => RedisClient::connect(self.address()),
            Some(_) => RedisClient::connect_unix(&self.socket()),
        }
    }

    /// Sends one command over a new connection. An error reply is returned as a reply.
    ///
    /// # Panics
    /// If there is no reply within five seconds.
    pub fn command(&self, words: &[impl AsRef<[u8]>]) -> RedisReply {
        match self.try_command(words) {
            Ok(reply) => reply,
            Err(error) => panic!("no reply from {}: {error}\n{}", self.url(), self.process.log()),
        }
    }

    /// Like [`command`](Self::command), for a server that may be down.
    ///
    /// # Errors
    /// If there is no reply within five seconds.
    pub fn try_command(&self, words: &[impl AsRef<[u8]>]) -> io::Result<RedisReply> {
        self.connect()?.command(words)
    }

    /// Sends a command that must be answered with `OK`.
    pub(super) fn expect_ok(&self, words: &[impl AsRef<[u8]>]) {
        let reply = self.command(words);
        let text = words.iter().map(|word| String::from_utf8_lossy(word.as_ref()));
        let text = text.collect::<Vec<_>>().join(" ");
        assert_eq!(reply, RedisReply::Simple("OK".into()), "{} rejected {text}", self.url());
    }

    /// Removes shared memory that a killed process leaves outside its folder.
    fn remove_shared_memory(&self) {
        if let Some(clock) = &self.clock {
            clock.remove_shared_memory(self.process.pid());
        }
    }

    /// Waits until the server answers.
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
            let state = if answered.is_some() { "has exited" } else { "is still running" };
            panic!("{} does not answer and {state}:\n{}", self.url(), self.process.log());
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

    /// A sentinel, which keeps its state in a configuration file that it rewrites.
    pub(super) fn sentinel(settings: &str) -> Self {
        let mut plan = Self::new();
        let file = plan.folder.path().join("sentinel.conf");
        let port = plan.port.number();
        std::fs::write(&file, format!("port {port}\n{settings}")).expect("a file");
        // The file must precede all options.
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

    /// Adds settings.
    pub(super) fn with_arguments(mut self, settings: &[&str]) -> Self {
        self.arguments.extend(settings.iter().map(OsString::from));
        self
    }

    fn with_socket(mut self) -> Self {
        self.arguments.push("--unixsocket".into());
        self.arguments.push(self.folder.path().join("redis.sock").into());
        self
    }

    /// Starts the server without waiting, so that several can start at once. See
    /// [`RedisServer::wait_ready`].
    pub(super) fn start(self) -> RedisServer {
        let Self { arguments, environment, port, folder, certificates, clock } = self;
        let program = std::env::var_os("TIDEGATE_REDIS_SERVER");
        let mut command = Command::new(program.unwrap_or_else(|| "redis-server".into()));
        command.args(arguments).envs(environment);
        let process = ChildProcess::start(&command, &folder.path().join("log"));
        RedisServer { process, port, folder, certificates, clock }
    }
}
