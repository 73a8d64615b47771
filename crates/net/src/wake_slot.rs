//! A waker for a future that may be polled by different tasks over time.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

thread_local! {
    static WAKES_SUPPRESSED: Cell<bool> = const { Cell::new(false) };
}

/// Wakes the most recently registered task and remembers that it was woken.
#[derive(Debug)]
pub struct WakeSlot {
    woken: AtomicBool,
    task: Mutex<Waker>,
}

impl WakeSlot {
    /// A slot with no registered task. `woken` sets the initial state of the flag.
    pub fn new(woken: bool) -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(woken), task: Mutex::new(Waker::noop().clone()) })
    }

    /// Registers the task to wake from now on, replacing the previous one.
    pub fn register(&self, waker: &Waker) {
        self.task.lock().clone_from(waker);
    }

    /// Returns whether the slot was woken since the last call, and clears the flag.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.load(Acquire) && self.woken.swap(false, Acquire)
    }
}

impl Wake for WakeSlot {
    fn wake(self: Arc<Self>) {
        if WAKES_SUPPRESSED.get() {
            return;
        }
        self.woken.store(true, Release);
        let task = self.task.lock().clone();
        task.wake();
    }
}

/// Runs `act` and ignores every wake-up of a [`WakeSlot`] that it causes on this thread. For
/// callers that poll afterwards anyway. Wake-ups from other threads are not suppressed.
pub fn suppress_wakes<T>(act: impl FnOnce() -> T) -> T {
    let _guard = SuppressWakesGuard::new();
    act()
}

/// Ends the suppression when dropped, also on a panic.
struct SuppressWakesGuard;

impl SuppressWakesGuard {
    fn new() -> Self {
        WAKES_SUPPRESSED.set(true);
        Self
    }
}

impl Drop for SuppressWakesGuard {
    fn drop(&mut self) {
        WAKES_SUPPRESSED.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn last_registered_task_is_woken() {
        let (slot, tasks) = (WakeSlot::new(false), [WakeSlot::new(false), WakeSlot::new(false)]);
        Arc::clone(&slot).wake();
        for task in &tasks {
            slot.register(&Waker::from(Arc::clone(task)));
        }
        Arc::clone(&slot).wake();
        assert_eq!(tasks.map(|task| task.take_woken()), [false, true]);
        assert_eq!([slot.take_woken(), slot.take_woken()], [true, false]);
    }

    #[test]
    fn suppression_covers_only_current_thread() {
        let slot = WakeSlot::new(false);
        let wake = || Arc::clone(&slot).wake();
        suppress_wakes(wake);
        assert!(!slot.take_woken());
        suppress_wakes(|| thread::scope(|scope| scope.spawn(wake).join().unwrap()));
        assert!(slot.take_woken(), "another thread woke it");
        let panicked = catch_unwind(AssertUnwindSafe(|| suppress_wakes(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        wake();
        assert!(slot.take_woken());
    }
}
