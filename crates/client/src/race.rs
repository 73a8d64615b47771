//! Waits for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The output of the first future to complete.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RaceWinner<A, B> {
    First(A),
    Second(B),
}

/// Completes with the first of two futures; with `first` if both are ready.
pub(crate) async fn race<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> RaceWinner<A, B> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|context| {
        if let Poll::Ready(output) = first.as_mut().poll(context) {
            return Poll::Ready(RaceWinner::First(output));
        }
        second.as_mut().poll(context).map(RaceWinner::Second)
    })
    .await
}
