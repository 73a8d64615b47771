//! Runs the listeners, and closes them once in-flight requests are answered.

use std::sync::Arc;

use tidegate_api::resp;
use tidegate_core::store::Store;
use tidegate_net::listen::{self, BoundListener, HttpHandler, WorkerPool};
use tidegate_web::ProcessStatus;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::CommandError;

/// The kind of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenerKind {
    Gateway,
    Http,
    Grpc,
    Resp,
    Admin,
}

impl ListenerKind {
    /// Its name in flags, on stdout and in logs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Admin => "admin",
        }
    }

    /// The listener with this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Gateway, Self::Http, Self::Grpc, Self::Resp, Self::Admin];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// The listeners that are being served.
#[derive(Debug)]
pub(super) struct RunningListeners {
    status: Arc<ProcessStatus>,
    stop: CancellationToken,
    tasks: JoinSet<&'static str>,
    /// Kept alive for tasks that requests leave behind after their response.
    _worker_pools: Vec<WorkerPool>,
}

impl RunningListeners {
    /// Creates an empty set; `pools` are the worker threads of its connections and end with it.
    pub(super) fn new(status: Arc<ProcessStatus>, pools: Vec<WorkerPool>) -> Self {
        let (stop, tasks) = (CancellationToken::new(), JoinSet::new());
        Self { status, stop, tasks, _worker_pools: pools }
    }

    /// Starts serving HTTP on one more listener.
    pub(super) fn serve(
        &mut self,
        kind: ListenerKind,
        listener: BoundListener,
        handler: Arc<impl HttpHandler>,
        settings: listen::Settings,
    ) {
        let (status, stop) = (Arc::clone(&self.status), self.stop.clone());
        let stopped = stop.cancelled_owned();
        self.spawn(kind, listen::serve(listener, handler, settings, status, stopped));
    }

    /// Starts serving the Redis protocol on a listener.
    pub(super) fn serve_resp<S: Store + 'static, L: Store + 'static>(
        &mut self,
        listener: BoundListener,
        api: resp::RespApi<S, L>,
        settings: listen::Settings,
    ) {
        let (status, stop) = (Arc::clone(&self.status), self.stop.clone());
        let (api, stopped) = (Arc::new(api), stop.cancelled_owned());
        self.spawn(ListenerKind::Resp, resp::serve(listener, api, settings, status, stopped));
    }

    /// Runs a listener in a separate task.
    fn spawn(&mut self, kind: ListenerKind, serving: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            serving.await;
            kind.name()
        });
    }

    /// Completes with an error if a listener stops unexpectedly.
    pub(super) async fn wait_for_failure(&mut self) -> CommandError {
        let why = match self.tasks.join_next().await {
            Some(Ok(name)) => format!("the {name} listener stopped accepting connections"),
            Some(Err(error)) => format!("a listener failed: {error}"),
            None => "there are no listeners".to_owned(),
        };
        CommandError::Failed(why)
    }

    /// Stops accepting connections and waits until open ones are done, up to the drain timeout.
    pub(super) async fn close(&mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
