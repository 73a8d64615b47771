//! Decides whether a request is admitted, and settles its charges with the response.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, request, response};
use http_body_util::Full;
use tidegate::{CounterStore, Decision, Facts, Rule, RuleSet};
use tidegate_core::store::complete_now;
use tidegate_identity::{canonicalize_value, path};
use tidegate_limiter::DeferredCharge;
use tidegate_response::{PendingHeaders, RequestCompletion, refusal_response};
use tidegate_rules::CostSource;
use tidegate_web::problem::HttpError;
use tidegate_web::{Peer, http_response};

use crate::body::RateLimitBody;
use crate::error::LayerError;
use crate::layer::LayerState;
use crate::peer_address::PeerAddress;

/// The path of a request without one, such as `OPTIONS *`.
const NO_PATH: &str = "/";

const MISSING_PEER: &str = "tidegate-tower does not know the address of the connection. With axum, \
    enable its feature `axum` and serve with \
    `app.into_make_service_with_connect_info::<SocketAddr>()`. With tonic, enable its feature \
    `tonic`. Otherwise, add `request.extensions_mut().insert(PeerAddress::from(address))`.";

/// A request that the limiter admitted.
pub(crate) struct AdmittedRequest {
    pub(crate) decision: Arc<Decision>,
    /// Charges that the response may refund.
    conditional: Option<DeferredCharge>,
    completion: Option<Box<RequestCompletion>>,
    pending_headers: Option<PendingHeaders>,
}

/// A response that the layer makes itself. Boxed, because it is rare and large.
type OwnResponse = Box<Response<Full<Bytes>>>;

impl<S: CounterStore> LayerState<S> {
    /// Admits a request, or returns the response that refuses it.
    pub(crate) async fn admit(
        &self,
        head: &request::Parts,
        length: Option<u64>,
    ) -> Result<AdmittedRequest, Response<Full<Bytes>>> {
        // Keeps the large future of a decision out of the request's future.
        let decided = match S::IMMEDIATE {
            true => complete_now(pin!(self.decide(head, length))),
            false => Box::pin(self.decide(head, length)).await,
        };
        let mut decision = decided.map_err(|response| *response)?;
        if let Some(delay) = decision.queue_delay() {
            let queued = Box::pin(self.delay_queue.wait(self.limiter.engine(), decision, delay));
            decision = queued.await.map_err(|problem| *own_response(&problem))?;
        }
        let completion = RequestCompletion::start(self.limiter.engine(), &mut decision);
        if let (Some(completion), Some(length)) = (&completion, length) {
            // The sum is open, so this cannot fail. The request is charged for its declared length.
            _ = completion.forwarded_bytes().add(length);
        }
        let conditional = match self.refund_conditions.is_empty() {
            true => None,
            false => decision.take_charge(|_| true),
        };
        let pending_headers = PendingHeaders::from_decision(&decision, &self.headers);
        Ok(AdmittedRequest {
            decision: Arc::new(decision),
            conditional,
            completion,
            pending_headers,
        })
    }

    async fn decide(
        &self,
        head: &request::Parts,
        length: Option<u64>,
    ) -> Result<Decision, OwnResponse> {
        let problem = |error: HttpError| own_response(&error);
        let bad = |detail: String| own_response(&HttpError::new(StatusCode::BAD_REQUEST, detail));
        let rules = self.limiter.rules();
        self.check_reloaded_rules(&rules);
        let extractor = self.extractors.get_or_create(&rules).map_err(problem)?;
        let client = extractor.resolve_client(head, self.find_peer(head).map_err(problem)?);
        let path = match head.uri.path() {
            "" | "*" => Cow::Borrowed(NO_PATH),
            path => path::canonical(path).map_err(|why| bad(why.to_string()))?,
        };
        let mut facts = Facts::new();
        let extracted = extractor.extract_into(head, &path, client, &mut facts);
        extracted.map_err(|why| problem(why.into()))?;
        // HTTP/2 requests name their host in the target.
        if let (None, Some(authority)) = (facts.get("host"), head.uri.authority()) {
            let host = canonicalize_value("host", authority.as_str().into());
            facts.push("host", host.map_err(|why| bad(why.to_string()))?);
        }
        if let Some(source) = &self.fact_source {
            source(head, &mut facts);
        }
        let cost = |rule: &Rule| {
            let values =
                |name: &str| head.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            rule.cost().request_cost(values, length)
        };
        let engine = self.limiter.engine();
        let decision = engine.decide_with_rules(Arc::clone(&rules), &facts, cost).await;
        self.limiter.sweep_after(&decision);
        if !decision.is_allowed() {
            let random = self.headers.jitter_seed(&decision, &facts);
            let mut response = refusal_response(&decision, &head.headers, &self.headers, random);
            response.extensions_mut().insert(Arc::new(decision));
            return Err(Box::new(response));
        }
        if length.is_none() && decision.readings().any(|(rule, _)| is_charged_by_body(rule)) {
            engine.refund_decision(decision).await;
            let detail = "the limit counts bytes, so the request must declare its Content-Length";
            return Err(problem(HttpError::new(StatusCode::LENGTH_REQUIRED, detail)));
        }
        Ok(decision)
    }

