//! Child processes of a test: starts, pauses and kills them, and ensures that they end with the
//! test.
//!
//! A child is killed and waited for on drop. If the test itself is killed, no drop runs; then the
//! kernel kills the child (`PR_SET_PDEATHSIG`, set by util-linux's `setpriv`; without `setpriv` the
//! child is left behind). The kernel sends that signal when the *thread* that started the child
//! ends, and the test harness uses one thread per test. Therefore a single thread that never ends
//! starts all children.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Timeout of [`eventually`].
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval at which [`eventually`] checks its condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A command for a server program, also searched in `/usr/sbin`, where Debian installs some.
#[must_use]
pub fn server_command(program: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin");
    let mut command = Command::new(program);
    command.env("PATH", path);
    command
}

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within [`WAIT_TIMEOUT`]; the message contains `what`.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    eventually_some(what, || condition().then_some(()));
}

/// Waits until `probe` returns a value, and returns it.
///
/// # Panics
/// If it does not within [`WAIT_TIMEOUT`]; the message contains `what`.
#[track_caller]
pub fn eventually_some<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    match poll_until(WAIT_TIMEOUT, probe) {
        Some(value) => value,
        None => panic!("timed out after {WAIT_TIMEOUT:?}: {what}"),
    }
}

/// Calls `probe` until it returns a value or the timeout expires.
#[expect(clippy::disallowed_methods, reason = "a deadline for a process that may hang")]
pub fn poll_until<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = probe() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether a process exists and is not a zombie. A zombie of another parent may remain for a while.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A child process. Its output goes to a log file.
pub struct ChildProcess {
    run: Mutex<RunningChild>,
    log: PathBuf,
}

struct RunningChild {
    /// `None` while the child is being started.
    command: Option<Command>,
    child: Child,
}

impl ChildProcess {
    /// Starts `command` (its program, arguments, environment and folder) with its output going to
    /// `log`.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &Command, log: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("a log file");
        let mut command = with_parent_death_signal(command);
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().expect("a second handle")).stderr(output);
        let (command, child) = spawn_child(command);
        let run = RunningChild { command: Some(command), child };
        Self { run: Mutex::new(run), log: log.to_path_buf() }
    }

    /// Kills the process if it runs, and starts it again in the same way.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn restart(&self) {
        let mut run = self.lock_child();
        kill_and_wait(&mut run.child);
        let (command, child) = spawn_child(run.command.take().expect("put back after each start"));
        *run = RunningChild { command: Some(command), child };
    }

    /// The process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lock_child().child.id()
    }

    /// Pauses the process (SIGSTOP): its connections stay open, and it answers nothing. Returns
    /// when it has stopped.
    ///
    /// # Panics
    /// If it has exited.
    pub fn pause(&self) {
        let run = self.lock_child();
        let pid = Pid::from_child(&run.child);
        kill_process(pid, Signal::STOP).expect("the process must exist");
        // NOWAIT leaves the exit status for the later wait.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), options).expect("the process must be our child");
    }

    /// Resumes the process after [`ChildProcess::pause`] (SIGCONT).
    ///
    /// # Panics
    /// If it has exited.
    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.lock_child().child), Signal::CONT)
            .expect("the process must exist");
    }

    /// Kills the process (SIGKILL) and waits until it has exited.
    pub fn kill(&self) {
        kill_and_wait(&mut self.lock_child().child);
    }

    /// Terminates the process (SIGTERM) and waits until it has exited.
    ///
    /// # Panics
    /// If it does not exit within [`WAIT_TIMEOUT`].
    pub fn terminate(&self) -> ExitStatus {
        self.signal_and_wait(Signal::TERM)
    }

    /// Sends SIGQUIT and waits until the process has exited: for servers that on SIGTERM first wait
    /// for their clients.
    ///
    /// # Panics
    /// If it does not exit within [`WAIT_TIMEOUT`].
    pub fn quit(&self) -> ExitStatus {
        self.signal_and_wait(Signal::QUIT)
    }

    fn signal_and_wait(&self, signal: Signal) -> ExitStatus {
        let mut run = self.lock_child();
        if let Ok(Some(status)) = run.child.try_wait() {
            return status;
        }
        kill_process(Pid::from_child(&run.child), signal).expect("the process must exist");
        eventually_some("the process exits after the signal", || run.child.try_wait().ok()?)
    }

    /// Whether the process has not exited; true for a paused process.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.lock_child().child.try_wait(), Ok(None))
    }

    /// Its output so far, over all restarts.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn lock_child(&self) -> MutexGuard<'_, RunningChild> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ChildProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildProcess").field("pid", &self.pid()).field("log", &self.log).finish()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ignores errors: the only possible one is that the process has already exited.
fn kill_and_wait(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Wraps a command so that the kernel kills the child when this process dies.
fn with_parent_death_signal(command: &Command) -> Command {
    static SETPRIV: LazyLock<bool> = LazyLock::new(|| {
        let mut probe = Command::new("setpriv");
        probe.args(["--pdeathsig", "KILL", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    let mut wrapped;
    if *SETPRIV {
        wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
    } else {
        wrapped = Command::new(command.get_program());
    }
    wrapped.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped
}

type SpawnRequest = (Command, SyncSender<(Command, io::Result<Child>)>);

/// Starts a child from a thread that never ends.
fn spawn_child(command: Command) -> (Command, Child) {
    static SPAWNER: LazyLock<SyncSender<SpawnRequest>> = LazyLock::new(|| {
        let (requests, received) = sync_channel::<SpawnRequest>(0);
        let run = move || {
            for (mut command, reply) in received {
                let child = command.spawn();
                let _ = reply.send((command, child));
            }
        };
        thread::Builder::new().name("spawner".into()).spawn(run).expect("a thread");
        requests
    });
    let (reply, started) = sync_channel(1);
    SPAWNER.send((command, reply)).expect("the spawner thread never ends");
    let (command, child) = started.recv().expect("the spawner thread never ends");
    match child {
        Ok(child) => (command, child),
        Err(error) => panic!("{command:?} could not be started: {error}"),
    }
}
