//! A future that is hardly ever ready, beside one that is polled all the time.
//!
//! A connection's task waits for the stop and looks for dawdlers besides speaking. To ask both at every request
//! is a good part of what a short one costs; so they are asked only when one of them has something to say.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::bell::Bell;

/// The same future, polled at first and then only after it has asked for it.
pub(crate) fn seldom<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let bell = Bell::new(true);
    let waker = Waker::from(Arc::clone(&bell));
    let (mut future, mut heard) = (Box::pin(future), None::<Waker>);
    poll_fn(move |cx| {
        // Heard first and looked at then, so that nothing is missed in between. It is the same task every time.
        if !heard.as_ref().is_some_and(|heard| heard.will_wake(cx.waker())) {
            bell.hear(cx.waker());
            heard = Some(cx.waker().clone());
        }
        match bell.was_rung() {
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
    fn it_is_asked_when_it_has_something_to_say_and_else_not() {
        let (notify, asked) = (Notify::new(), AtomicUsize::new(0));
        let mut inner = pin!(notify.notified());
        let mut outer = pin!(seldom(poll_fn(|cx| {
            asked.fetch_add(1, Relaxed);
            inner.as_mut().poll(cx)
        })));
        let bell = Bell::new(false);
        let waker = Waker::from(Arc::clone(&bell));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..3 {
            assert!(outer.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(asked.load(Relaxed), 1);
        assert!(!bell.was_rung());
        notify.notify_one();
        assert!(bell.was_rung(), "the task is woken");
        assert!(outer.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let notify = Notify::new();
        let mut outer = pin!(seldom(notify.notified()));
        let bells = [Bell::new(false), Bell::new(false)];
        for bell in &bells {
            let waker = Waker::from(Arc::clone(bell));
            assert!(outer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        notify.notify_one();
        assert_eq!(bells.map(|bell| bell.was_rung()), [false, true]);
    }
}
