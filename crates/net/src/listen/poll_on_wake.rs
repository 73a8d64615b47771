//! Polls a rarely ready future next to one that is polled all the time.
//!
//! A connection's task also waits for shutdown and for the idle watchdog. Polling both on every
//! request is a measurable part of a short request, so they are polled only after their own waker
//! fired.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::wake_slot::WakeSlot;

/// Wraps a future so that it is polled once at first, and then only after it was woken.
pub fn poll_on_wake<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let slot = WakeSlot::new(true);
    let waker = Waker::from(Arc::clone(&slot));
    let (mut future, mut registered) = (Box::pin(future), None::<Waker>);
    poll_fn(move |cx| {
        // Register first, then check, so that no wake-up is missed. The task is almost always the
        // same.
        if !registered.as_ref().is_some_and(|registered| registered.will_wake(cx.waker())) {
            slot.register(cx.waker());
            registered = Some(cx.waker().clone());
        }
        match slot.take_woken() {
            true => future.as_mut().poll(&mut Context::from_waker(&waker)),
            false => Poll::Pending,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn future_is_polled_only_after_wake() {
        let (notify, polls) = (Notify::new(), AtomicUsize::new(0));
        let mut inner = pin!(notify.notified());
        let mut outer = pin!(poll_on_wake(poll_fn(|cx| {
            polls.fetch_add(1, Relaxed);
            inner.as_mut().poll(cx)
        })));
        let slot = WakeSlot::new(false);
        let waker = Waker::from(Arc::clone(&slot));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..3 {
            assert!(outer.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(polls.load(Relaxed), 1);
        assert!(!slot.take_woken());
        notify.notify_one();
        assert!(slot.take_woken(), "the task is woken");
        assert!(outer.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn last_polling_task_is_woken() {
        let notify = Notify::new();
        let mut outer = pin!(poll_on_wake(notify.notified()));
        let slots = [WakeSlot::new(false), WakeSlot::new(false)];
        for slot in &slots {
            let waker = Waker::from(Arc::clone(slot));
            assert!(outer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        notify.notify_one();
        assert_eq!(slots.map(|slot| slot.take_woken()), [false, true]);
    }
}
