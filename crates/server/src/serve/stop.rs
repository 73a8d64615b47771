//! The signals that stop the process, replace it, or make it read its rules again.

use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// How long the process may take to end in order after the second signal to stop.
const GRACE: Duration = Duration::from_secs(1);

/// The exit code of a process that did not end in order.
const COULD_NOT: i32 = 3;

/// The signals that mean: stop, or let another process take over.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user: Signal,
}

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Stop; with its name.
    Stop(&'static str),
    /// Let a new process take over.
    HandOver,
}

impl Signals {
    /// Listens for them; from now on they do not end the process by themselves.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            user: listen(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            Some(()) = self.terminate.recv() => Told::Stop("SIGTERM"),
            Some(()) = self.interrupt.recv() => Told::Stop("SIGINT"),
            Some(()) = self.user.recv() => Told::HandOver,
            // The streams end only with the runtime.
            else => std::future::pending().await,
        }
    }

    /// Waits for the next one that means stop, and names it.
    pub(super) async fn stop(&mut self) -> &'static str {
        loop {
            if let Told::Stop(signal) = self.next().await {
                return signal;
            }
        }
    }
}

/// Ends the process after the second signal to stop, whatever its threads wait for: a file system or
/// a reader of the log that does not answer may hold up every one of them. This thread has a runtime
/// to itself, so signals arrive even if no other runtime polls. It writes no log line, because that
/// may be what the others wait for.
///
/// # Errors
/// When the system refuses.
pub(super) fn enforce() -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut signals = Signals::listen()?;
    drop(entered);
    let wait = async move {
        signals.stop().await;
        signals.stop().await;
        tokio::time::sleep(GRACE).await;
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(wait);
        exit();
    })?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "main may be among the threads that wait")]
fn exit() -> ! {
    std::process::exit(COULD_NOT)
}

/// The signal that means: read the rules again.
///
/// # Errors
/// When the system refuses.
pub(super) fn hang_up() -> Result<Signal, Failure> {
    listen(SignalKind::hangup())
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::CouldNot(format!("cannot listen for signals: {error}")))
}
