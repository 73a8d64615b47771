//! A running `tidegate serve`.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{HttpTestClient, tidegate_command, wait_for};

/// A server process, killed when this is dropped.
pub struct ServerProcess {
    child: Child,
    /// Address of the HTTP listener: `127.0.0.1:PORT`.
    pub address: String,
    /// Address of the gateway; empty without one.
    pub gateway: String,
    /// Address of the RESP listener; empty without one.
    pub resp: String,
    out: Arc<Mutex<String>>,
    log: Arc<Mutex<String>>,
}

impl ServerProcess {
    /// Starts on a free port.
    pub fn start(args: &[&str]) -> Self {
        let mut command = tidegate_command();
        command.args(["serve", "--http", "127.0.0.1:0"]);
        if !args.contains(&"--resp") {
            command.args(["--resp", "127.0.0.1:0"]);
        }
        command.args(args);
        Self::spawn(command)
    }

    /// Starts on a free port with the rules of a file.
    pub fn with_config(file: &Path, args: &[&str]) -> Self {
        Self::start(&[&["--config", file.to_str().unwrap()], args].concat())
    }

    /// Starts on free ports, as a gateway in front of an upstream.
    pub fn start_gateway(upstream: &str, args: &[&str]) -> Self {
        Self::start(&[&["--gateway", "127.0.0.1:0", "--upstream", upstream], args].concat())
    }

    /// Starts on free ports, as a gateway whose upstreams are defined in the file.
    pub fn start_gateway_with_config(file: &Path, args: &[&str]) -> Self {
        Self::with_config(file, &[&["--gateway", "127.0.0.1:0"], args].concat())
    }

    /// Starts a command unchanged and waits until its listeners are open.
    pub fn spawn(command: Command) -> Self {
        Self::spawn_logging_to(command, Stdio::piped())
    }

    /// Like `spawn`, but sends the log to `log`; only a piped log is collected.
    pub fn spawn_logging_to(mut command: Command, log: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = collect_lines(child.stdout.take().unwrap());
        let log = child.stderr.take().map(collect_lines).unwrap_or_default();
        let [address, gateway, resp] = [const { String::new() }; 3];
        let args: Vec<_> = command.get_args().collect();
        let has_resp = !args.windows(2).any(|pair| pair == ["--resp", "off"]);
        let mut server = Self { child, address, gateway, resp, out, log };
        [server.gateway, server.address, server.resp] = wait_for("the `listening` line", || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("exited with {status}: {}", server.log.lock().unwrap());
            }
            // The program prints the line of the RESP listener last.
            let out = server.out.lock().unwrap();
            let listening = |prefix: &str| {
                let mut lines = out.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                lines.find_map(|line| line.strip_prefix(prefix).map(|at| at.trim_end().to_owned()))
            };
            let http = listening("listening http ")?;
            let resp = listening("listening resp ");
            if has_resp && resp.is_none() {
                return None;
            }
            let gateway = listening("listening gateway ").unwrap_or_default();
            Some([gateway, http, resp.unwrap_or_default()])
        });
        server
    }

    /// Address of the gRPC listener.
    pub fn grpc_address(&self) -> String {
        self.listen_address("grpc")
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> String {
        self.listen_address("admin")
    }

    fn listen_address(&self, listener: &str) -> String {
        let prefix = format!("listening {listener} ");
        wait_for(&format!("the `listening {listener}` line"), || {
            let out = self.stdout();
            let mut lines = out.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            lines.find_map(|line| line.strip_prefix(&prefix).map(|at| at.trim_end().to_owned()))
        })
    }

    /// A client of the HTTP listener.
    pub fn client(&self) -> HttpTestClient {
        HttpTestClient::connect(&self.address)
    }

    /// A client of the gateway.
    pub fn gateway_client(&self) -> HttpTestClient {
        HttpTestClient::connect(&self.gateway)
    }

    /// Process ID of the server that the test started; successors have others.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The stdout output so far.
    pub fn stdout(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    /// The stderr output so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log contains these words.
    #[track_caller]
    pub fn wait_for_log(&self, words: &str) {
        wait_for(&format!("`{words}` in the log"), || self.log().contains(words).then_some(()));
    }

    /// Sends a signal: `HUP`, `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits until the process exits without being killed.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for("the process to exit", || self.child.try_wait().unwrap())
    }

    /// Stops it with SIGTERM, as an operator would, and checks that it exits with 0.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.wait_for_exit().code(), Some(0), "{}", self.log());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Collects the lines of a stream on a background thread.
pub fn collect_lines(from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&text);
    thread::spawn(move || {
        let mut lines = BufReader::new(from);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            into.lock().unwrap().push_str(&line);
            line.clear();
        }
    });
    text
}
