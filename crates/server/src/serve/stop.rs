//! The signals that stop the process, replace it, or make it read its rules again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

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