    /// Settles the charges that depend on the response, and adds the headers.
    pub(crate) fn finish<R>(
        &self,
        admitted: AdmittedRequest,
        response: Response<R>,
    ) -> Response<RateLimitBody<R>> {
        let AdmittedRequest { decision, conditional, mut completion, pending_headers } = admitted;
        let (mut head, body) = response.into_parts();
        if let Some(completion) = &mut completion {
            completion.record_response_headers(&head.headers);
            let refunded = decision.readings().map(|(rule, _)| rule);
            let refunded = refunded.filter(|rule| self.is_refunded(rule, &head));
            completion.refund_rules(refunded.map(|rule| rule.id().to_owned()).collect());
        }
        if let Some(charge) = conditional {
            self.settle(charge, &head);
        }
        if let Some(pending_headers) = pending_headers {
            pending_headers.write(&self.headers, &mut head.headers);
        }
        Response::from_parts(head, RateLimitBody::from_inner(body, completion))
    }

    /// Refunds the charges whose condition the response meets. A store that has to be waited for is
    /// called in a task, so that the client need not wait for it.
    fn settle(&self, charge: DeferredCharge, response: &response::Parts) {
        let refunded: Vec<String> = charge
            .rules()
            .filter(|rule| self.is_refunded(rule, response))
            .map(|rule| rule.id().to_owned())
            .collect();
        if refunded.is_empty() {
            return;
        }
        let engine = Arc::clone(self.limiter.engine());
        let settle = async move {
            let cost = |rule: &Rule| refunded.iter().any(|id| id == rule.id()).then_some(0);
            engine.settle_deferred(charge, cost).await;
        };
        match S::IMMEDIATE {
            true => complete_now(pin!(settle)),
            false => _ = tokio::spawn(settle),
        }
    }

    fn is_refunded(&self, rule: &Rule, response: &response::Parts) -> bool {
        self.refund_conditions.iter().any(|condition| condition(rule, response))
    }

    /// Logs once if rules that were loaded later use facts that no request has.
    fn check_reloaded_rules(&self, rules: &RuleSet) {
        let serial = rules.serial();
        if self.checked_rules.load(Relaxed) != serial
            && self.checked_rules.swap(serial, Relaxed) != serial
            && let Err(error) = LayerError::check_facts(rules)
        {
            tracing::warn!("the new rules are active, but {error}");
        }
    }

    /// The other end of the connection. Without it, all clients would share one key.
    fn find_peer(&self, head: &request::Parts) -> Result<Peer, HttpError> {
        let from_source = self.peer_source.as_ref().and_then(|source| source(&head.extensions));
        let found = from_source.or_else(|| PeerAddress::find(&head.extensions));
        found.map(PeerAddress::peer).ok_or_else(|| {
            if !self.reported_missing_peer.swap(true, Relaxed) {
                tracing::error!("{MISSING_PEER}");
            }
            HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, MISSING_PEER)
        })
    }
}

fn own_response(error: &HttpError) -> OwnResponse {
    Box::new(http_response::problem(error))
}

fn is_charged_by_body(rule: &Rule) -> bool {
    matches!(rule.cost(), CostSource::Body { .. })
}
