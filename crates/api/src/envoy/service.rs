//! Decides a request: all its descriptors together, or each separately as the reference server
//! does.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use http::header::HeaderMap;
use smallvec::SmallVec;
use tidegate_core::decision::Retry;
use tidegate_core::store::Store;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_limiter::{Decision, DecisionQuery, Limiter, StoreUnavailableError};
use tidegate_rules::{ApiKind, Facts};

use super::descriptor_facts::facts_from_descriptor;
use super::request::EnvoyRequest;
use super::response::zero_limit_window;
use tidegate_response as respond;
use tidegate_response::{HeaderSettings, HeaderStyle};

/// How requests are decided and which headers responses carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How a refused descriptor affects the others of its request.
    pub charge: ChargeMode,
    /// Headers that Envoy adds to the client's response; `None` adds no headers.
    pub headers: Option<HeaderSettings>,
}

/// How a refused descriptor affects the others of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargeMode {
    /// No descriptor is charged.
    #[default]
    Together,
    /// Each descriptor is decided and charged separately, as the reference server does.
    Independent,
}

impl Default for Settings {
    /// Adds only `Retry-After`, and only to refusals: the upstream or Envoy may set other headers.
    fn default() -> Self {
        let headers = HeaderSettings { style: HeaderStyle::None, ..HeaderSettings::default() };
        Self { charge: ChargeMode::default(), headers: Some(headers) }
    }
}

/// The rate limit service, backed by a limiter.
pub(crate) struct RateLimitService<S, L> {
    limiter: Arc<Limiter<S, L>>,
    settings: Settings,
    /// The API through which requests arrive; rules can match on it.
    api: ApiKind,
}

/// The decisions for one request.
#[derive(Debug)]
pub(crate) struct EnvoyDecisions {
    /// One per descriptor.
    pub(super) decisions: Vec<Decision>,
    pub(super) headers: HeaderMap,
    /// The store's time if a limit of 0 refused a descriptor: it has no counter, so its decision
    /// has no time.
    pub(super) now: Option<Timestamp>,
}

impl EnvoyDecisions {
    /// One per descriptor.
    pub(crate) fn decisions(&self) -> &[Decision] {
        &self.decisions
    }
}

impl<S: Store, L: Store> RateLimitService<S, L> {
    pub(crate) const fn new(limiter: Arc<Limiter<S, L>>, settings: Settings, api: ApiKind) -> Self {
        Self { limiter, settings, api }
    }

    /// Decides a validated request.
    pub(crate) async fn decide(
        &self,
        call: &EnvoyRequest<'_>,
    ) -> Result<EnvoyDecisions, StoreUnavailableError> {
        let descriptor_facts: SmallVec<[Facts<'_>; 1]> = call
            .descriptors
            .iter()
            .map(|descriptor| facts_from_descriptor(&call.domain, descriptor, self.api))
            .collect();
        let with_facts = call.descriptors.iter().zip(&descriptor_facts);
        let queries: SmallVec<[DecisionQuery<'_, '_>; 1]> = with_facts
            .map(|(descriptor, facts)| DecisionQuery {
                facts,
                action: descriptor.requested_action(call),
                inline_limit: descriptor.inline_limit(),
            })
            .collect();
        let decisions = match self.settings.charge {
            ChargeMode::Together => self.limiter.decide_batch(&queries).await?,
            ChargeMode::Independent => Box::pin(self.decide_each(&queries)).await?,
        };
        let headers = self.response_headers(&decisions, &descriptor_facts);
        Ok(EnvoyDecisions { now: self.time_of_zero_limits(&decisions).await, decisions, headers })
    }

    /// The store's time, or `None` if no limit of 0 needs it or if it could not be read.
    async fn time_of_zero_limits(&self, decisions: &[Decision]) -> Option<Timestamp> {
        let mut deciding = decisions.iter().filter_map(Decision::tightest);
        let any = deciding.any(|(rule, _)| zero_limit_window(rule.limit()).is_some());
        if any { Box::pin(self.limiter.now()).await.ok() } else { None }
    }

    /// Refunds what a cancelled request was charged.
    pub(crate) async fn refund(&self, decisions: EnvoyDecisions) {
        self.limiter.refund_decisions(decisions.decisions).await;
    }

    /// Decides all queries concurrently, so a remote store can answer them in one round trip.
    async fn decide_each(
        &self,
        queries: &[DecisionQuery<'_, '_>],
    ) -> Result<Vec<Decision>, StoreUnavailableError> {
        let each = self.limiter.decide_separately(queries);
        let mut decisions = Vec::with_capacity(queries.len());
        let mut outcome = Ok(());
        for result in join_all(each).await {
            match result {
                Ok(decision) => decisions.extend(decision),
                Err(error) => outcome = Err(error),
            }
        }
        match outcome {
            Ok(()) => Ok(decisions),
            Err(error) => {
                self.limiter.refund_decisions(decisions).await;
                Err(error)
            }
        }
    }

    /// Headers for the decision that matters most to the client.
    fn response_headers(&self, decisions: &[Decision], facts: &[Facts<'_>]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let decisive =
            decisions.iter().zip(facts).min_by_key(|(decision, _)| decision_priority(decision));
        if let (Some(settings), Some((decision, facts))) = (&self.settings.headers, decisive) {
            let random = settings.jitter_seed(decision, facts);
            respond::write_headers(decision, settings, random, &mut headers);
        }
        headers
    }
}

/// Sort key of decisions: refusals first, longest wait first; then by remaining quota.
fn decision_priority(decision: &Decision) -> (bool, Reverse<(bool, Micros)>, u64) {
    let tightest = decision.tightest();
    let wait = match tightest.map(|(_, reading)| reading.retry()) {
        Some(Retry::After(wait)) => (false, wait),
        Some(Retry::Never) => (true, Micros::ZERO),
        Some(Retry::Now) | None => (false, Micros::ZERO),
    };
    let left = tightest.and_then(|(_, reading)| reading.numbers);
    let left = left.map_or(u64::MAX, |numbers| numbers.remaining);
    match decision.is_allowed() {
        true => (true, Reverse((false, Micros::ZERO)), left),
        false => (false, Reverse(wait), left),
    }
}

impl<S, L> fmt::Debug for RateLimitService<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitService").field("settings", &self.settings).finish_non_exhaustive()
    }
}
