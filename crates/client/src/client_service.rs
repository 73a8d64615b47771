//! The service: sends a call when its turn comes, learns from the response, and retries.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep_until, timeout_at};
use tower_service::Service;

use crate::body_clone::CloneBody;
use crate::call_deadline::CallDeadline;
use crate::client_error::ClientError;
use crate::client_layer::ClientSettings;
use crate::client_state::ClientState;
use crate::client_stats::ClientStats;
use crate::headers::CallOutcome;
use crate::host_budget::PendingCall;
use crate::retry::FailedCall;

/// How much of an unwanted response is read, so that its connection can be used again.
const MAX_DRAINED_BYTES: usize = 64 * 1024;

/// A client that paces and retries calls. See [`ClientLayer`](crate::ClientLayer).
///
/// It is always ready: a call waits in its future, not in `poll_ready`, so that calls to other
/// hosts do not wait for it.
///
/// ```
/// use std::convert::Infallible;
///
/// use http_body_util::Empty;
/// use tidegate_client::{ClientLayer, ClientService};
/// use tower::{Layer as _, ServiceExt as _, service_fn};
///
/// type Body = Empty<bytes::Bytes>;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let server = service_fn(|_: http::Request<Body>| async {
///     Ok::<_, Infallible>(http::Response::new(Body::new()))
/// });
/// let client: ClientService<_> = ClientLayer::new().layer(server);
/// let response = client.clone().oneshot(http::Request::new(Body::new())).await;
/// assert_eq!(response.map(|response| response.status().as_u16()).ok(), Some(200));
/// assert_eq!(client.stats().sent, 1);
/// # }
/// ```
#[derive(Clone)]
pub struct ClientService<S, C = crate::NoBodyClones> {
    inner: S,
    settings: Arc<ClientSettings>,
    state: Arc<ClientState>,
    cloner: C,
}

impl<S, C> ClientService<S, C> {
    pub(crate) fn new(
        inner: S,
        settings: Arc<ClientSettings>,
        state: Arc<ClientState>,
        cloner: C,
    ) -> Self {
        Self { inner, settings, state, cloner }
    }

    /// What the layer did so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.state.stats()
    }
}

impl<S, C, B, R> Service<Request<B>> for ClientService<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    C: CloneBody<B> + Clone + Send + 'static,
    B: Send + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
{
    type Response = Response<R>;
    type Error = ClientError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let client = Self {
            inner: self.inner.clone(),
            settings: Arc::clone(&self.settings),
            state: Arc::clone(&self.state),
            cloner: self.cloner.clone(),
        };
        Box::pin(client.send_with_retries(request))
    }
}

impl<S, C> ClientService<S, C> {
    async fn send_with_retries<B, R>(
        self,
        request: Request<B>,
    ) -> Result<Response<R>, ClientError<S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>>,
        C: CloneBody<B>,
        R: Body,
    {
        let Self { mut inner, settings, state, cloner } = self;
        let (parts, mut body) = request.into_parts();
        let budget = state.budget(&parts, &settings);
        let max_wait = settings.max_wait.unwrap_or(settings.ceiling);
        let deadline = CallDeadline::of_request(&parts, Instant::now(), max_wait);
        let call = PendingCall {
            cost: (settings.cost_function)(&parts),
            deadline,
            max_waiting: settings.max_waiting,
            quota: settings.quota.as_ref(),
            origin: state.origin,
        };
        budget.deposit_retry();
        let mut retries = 0;
        loop {
            let ticket = state.admit(&budget, call).await?;
            let copy = match settings.retry.has_retries_left(retries) {
                true => cloner.clone_body(&body),
                false => None,
            };
            let result =
                call_when_ready(&mut inner, Request::from_parts(parts.clone(), body)).await;
            let response = result.as_ref().ok();
            let hints = response.map(|response| state.observe(&budget, &ticket, response));
            let hints = hints.unwrap_or_default();
            let is_refused = hints.outcome != CallOutcome::Accepted;
            let status = response.map(Response::status);
            let failed = FailedCall::classify(&parts, status, is_refused, retries);
            let retry_at = failed.and_then(|failed| {
                state.plan_retry(&settings, &failed, &hints, deadline).filter(|_| copy.is_some())
            });
            let (Some(retry_at), Some(copy)) = (retry_at, copy) else {
                return result.map_err(ClientError::Service);
            };
            if !budget.has_turn(call) || !budget.withdraw_retry() {
                return result.map_err(ClientError::Service);
            }
            if let Ok(response) = result {
                // Reads the rest while it waits. A body that takes longer is given up.
                let _ = timeout_at(retry_at, drain_body(response.into_body())).await;
            }
            sleep_until(retry_at).await;
            state.counters.retried.increment();
            body = copy;
            retries += 1;
        }
    }
}

/// Sends a request once the service is ready.
pub(crate) async fn call_when_ready<S: Service<Q>, Q>(
    service: &mut S,
    request: Q,
) -> Result<S::Response, S::Error> {
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}

/// Reads and drops a body, so that its connection can be used again.
async fn drain_body<R: Body>(body: R) {
    let mut body = pin!(body);
    let mut drained = 0;
    while drained < MAX_DRAINED_BYTES
        && let Some(Ok(frame)) = body.frame().await
    {
        drained += frame.data_ref().map_or(0, Buf::remaining);
    }
}
