//! A running `tidegate serve`.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{HttpTestClient, tidegate_command, wait_for};

/// A process that is killed when the test is over.
pub struct ServerProcess {
    child: Child,
    /// Of the HTTP door: `127.0.0.1:PORT`.
    pub address: String,
    /// Of the gateway, if there is one.
    pub gateway: String,
    /// Of the RESP door, if there is one.
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

    /// Starts on free ports, as a gateway whose upstreams are in the file.
    pub fn start_gateway_with_config(file: &Path, args: &[&str]) -> Self {
        Self::with_config(file, &[&["--gateway", "127.0.0.1:0"], args].concat())
    }

    /// Starts a command as it is and waits until its doors listen.
    pub fn spawn(command: Command) -> Self {
        Self::spawn_logging_to(command, Stdio::piped())
    }

    /// The same, with the log somewhere else unless it is piped.
    pub fn spawn_logging_to(mut command: Command, log: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = collect_lines(child.stdout.take().unwrap());
        let log = child.stderr.take().map(collect_lines).unwrap_or_default();
        let [address, gateway, resp] = [const { String::new() }; 3];
        let has_resp = !command.get_args().any(|arg| arg == "off");
        let mut server = Self { child, address, gateway, resp, out, log };
        [server.gateway, server.address, server.resp] = wait_for("the `listening` line", || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("it ended with {status}: {}", server.log.lock().unwrap());
            }
            // The RESP door's line is the last.
            let out = server.out.lock().unwrap();
            let listening = |door: &str| {
                let mut lines = out.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                lines.find_map(|line| line.strip_prefix(door).map(|at| at.trim_end().to_owned()))
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

    /// Where the gRPC door is.
    pub fn grpc_address(&self) -> String {
        self.listen_address("grpc")
    }

    /// Where the admin door is.
    pub fn admin_address(&self) -> String {
        self.listen_address("admin")
    }

    fn listen_address(&self, door: &str) -> String {
        let prefix = format!("listening {door} ");
        wait_for(&format!("the line of the {door} door"), || {
            let out = self.stdout();
            let mut lines = out.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            lines.find_map(|line| line.strip_prefix(&prefix).map(|at| at.trim_end().to_owned()))
        })
    }

    /// A caller of the HTTP door.
    pub fn client(&self) -> HttpTestClient {
        HttpTestClient::connect(&self.address)
    }

    /// A client of the gateway.
    pub fn gateway_client(&self) -> HttpTestClient {
        HttpTestClient::connect(&self.gateway)
    }

    /// The number of the process that was started.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What is on stdout so far.
    pub fn stdout(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    /// What is on stderr so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a log line with these words.
    #[track_caller]
    pub fn wait_for_log(&self, words: &str) {
        wait_for(&format!("the log to say `{words}`"), || self.log().contains(words).then_some(()));
    }

    /// Sends a signal: `HUP`, `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for("the process to end", || self.child.try_wait().unwrap())
    }

    /// Stops it as an operator would and checks that it went well.
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

/// What is read from somebody, line by line.
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
