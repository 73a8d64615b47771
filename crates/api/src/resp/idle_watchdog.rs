//! Ends connections that dawdle, and idle ones when the door closes.
//!
//! It looks now and then rather than set a timer for every command.

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::time::Duration;

use tokio::sync::watch::Receiver;

use tidegate_net::listen::{Settings, ShutdownPhase, wait_for_phase};

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RespPhase {
    /// There is nothing to do.
    Idle,
    /// A command has begun to come.
    ReadingCommand,
    /// Commands are being decided.
    Answering,
    /// Replies go out.
    Sending,
}

/// What a connection is at, and whether it gets on.
#[derive(Debug)]
pub(super) struct RespActivity {
    phase: AtomicU8,
    /// Changes whenever something was done.
    steps: AtomicU64,
}

impl RespActivity {
    pub(super) const fn new() -> Self {
        Self { phase: AtomicU8::new(RespPhase::Idle as u8), steps: AtomicU64::new(0) }
    }

    pub(super) fn set_phase(&self, phase: RespPhase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Something was done.
    pub(super) fn record_step(&self) {
        // Nobody else writes.
        self.steps.store(self.steps.load(Relaxed).wrapping_add(1), Relaxed);
    }

    fn snapshot(&self) -> (RespPhase, u64) {
        const PHASES: [RespPhase; 4] =
            [RespPhase::Idle, RespPhase::ReadingCommand, RespPhase::Answering, RespPhase::Sending];
        let phase = PHASES.get(usize::from(self.phase.load(Relaxed)));
        (phase.copied().unwrap_or(RespPhase::Idle), self.steps.load(Relaxed))
    }
}

/// Returns when the connection has been at the same thing for too long, or has nothing under way when
/// the door has closed.
pub(super) async fn wait_for_timeout(
    progress: &RespActivity,
    settings: &Settings,
    stage: Receiver<ShutdownPhase>,
) {
    let Settings { header_timeout, idle_timeout, send_timeout, .. } = *settings;
    let shortest = header_timeout.min(idle_timeout).min(send_timeout);
    let step = (shortest / 2).max(Duration::from_millis(10));
    let mut ending = pin!(wait_for_phase(stage, ShutdownPhase::ClosingIdle));
    let (mut at, mut spent) = (progress.snapshot(), Duration::ZERO);
    loop {
        tokio::select! {
            () = tokio::time::sleep(step) => {}
            () = &mut ending => return wait_until_sent(progress).await,
        }
        let now = progress.snapshot();
        spent = if now == at { spent + step } else { Duration::ZERO };
        at = now;
        let patience = match at.0 {
            RespPhase::Idle => idle_timeout,
            RespPhase::ReadingCommand => header_timeout,
            RespPhase::Sending => send_timeout,
            // A store has a deadline of its own.
            RespPhase::Answering => continue,
        };
        if spent >= patience {
            return;
        }
    }
}

/// Waits until what was read is answered; the connection closes by itself after that.
async fn wait_until_sent(progress: &RespActivity) {
    while matches!(progress.snapshot().0, RespPhase::Answering | RespPhase::Sending) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
