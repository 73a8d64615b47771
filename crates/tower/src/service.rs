//! The service around an inner one.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate::{CounterStore, MemoryStore};
use tower_service::Service;

use crate::body::RateLimitBody;
use crate::layer::LayerState;

/// A service whose requests are limited, from [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Handlers find the decision as an `Arc<tidegate::Decision>` in the extensions of the request. A
/// refusal has it in the extensions of the response.
///
/// ```
/// use std::sync::Arc;
///
/// use axum::Extension;
/// use tidegate::Decision;
///
/// async fn show_quota(Extension(decision): Extension<Arc<Decision>>) -> String {
///     format!("{:?} of {:?} requests left", decision.remaining(), decision.limit())
/// }
/// ```
pub struct RateLimit<I, S: CounterStore = MemoryStore> {
    pub(crate) inner: I,
    pub(crate) state: Arc<LayerState<S>>,
}

impl<I: Clone, S: CounterStore> Clone for RateLimit<I, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), state: Arc::clone(&self.state) }
    }
}

impl<I, S, B, R> Service<Request<B>> for RateLimit<I, S>
where
    I: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send,
    S: CounterStore,
    B: Body + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<RateLimitBody<R>>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone has not been polled ready, so this call takes the service that has.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let admitted = match state.admit(&head, body.size_hint().exact()).await {
                Ok(admitted) => admitted,
                Err(response) => return Ok(response.map(RateLimitBody::from_refusal)),
            };
            head.extensions.insert(Arc::clone(&admitted.decision));
            let response = inner.call(Request::from_parts(head, body)).await?;
            Ok(state.finish(admitted, response))
        })
    }
}
