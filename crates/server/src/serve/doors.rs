//! Serving at doors that are open, and closing them when all requests under way are answered.

use std::sync::Arc;

use tidegate_core::store::Store;
use tidegate_edge::Status;
use tidegate_edge::listen::{self, Answers, Crew, Listener};
use tidegate_edge::resp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// A door by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gateway,
    Http,
    Grpc,
    Resp,
    Admin,
}

impl Kind {
    /// The name of its flag, and of its line on stdout.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Admin => "admin",
        }
    }

    /// The door of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Gateway, Self::Http, Self::Grpc, Self::Resp, Self::Admin];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// The doors at which requests are served.
#[derive(Debug)]
pub(super) struct Doors {
    status: Arc<Status>,
    stop: CancellationToken,
    serving: JoinSet<&'static str>,
    /// Kept for what requests leave to be done when they are answered.
    _crews: Vec<Crew>,
}

impl Doors {
    /// Doors whose connections are on these threads, which end with them.
    pub(super) fn new(status: Arc<Status>, crews: Vec<Crew>) -> Self {
        let (stop, serving) = (CancellationToken::new(), JoinSet::new());
        Self { status, stop, serving, _crews: crews }
    }

    /// Serves at one more door that speaks HTTP.
    pub(super) fn serve(
        &mut self,
        kind: Kind,
        listener: Listener,
        door: Arc<impl Answers>,
        settings: listen::Settings,
    ) {
        let (status, stop) = (Arc::clone(&self.status), self.stop.clone());
        let stopped = stop.cancelled_owned();
        self.spawn(kind, listen::serve(listener, door, settings, status, stopped));
    }

    /// Serves at the door that speaks the Redis protocol.
    pub(super) fn serve_resp<S: Store + 'static, L: Store + 'static>(
        &mut self,
        listener: Listener,
        door: resp::Door<S, L>,
        settings: listen::Settings,
    ) {
        let (status, stop) = (Arc::clone(&self.status), self.stop.clone());
        let (door, stopped) = (Arc::new(door), stop.cancelled_owned());
        self.spawn(Kind::Resp, resp::serve(listener, door, settings, status, stopped));
    }

    /// Each door has a task of its own.
    fn spawn(&mut self, kind: Kind, serving: impl Future<Output = ()> + Send + 'static) {
        self.serving.spawn(async move {
            serving.await;
            kind.name()
        });
    }

    /// Waits for what should not happen: that a door closes by itself.
    pub(super) async fn ended(&mut self) -> Failure {
        let why = match self.serving.join_next().await {
            Some(Ok(door)) => format!("the listener {door} stopped accepting"),
            Some(Err(error)) => format!("a listener closed by itself: {error}"),
            None => "there is no listener".to_owned(),
        };
        Failure::CouldNot(why)
    }

    /// Accepts nobody any more and waits until everybody inside is served, for as long as the
    /// doors' settings say.
    pub(super) async fn close(&mut self) {
        self.stop.cancel();
        while self.serving.join_next().await.is_some() {}
    }
}
