//! Signals that stop the process, replace it, or reload its rules.

use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CommandError;

/// Time for an orderly exit after the second stop signal.
const GRACE: Duration = Duration::from_secs(1);

/// Exit code of a forced exit.
const EXIT_FAILED: i32 = 3;

/// Listens for the signals that stop the process or hand it over.
#[derive(Debug)]
pub(super) struct SignalListener {
    terminate: Signal,
    interrupt: Signal,
    user2: Signal,
}

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownSignal {
    /// Stop; with the name of the signal.
    Stop(&'static str),
    /// Hand over to a new process.
    Handover,
}

impl SignalListener {
    /// Installs the handlers. From now on these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn listen() -> Result<Self, CommandError> {
        Ok(Self {
            terminate: listen_for(SignalKind::terminate())?,
            interrupt: listen_for(SignalKind::interrupt())?,
            user2: listen_for(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next_signal(&mut self) -> ShutdownSignal {
        tokio::select! {
            Some(()) = self.terminate.recv() => ShutdownSignal::Stop("SIGTERM"),
            Some(()) = self.interrupt.recv() => ShutdownSignal::Stop("SIGINT"),
            Some(()) = self.user2.recv() => ShutdownSignal::Handover,
            // The streams end only with the runtime.
            else => std::future::pending().await,
        }
    }

    /// Waits for the next stop signal and returns its name.
    pub(super) async fn next_stop(&mut self) -> &'static str {
        loop {
            if let ShutdownSignal::Stop(signal) = self.next_signal().await {
                return signal;
            }
        }
    }
}

/// Exits the process after the second stop signal, whatever its threads are blocked on. An
/// unresponsive file system or log reader can block every one of them. The thread has its own
/// runtime, so it receives signals even if no other runtime polls. It logs nothing, because writing
/// the log may be what blocks the others.
///
/// # Errors
/// When the system refuses.
pub(super) fn exit_on_second_stop() -> Result<(), CommandError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut signals = SignalListener::listen()?;
    drop(entered);
    let wait = async move {
        signals.next_stop().await;
        signals.next_stop().await;
        tokio::time::sleep(GRACE).await;
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(wait);
        exit();
    })?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the main thread may be blocked")]
fn exit() -> ! {
    std::process::exit(EXIT_FAILED)
}

/// Listens for SIGHUP, which reloads the rules.
///
/// # Errors
/// When the system refuses.
pub(super) fn listen_for_hang_up() -> Result<Signal, CommandError> {
    listen_for(SignalKind::hangup())
}

fn listen_for(kind: SignalKind) -> Result<Signal, CommandError> {
    signal(kind)
        .map_err(|error| CommandError::Failed(format!("cannot listen for signals: {error}")))
}
