//! Decides a call: its descriptors together, or each by itself as the reference server does.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use http::header::HeaderMap;
use smallvec::SmallVec;
use tidegate_core::decision::Retry;
use tidegate_core::store::Store;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_engine::{Decision, Limiter, Question, Unanswered};
use tidegate_rules::{Door, Facts};

use super::call::Call;
use super::facts::facts;
use super::unit::Unit;
use crate::respond::{self, HeaderSettings, HeaderStyle};

/// How calls are decided and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What a refusal of one descriptor means to the others.
    pub charge: ChargeMode,
    /// The headers that Envoy is asked to add for the client; none if it is to add none.
    pub headers: Option<HeaderSettings>,
}

/// What a refusal of one descriptor means to the others of its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargeMode {
    /// None is charged.
    #[default]
    Together,
    /// Each is decided and charged by itself, as the reference server does.
    Independent,
}

impl Default for Settings {
    /// Only `Retry-After` is added, and only to refusals: other headers may be the upstream's or Envoy's own.
    fn default() -> Self {
        let headers = HeaderSettings { style: HeaderStyle::None, ..HeaderSettings::default() };
        Self { charge: ChargeMode::default(), headers: Some(headers) }
    }
}

/// The service on a limiter.
pub(crate) struct Service<S, L> {
    limiter: Arc<Limiter<S, L>>,
    settings: Settings,
    /// Where it is asked.
    door: Door,
}

/// A call that was decided.
#[derive(Debug)]
pub(crate) struct Decided {
    /// One for each descriptor.
    pub(super) decisions: Vec<Decision>,
    pub(super) headers: HeaderMap,
    /// The descriptors that bring a limit of 0.
    pub(super) shut: Vec<Shut>,
}

/// A descriptor that brings a limit of 0. Nothing is counted, so no decision has a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shut {
    pub(super) at: usize,
    pub(super) unit: Unit,
    /// The store's clock, if it could be read.
    pub(super) now: Option<Timestamp>,
}

impl Decided {
    /// One for each descriptor.
    pub(crate) fn decisions(&self) -> &[Decision] {
        &self.decisions
    }
}

impl<S: Store, L: Store> Service<S, L> {
    pub(crate) const fn new(limiter: Arc<Limiter<S, L>>, settings: Settings, door: Door) -> Self {
        Self { limiter, settings, door }
    }

    /// Decides a call that was checked.
    pub(crate) async fn decide(&self, call: &Call<'_>) -> Result<Decided, Unanswered> {
        let known: SmallVec<[Facts<'_>; 1]> =
            call.descriptors.iter().map(|told| facts(&call.domain, told, self.door)).collect();
        let asked = call.descriptors.iter().zip(&known);
        let questions: SmallVec<[Question<'_, '_>; 1]> = asked
            .map(|(descriptor, facts)| Question {
                facts,
                asked: descriptor.asked(call),
                limit: descriptor.brought(),
            })
            .collect();
        let decisions = match self.settings.charge {
            ChargeMode::Together => self.limiter.decide_together(&questions).await?,
            ChargeMode::Independent => Box::pin(self.decide_each(&questions)).await?,
        };
        let headers = self.headers(&decisions, &known);
        Ok(Decided { shut: self.shut(call, &decisions).await, decisions, headers })
    }

    async fn shut(&self, call: &Call<'_>, decisions: &[Decision]) -> Vec<Shut> {
        let told = call.descriptors.iter().zip(decisions).enumerate();
        let refused = told.filter(|(_, (_, decision))| !decision.is_allowed());
        let mut shut: Vec<Shut> = refused
            .filter_map(|(at, (descriptor, _))| {
                Some(Shut { at, unit: descriptor.shut()?, now: None })
            })
            .collect();
        if !shut.is_empty() {
            let now = Box::pin(self.limiter.now()).await.ok();
            shut.iter_mut().for_each(|shut| shut.now = now);
        }
        shut
    }

    /// Gives back what a call charged that nobody waits for any more.
    pub(crate) async fn give_back(&self, decided: Decided) {
        self.limiter.give_back_all(decided.decisions).await;
    }

    /// All at the same time: a store that is elsewhere takes them in one trip.
    async fn decide_each(
        &self,
        questions: &[Question<'_, '_>],
    ) -> Result<Vec<Decision>, Unanswered> {
        let each = self.limiter.decide_each(questions);
        let mut decisions = Vec::with_capacity(questions.len());
        let mut answered = Ok(());
        for answer in join_all(each).await {
            match answer {
                Ok(decision) => decisions.extend(decision),
                Err(unanswered) => answered = Err(unanswered),
            }
        }
        match answered {
            Ok(()) => Ok(decisions),
            Err(unanswered) => {
                self.limiter.give_back_all(decisions).await;
                Err(unanswered)
            }
        }
    }

    /// The headers of the decision that counts most.
    fn headers(&self, decisions: &[Decision], known: &[Facts<'_>]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let most = decisions.iter().zip(known).min_by_key(|(decision, _)| rank(decision));
        if let (Some(settings), Some((decision, facts))) = (&self.settings.headers, most) {
            let random = settings.draw(decision, facts);
            respond::headers(decision, settings, random, &mut headers);
        }
        headers
    }
}

/// The order in which decisions count: refusals first, by how long to wait, then by what is left.
fn rank(decision: &Decision) -> (bool, Reverse<(bool, Micros)>, u64) {
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

impl<S, L> fmt::Debug for Service<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("settings", &self.settings).finish_non_exhaustive()
    }
}
