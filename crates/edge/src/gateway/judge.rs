//! What is decided of a request, before anything of it is sent.

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tidegate_core::store::Store;
use tidegate_engine::{Decision, Turn};
use tidegate_rules::{Door, Facts, Rule};

use super::Gateway;
use super::access::Line;
use super::aftermath::Aftermath;
use super::passed::GatewayBody;
use crate::extract::{Client, ReadHeaders};
use crate::listen::Caller;
use crate::problem::Problem;
use crate::respond::{self, Notice};
use crate::trace::{self, Serving};

const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");

/// What was decided of a request. What is large in it is boxed: it is handed on at every step.
pub(super) enum Judged {
    Admitted(Admitted),
    /// It is admitted, and is to wait its turn.
    Queued(Box<Decision>, Turn, Asker),
    /// The answer to it.
    Refused(Box<Response<GatewayBody>>),
}

/// The client, and the headers that the rules read to know it.
pub(super) struct Asker {
    pub(super) client: Client,
    pub(super) read: Arc<ReadHeaders>,
}

/// What is left of a decision by which a request passes.
pub(super) struct Admitted {
    pub(super) asker: Asker,
    pub(super) aftermath: Option<Box<Aftermath>>,
    pub(super) notice: Option<Notice>,
    /// What was charged, where that may be given back.
    pub(super) charged: Option<Box<Decision>>,
}

impl<S: Store + 'static, L: Store + 'static> Gateway<S, L> {
    /// Decides a request, by what is known of its client.
    pub(super) async fn judge(
        &self,
        head: &Parts,
        length: Option<u64>,
        caller: &Caller,
        line: Option<&mut Line>,
        serving: Option<&Serving>,
    ) -> Result<Judged, Problem> {
        let rules = self.limiter.rules();
        let extractor = self.extractors.of(&rules)?;
        let client = extractor.client(head, caller.peer);
        let trusted = client.peer_is_trusted;
        self.proxy_watch.see(caller.peer, trusted, &head.headers, rules.serial());
        if let Some(line) = line {
            line.client(client.ip);
        }
        let mut facts = Facts::new();
        facts.set_door(Door::Gateway);
        extractor.tell(head, head.uri.path(), client, &mut facts)?;
        let cost = |rule: &Rule| {
            let values =
                |name: &str| head.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            rule.cost().of_request(values, length)
        };
        let deciding = serving.and_then(Serving::decides);
        let decision = pin!(self.limiter.decide_under(Arc::clone(&rules), &facts, cost)).await;
        trace::decided(deciding, slice::from_ref(&decision));
        if !decision.is_allowed() {
            let random = self.headers.draw(&decision, &facts);
            return Ok(Judged::Refused(Box::new(self.refusal(&decision, random, head))));
        }
        let asker = Asker { client, read: Arc::clone(extractor.read_headers()) };
        Ok(match decision.turn() {
            Some(turn) => Judged::Queued(Box::new(decision), turn, asker),
            None => Judged::Admitted(self.admit(decision, asker)),
        })
    }

    #[inline]
    pub(super) fn admit(&self, mut decision: Decision, asker: Asker) -> Admitted {
        let aftermath = Aftermath::of(&self.limiter, &mut decision);
        let notice = Notice::of(&decision, &self.headers);
        let charged = self.refund_unreachable.then(|| Box::new(decision));
        Admitted { asker, aftermath, notice, charged }
    }

    fn refusal(&self, decision: &Decision, random: u64, head: &Parts) -> Response<GatewayBody> {
        let mut response = respond::refusal(decision, &head.headers, &self.headers, random);
        if self.headers.expose && head.headers.contains_key(ORIGIN) {
            // The upstream, which knows its origins, is not asked; a refusal is no secret.
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
        }
        response.map(GatewayBody::Own)
    }
}

/// What a future gives that is ready when first polled.
pub(super) fn at_once<T>(future: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(given) => given,
        Poll::Pending => {
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the store did not answer at once"))
        }
    }
}
