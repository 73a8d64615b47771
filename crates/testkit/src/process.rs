//! Other programs that a test runs: started, paused, killed, and surely gone with the test.
//!
//! A child is killed and waited for on drop. When the test itself is killed, no drop runs: then the
//! kernel kills the child (`PR_SET_PDEATHSIG`, set by util-linux's `setpriv`; without `setpriv` on the
//! machine such a child is left over). That signal comes when the *thread* that started the child
//! ends, and the test harness has a thread a test; so one thread that never ends starts them all.

#![expect(clippy::expect_used, reason = "a test whose servers do not obey cannot go on")]

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

/// How long [`eventually`] waits before it gives up.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// How often [`eventually`] looks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A command for a server, which Debian keeps where not everybody looks.
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
/// With `what` when it does not within [`WAIT_TIMEOUT`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    eventually_some(what, || condition().then_some(()));
}

/// Waits until there is something, and returns it.
///
/// # Panics
/// With `what` when there is nothing within [`WAIT_TIMEOUT`].
#[track_caller]
pub fn eventually_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match poll_until(WAIT_TIMEOUT, look) {
        Some(seen) => seen,
        None => panic!("not within {WAIT_TIMEOUT:?}: {what}"),
    }
}

/// Looks until there is something or the time is over.
#[expect(clippy::disallowed_methods, reason = "a deadline for a process that may hang")]
pub fn poll_until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether a process is there, whoever started it. A zombie is dead; that of somebody else's child may
/// stay for a while.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A running program. What it prints is kept in a file.
pub struct ChildProcess {
    run: Mutex<RunningChild>,
    log: PathBuf,
}

struct RunningChild {
    /// Taken while a child is being started.
    command: Option<Command>,
    child: Child,
}

impl ChildProcess {
    /// Starts `command` (its program, arguments, variables and folder); what it prints goes to `log`.
    ///
    /// # Panics
    /// When it cannot be started.
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

    /// Kills it if need be, and starts it again in the same way.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&self) {
        let mut run = self.lock_child();
        kill_and_wait(&mut run.child);
        let (command, child) = spawn_child(run.command.take().expect("put back after each start"));
        *run = RunningChild { command: Some(command), child };
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lock_child().child.id()
    }

    /// Stops it where it is (SIGSTOP): its connections stay open and nothing is answered. Returns
    /// when it has stopped.
    ///
    /// # Panics
    /// When it has ended.
    pub fn pause(&self) {
        let run = self.lock_child();
        let pid = Pid::from_child(&run.child);
        kill_process(pid, Signal::STOP).expect("the process is there");
        // NOWAIT leaves an exit status for the one who waits for the child.
        let seen = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), seen).expect("the process is ours");
    }

    /// Lets it go on after [`ChildProcess::pause`] (SIGCONT).
    ///
    /// # Panics
    /// When it has ended.
    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.lock_child().child), Signal::CONT)
            .expect("the process is there");
    }

    /// Ends it without a warning (SIGKILL) and waits until it is gone.
    pub fn kill(&self) {
        kill_and_wait(&mut self.lock_child().child);
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Panics
    /// When it does not within [`WAIT_TIMEOUT`].
    pub fn terminate(&self) -> ExitStatus {
        self.signal_and_wait(Signal::TERM)
    }

    /// Asks it to end at once (SIGQUIT) and waits until it has: for servers that wait for their
    /// clients when they are only asked to end.
    ///
    /// # Panics
    /// When it does not within [`WAIT_TIMEOUT`].
    pub fn quit(&self) -> ExitStatus {
        self.signal_and_wait(Signal::QUIT)
    }

    fn signal_and_wait(&self, signal: Signal) -> ExitStatus {
        let mut run = self.lock_child();
        if let Ok(Some(status)) = run.child.try_wait() {
            return status;
        }
        kill_process(Pid::from_child(&run.child), signal).expect("the process is there");
        eventually_some("the process ends when asked to", || run.child.try_wait().ok()?)
    }

    /// Whether it has not ended. A paused one has not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.lock_child().child.try_wait(), Ok(None))
    }

    /// What it has printed so far, over all its starts.
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

/// Errors are left aside: the only one is that it has ended already.
fn kill_and_wait(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The same command as a child that the kernel kills when we die.
fn with_parent_death_signal(command: &Command) -> Command {
    static SETPRIV: LazyLock<bool> = LazyLock::new(|| {
        let mut probe = Command::new("setpriv");
        probe.args(["--pdeathsig", "KILL", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    let mut bound;
    if *SETPRIV {
        bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
    } else {
        bound = Command::new(command.get_program());
    }
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

type SpawnRequest = (Command, SyncSender<(Command, io::Result<Child>)>);

/// Starts a child from the thread that never ends.
fn spawn_child(command: Command) -> (Command, Child) {
    static SPAWNER: LazyLock<SyncSender<SpawnRequest>> = LazyLock::new(|| {
        let (orders, taken) = sync_channel::<SpawnRequest>(0);
        let run = move || {
            for (mut command, answer) in taken {
                let child = command.spawn();
                let _ = answer.send((command, child));
            }
        };
        thread::Builder::new().name("starter".into()).spawn(run).expect("a thread");
        orders
    });
    let (answer, started) = sync_channel(1);
    SPAWNER.send((command, answer)).expect("the starter never ends");
    let (command, child) = started.recv().expect("the starter never ends");
    match child {
        Ok(child) => (command, child),
        Err(error) => panic!("{command:?} could not be started: {error}"),
    }
}
