//! Processes that take over from each other. They are no children of the test, so they are ended by
//! number when it is over.

use std::process::Command;

use super::{ServerProcess, wait_for};

/// The line of processes that a server begins.
pub struct SuccessorChain<'s> {
    server: &'s ServerProcess,
    /// The one that serves.
    pub pid: u32,
    count: usize,
}

impl<'s> SuccessorChain<'s> {
    pub fn new(server: &'s ServerProcess) -> Self {
        Self { server, pid: server.pid(), count: 0 }
    }

    /// The one that was started last, whoever told it to.
    pub fn from_log(server: &'s ServerProcess) -> Self {
        let started = logged_pids(server, "successor=");
        Self { server, pid: *started.last().unwrap(), count: started.len() }
    }

    /// Tells the one that serves to let another take over, and waits until that has happened and the
    /// old one is gone.
    #[track_caller]
    pub fn replace_process(&mut self) {
        let old = self.pid;
        send_signal(old, "USR2");
        self.count += 1;
        let number = |what| logged_pids(self.server, what).get(self.count - 1).copied();
        self.pid = wait_for("a successor", || number("successor="));
        wait_for("it to take over", || number("predecessor="));
        wait_for("the old process to go", || (!is_alive(old)).then_some(()));
    }
}

impl Drop for SuccessorChain<'_> {
    fn drop(&mut self) {
        if self.count > 0 && is_alive(self.pid) {
            send_signal(self.pid, "KILL");
        }
    }
}

/// The numbers in the log that follow these words.
fn logged_pids(server: &ServerProcess, what: &str) -> Vec<u32> {
    let log = server.log();
    let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    log.split(what).skip(1).filter_map(digits).collect()
}

pub fn send_signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// Whether a process runs; one that has ended and that nobody has asked how does not.
pub fn is_alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}
