//! Closes stalled connections, and idle ones during shutdown.
//!
//! It checks a connection's progress periodically, which is cheaper than a timer for every command.

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::time::Duration;

use tokio::sync::watch::Receiver;

use tidegate_net::listen::{Settings, ShutdownPhase, wait_for_phase};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RespPhase {
    /// Waiting for a command.
    Idle,
    /// Waiting for the rest of a command.
    ReadingCommand,
    /// Processing commands.
    Answering,
    /// Sending replies.
    Sending,
}

/// Phase and progress of a connection, shared with its watchdog.
#[derive(Debug)]
pub(super) struct RespActivity {
    phase: AtomicU8,
    /// Incremented on every progress.
    steps: AtomicU64,
}

impl RespActivity {
    pub(super) const fn new() -> Self {
        Self { phase: AtomicU8::new(RespPhase::Idle as u8), steps: AtomicU64::new(0) }
    }

    pub(super) fn set_phase(&self, phase: RespPhase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Records progress.
    pub(super) fn record_step(&self) {
        // The connection's task is the only writer, so this needs no atomic increment.
        self.steps.store(self.steps.load(Relaxed).wrapping_add(1), Relaxed);
    }

    fn snapshot(&self) -> (RespPhase, u64) {
        const PHASES: [RespPhase; 4] =
            [RespPhase::Idle, RespPhase::ReadingCommand, RespPhase::Answering, RespPhase::Sending];
        let phase = PHASES.get(usize::from(self.phase.load(Relaxed)));
        (phase.copied().unwrap_or(RespPhase::Idle), self.steps.load(Relaxed))
    }
}

/// Completes when the connection made no progress for the timeout of its phase. During shutdown,
/// completes as soon as no command is being processed.
pub(super) async fn wait_for_timeout(
    activity: &RespActivity,
    settings: &Settings,
    stage: Receiver<ShutdownPhase>,
) {
    let Settings { header_timeout, idle_timeout, send_timeout, .. } = *settings;
    let shortest = header_timeout.min(idle_timeout).min(send_timeout);
    let step = (shortest / 2).max(Duration::from_millis(10));
    let mut closing = pin!(wait_for_phase(stage, ShutdownPhase::ClosingIdle));
    let (mut last, mut stalled) = (activity.snapshot(), Duration::ZERO);
    loop {
        tokio::select! {
            () = tokio::time::sleep(step) => {}
            () = &mut closing => return wait_until_sent(activity).await,
        }
        let now = activity.snapshot();
        stalled = if now == last { stalled + step } else { Duration::ZERO };
        last = now;
        let timeout = match last.0 {
            RespPhase::Idle => idle_timeout,
            RespPhase::ReadingCommand => header_timeout,
            RespPhase::Sending => send_timeout,
            // The store enforces its timeout itself.
            RespPhase::Answering => continue,
        };
        if stalled >= timeout {
            return;
        }
    }
}

/// Waits until the replies to the commands already read are sent.
async fn wait_until_sent(activity: &RespActivity) {
    while matches!(activity.snapshot().0, RespPhase::Answering | RespPhase::Sending) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
