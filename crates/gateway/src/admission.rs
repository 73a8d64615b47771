//! Decides whether a request is admitted, before any of it is forwarded.

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tidegate_core::store::Store;
use tidegate_limiter::{Decision, QueueDelay};
use tidegate_rules::{ApiKind, Facts, Rule};

use super::Gateway;
use super::access_log::AccessLogEntry;
use super::consistent_hash::RoutingKey;
use super::forward::RouteTarget;
use super::response_body::GatewayBody;
use tidegate_identity::{ResolvedClient, RuleInputHeaders};
use tidegate_net::listen::ConnectionInfo;
use tidegate_response as respond;
use tidegate_response::{PendingHeaders, RequestCompletion};
use tidegate_telemetry::trace::{self, ServerSpan};
use tidegate_web::problem::HttpError;

const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");

/// The decision about a request. Large parts are boxed, because every step moves the value.
pub(super) enum AdmissionOutcome {
    Admitted(AdmittedRequest),
    /// Admitted, but it must wait in a delay queue.
    Queued(Box<Decision>, QueueDelay, IdentifiedClient),
    /// Refused, with the response.
    Refused(Box<Response<GatewayBody>>),
}

/// The client, and the headers from which the rules identified it.
pub(super) struct IdentifiedClient {
    pub(super) client: ResolvedClient,
    pub(super) rule_headers: Arc<RuleInputHeaders>,
    /// Selects the server, if the upstream hashes.
    pub(super) routing_key: Option<RoutingKey>,
}

/// What the gateway needs to forward an admitted request and to finish it.
pub(super) struct AdmittedRequest {
    pub(super) identity: IdentifiedClient,
    pub(super) completion: Option<Box<RequestCompletion>>,
    pub(super) pending_headers: Option<PendingHeaders>,
    /// The charges, if they are refunded when no server can be reached.
    pub(super) refundable: Option<Box<Decision>>,
}

impl<S: Store + 'static, L: Store + 'static> Gateway<S, L> {
    /// Extracts the facts of a request and asks the limiter for a decision.
    pub(super) async fn decide_request(
        &self,
        head: &Parts,
        target: &RouteTarget,
        length: Option<u64>,
        connection: &ConnectionInfo,
        mut log_entry: Option<&mut AccessLogEntry>,
        span: Option<&ServerSpan>,
    ) -> Result<AdmissionOutcome, HttpError> {
        let rules = self.limiter.rules();
        let extractor = self.extractors.get_or_create(&rules)?;
        let client = extractor.resolve_client(head, connection.peer);
        let trusted = client.peer_is_trusted;
        self.proxy_detector.observe(connection.peer, trusted, &head.headers, rules.serial());
        if let Some(log_entry) = &mut log_entry {
            log_entry.set_client(&rules, client.ip);
        }
        let mut facts = Facts::new();
        facts.set_api(ApiKind::Gateway);
        extractor.extract_into(head, head.uri.path(), client, &mut facts)?;
        if let Some(log_entry) = log_entry {
            log_entry.set_endpoint(&rules, &facts);
        }
        let cost = |rule: &Rule| {
            let values =
                |name: &str| head.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            rule.cost().request_cost(values, length)
        };
        let decision_span = span.and_then(ServerSpan::start_decision);
        let decision = pin!(self.limiter.decide_with_rules(Arc::clone(&rules), &facts, cost)).await;
        trace::finish_decision(decision_span, slice::from_ref(&decision));
        if !decision.is_allowed() {
            let random = self.headers.jitter_seed(&decision, &facts);
            return Ok(AdmissionOutcome::Refused(Box::new(
                self.refusal_response(&decision, random, head),
            )));
        }
        let identified = IdentifiedClient {
            client,
            rule_headers: Arc::clone(extractor.input_headers()),
            routing_key: target.routing_key(&rules, &facts, &head.headers),
        };
        Ok(match decision.queue_delay() {
            Some(delay) => AdmissionOutcome::Queued(Box::new(decision), delay, identified),
            None => AdmissionOutcome::Admitted(self.admit(decision, identified)),
        })
    }

    #[inline]
    pub(super) fn admit(
        &self,
        mut decision: Decision,
        identified: IdentifiedClient,
    ) -> AdmittedRequest {
        let completion = RequestCompletion::start(&self.limiter, &mut decision);
        let pending_headers = PendingHeaders::from_decision(&decision, &self.headers);
        let refundable = self.refund_unreachable.then(|| Box::new(decision));
        AdmittedRequest { identity: identified, completion, pending_headers, refundable }
    }

    fn refusal_response(
        &self,
        decision: &Decision,
        random: u64,
        head: &Parts,
    ) -> Response<GatewayBody> {
        let mut response =
            respond::refusal_response(decision, &head.headers, &self.headers, random);
        if self.headers.expose && head.headers.contains_key(ORIGIN) {
            // The upstream, which knows the allowed origins, does not see this request. A refusal
            // contains nothing secret, so any origin may read it.
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
        }
        response.map(GatewayBody::Local)
    }
}

/// Polls a future once and returns its output; the future must be ready at the first poll.
pub(super) fn poll_immediate<T>(
    future: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => Err(HttpError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal error: the store did not complete immediately",
        )),
    }
}
