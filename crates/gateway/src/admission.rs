//! What is decided of a request, before anything of it is sent.

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
use super::completion::RequestCompletion;
use super::response_body::GatewayBody;
use tidegate_identity::{ResolvedClient, RuleInputHeaders};
use tidegate_net::listen::ConnectionInfo;
use tidegate_response as respond;
use tidegate_response::PendingHeaders;
use tidegate_telemetry::trace::{self, ServerSpan};
use tidegate_web::problem::HttpError;

const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");

/// What was decided of a request. What is large in it is boxed: it is handed on at every step.
pub(super) enum AdmissionOutcome {
    Admitted(AdmittedRequest),
    /// It is admitted, and is to wait its turn.
    Queued(Box<Decision>, QueueDelay, IdentifiedClient),
    /// The answer to it.
    Refused(Box<Response<GatewayBody>>),
}

/// The client, and the headers that the rules read to know it.
pub(super) struct IdentifiedClient {
    pub(super) client: ResolvedClient,
    pub(super) rule_headers: Arc<RuleInputHeaders>,
}

/// What is left of a decision by which a request passes.
pub(super) struct AdmittedRequest {
    pub(super) identity: IdentifiedClient,
    pub(super) completion: Option<Box<RequestCompletion>>,
    pub(super) pending_headers: Option<PendingHeaders>,
    /// What was charged, where that may be given back.
    pub(super) refundable: Option<Box<Decision>>,
}

impl<S: Store + 'static, L: Store + 'static> Gateway<S, L> {
    /// Decides a request, by what is known of its client.
    pub(super) async fn decide_request(
        &self,
        head: &Parts,
        length: Option<u64>,
        caller: &ConnectionInfo,
        mut line: Option<&mut AccessLogEntry>,
        serving: Option<&ServerSpan>,
    ) -> Result<AdmissionOutcome, HttpError> {
        let rules = self.limiter.rules();
        let extractor = self.extractors.get_or_create(&rules)?;
        let client = extractor.resolve_client(head, caller.peer);
        let trusted = client.peer_is_trusted;
        self.proxy_detector.observe(caller.peer, trusted, &head.headers, rules.serial());
        if let Some(line) = &mut line {
            line.set_client(&rules, client.ip);
        }
        let mut facts = Facts::new();
        facts.set_api(ApiKind::Gateway);
        extractor.extract_into(head, head.uri.path(), client, &mut facts)?;
        if let Some(line) = line {
            line.set_endpoint(&rules, &facts);
        }
        let cost = |rule: &Rule| {
            let values =
                |name: &str| head.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            rule.cost().request_cost(values, length)
        };
        let deciding = serving.and_then(ServerSpan::start_decision);
        let decision = pin!(self.limiter.decide_with_rules(Arc::clone(&rules), &facts, cost)).await;
        trace::finish_decision(deciding, slice::from_ref(&decision));
        if !decision.is_allowed() {
            let random = self.headers.jitter_seed(&decision, &facts);
            return Ok(AdmissionOutcome::Refused(Box::new(
                self.refusal_response(&decision, random, head),
            )));
        }
        let asker =
            IdentifiedClient { client, rule_headers: Arc::clone(extractor.input_headers()) };
        Ok(match decision.queue_delay() {
            Some(turn) => AdmissionOutcome::Queued(Box::new(decision), turn, asker),
            None => AdmissionOutcome::Admitted(self.admit(decision, asker)),
        })
    }

    #[inline]
    pub(super) fn admit(&self, mut decision: Decision, asker: IdentifiedClient) -> AdmittedRequest {
        let aftermath = RequestCompletion::start(&self.limiter, &mut decision);
        let notice = PendingHeaders::from_decision(&decision, &self.headers);
        let charged = self.refund_unreachable.then(|| Box::new(decision));
        AdmittedRequest {
            identity: asker,
            completion: aftermath,
            pending_headers: notice,
            refundable: charged,
        }
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
            // The upstream, which knows its origins, is not asked; a refusal is no secret.
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
        }
        response.map(GatewayBody::Local)
    }
}

/// What a future gives that is ready when first polled.
pub(super) fn poll_immediate<T>(
    future: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(given) => given,
        Poll::Pending => Err(HttpError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the store did not answer at once",
        )),
    }
}
