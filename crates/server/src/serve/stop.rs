//! The signals that stop the process or make it read its rules again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that mean: stop.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens for them; from now on they do not end the process by themselves.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn listen() -> Result<Self, Failure> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: listen(terminate)?, interrupt: listen(interrupt)? })
    }

    /// Waits for the next one and names it.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            // Both streams end only with the runtime.
            else => std::future::pending().await,
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
