//! A task that lives as long as its owner.

use std::future::Future;

use tokio::task::JoinHandle;

/// Ends the task when it is dropped.
#[derive(Debug)]
pub(crate) struct Keeper(JoinHandle<()>);

impl Keeper {
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    /// Ends the task.
    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}
