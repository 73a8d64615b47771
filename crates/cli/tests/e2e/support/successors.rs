//! Processes that replace each other in a graceful restart. Successors are not children of the
//! test, so it kills them by process ID when it ends.

use std::process::Command;

use super::{ServerProcess, wait_for};

/// The chain of successors that starts with one server process.
pub struct SuccessorChain<'s> {
    server: &'s ServerProcess,
    /// Process ID of the current server.
    pub pid: u32,
    count: usize,
}

impl<'s> SuccessorChain<'s> {
    pub fn new(server: &'s ServerProcess) -> Self {
        Self { server, pid: server.pid(), count: 0 }
    }

    /// Starts from the newest successor in the log, regardless of what triggered the restart.
    pub fn from_log(server: &'s ServerProcess) -> Self {
        let started = logged_pids(server, "successor=");
        Self { server, pid: *started.last().unwrap(), count: started.len() }
    }

    /// Sends SIGUSR2 to the current process. Waits until its successor has taken over and the old
    /// process has exited.
    #[track_caller]
    pub fn replace_process(&mut self) {
        let old = self.pid;
        send_signal(old, "USR2");
        self.count += 1;
        let pid = |what| logged_pids(self.server, what).get(self.count - 1).copied();
        self.pid = wait_for("a successor", || pid("successor="));
        wait_for("the successor to take over", || pid("predecessor="));
        wait_for("the old process to exit", || (!is_alive(old)).then_some(()));
    }
}

impl Drop for SuccessorChain<'_> {
    fn drop(&mut self) {
        if self.count > 0 && is_alive(self.pid) {
            send_signal(self.pid, "KILL");
        }
    }
}

/// The numbers that follow `what` in the log.
fn logged_pids(server: &ServerProcess, what: &str) -> Vec<u32> {
    let log = server.log();
    let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    log.split(what).skip(1).filter_map(digits).collect()
}

pub fn send_signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// Whether a process is running. A zombie, which has exited but was not reaped, is not.
pub fn is_alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}
