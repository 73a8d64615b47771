//! Wakes a task on behalf of something that it polls, which may change hands.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

thread_local! {
    static MUFFLED: Cell<bool> = const { Cell::new(false) };
}

/// Wakes the task that heard last, and remembers that it was asked to.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    task: Mutex<Waker>,
}

impl Bell {
    /// One that nobody hears yet, rung or not.
    pub(crate) fn new(rung: bool) -> Arc<Self> {
        Arc::new(Self { rung: AtomicBool::new(rung), task: Mutex::new(Waker::noop().clone()) })
    }

    /// Has this task woken from now on.
    pub(crate) fn hear(&self, waker: &Waker) {
        self.task.lock().clone_from(waker);
    }

    /// Whether it was rung since the last look.
    pub(crate) fn was_rung(&self) -> bool {
        self.rung.load(Acquire) && self.rung.swap(false, Acquire)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if MUFFLED.get() {
            return;
        }
        self.rung.store(true, Release);
        let task = self.task.lock().clone();
        task.wake();
    }
}

/// Does something that may ring bells, none of which is heard: for who looks afterwards anyway. Only what is done here
/// is muffled, not what others do meanwhile.
pub(crate) fn muffled<T>(act: impl FnOnce() -> T) -> T {
    let _until_done = Muffle::begin();
    act()
}

/// Also where it panics.
struct Muffle;

impl Muffle {
    fn begin() -> Self {
        MUFFLED.set(true);
        Self
    }
}

impl Drop for Muffle {
    fn drop(&mut self) {
        MUFFLED.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn whoever_heard_last_is_woken() {
        let (bell, tasks) = (Bell::new(false), [Bell::new(false), Bell::new(false)]);
        Arc::clone(&bell).wake();
        for task in &tasks {
            bell.hear(&Waker::from(Arc::clone(task)));
        }
        Arc::clone(&bell).wake();
        assert_eq!(tasks.map(|task| task.was_rung()), [false, true]);
        assert_eq!([bell.was_rung(), bell.was_rung()], [true, false]);
    }

    #[test]
    fn what_is_muffled_is_what_this_thread_does_meanwhile() {
        let bell = Bell::new(false);
        let ring = || Arc::clone(&bell).wake();
        muffled(ring);
        assert!(!bell.was_rung());
        muffled(|| thread::scope(|scope| scope.spawn(ring).join().unwrap()));
        assert!(bell.was_rung(), "somebody else rang it");
        let panicked = catch_unwind(AssertUnwindSafe(|| muffled(|| panic!("as it is told to"))));
        assert!(panicked.is_err());
        ring();
        assert!(bell.was_rung());
    }
}
