//! Ends connections that dawdle, and idle ones when the door closes.
//!
//! It looks now and then rather than set a timer for every command.

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::time::Duration;

use tokio::sync::watch::Receiver;

use crate::listen::{Settings, Stage, until};

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// There is nothing to do.
    Idle,
    /// A command has begun to come.
    Command,
    /// Commands are being decided.
    Answering,
    /// Replies go out.
    Sending,
}

/// What a connection is at, and whether it gets on.
#[derive(Debug)]
pub(super) struct Progress {
    phase: AtomicU8,
    /// Changes whenever something was done.
    steps: AtomicU64,
}

impl Progress {
    pub(super) const fn new() -> Self {
        Self { phase: AtomicU8::new(Phase::Idle as u8), steps: AtomicU64::new(0) }
    }

    pub(super) fn at(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Something was done.
    pub(super) fn step(&self) {
        // Nobody else writes.
        self.steps.store(self.steps.load(Relaxed).wrapping_add(1), Relaxed);
    }

    fn seen(&self) -> (Phase, u64) {
        const PHASES: [Phase; 4] = [Phase::Idle, Phase::Command, Phase::Answering, Phase::Sending];
        let phase = PHASES.get(usize::from(self.phase.load(Relaxed)));
        (phase.copied().unwrap_or(Phase::Idle), self.steps.load(Relaxed))
    }
}

/// Returns when the connection has been at the same thing for too long, or has nothing under way when
/// the door has closed.
pub(super) async fn dawdling(progress: &Progress, settings: &Settings, stage: Receiver<Stage>) {
    let Settings { header_timeout, idle_timeout, send_timeout, .. } = *settings;
    let shortest = header_timeout.min(idle_timeout).min(send_timeout);
    let step = (shortest / 2).max(Duration::from_millis(10));
    let mut ending = pin!(until(stage, Stage::Ending));
    let (mut at, mut spent) = (progress.seen(), Duration::ZERO);
    loop {
        tokio::select! {
            () = tokio::time::sleep(step) => {}
            () = &mut ending => return ended(progress).await,
        }
        let now = progress.seen();
        spent = if now == at { spent + step } else { Duration::ZERO };
        at = now;
        let patience = match at.0 {
            Phase::Idle => idle_timeout,
            Phase::Command => header_timeout,
            Phase::Sending => send_timeout,
            // A store has a deadline of its own.
            Phase::Answering => continue,
        };
        if spent >= patience {
            return;
        }
    }
}

/// Waits until what was read is answered; the connection closes by itself after that.
async fn ended(progress: &Progress) {
    while matches!(progress.seen().0, Phase::Answering | Phase::Sending) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
