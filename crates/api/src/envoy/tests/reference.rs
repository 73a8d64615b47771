//! Compares imported reference server configurations with a model of that server: random
//! configurations, random requests, and a clock that advances. Both must return the same code and
//! the same remaining quota for each descriptor.

mod generators;
mod model;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use tidegate_core::key::Secret;
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_limiter::{Limiter, NoFallback};
use tidegate_memory::MemoryStore;
use tidegate_rules::import::{ForeignFile, envoy_ratelimit};
use tidegate_rules::{ApiKind, DescriptorPair, Document, RuleSet};

use super::super::request::{EnvoyDescriptor, EnvoyRequest};
use super::super::response::{EnvoyResponse, RateLimitCode};
use super::super::service::{ChargeMode, EnvoyDecisions, RateLimitService, Settings};
use generators::{Config, GeneratedDomain, GeneratedRequest};
use model::{EnvoyReferenceServer, EnvoyReferenceStatus};

/// Number of cases: `TIDEGATE_CASES` as for other property tests, or a default for each change.
fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000)
}

struct ImportedService {
    clock: ManualClock,
    service: RateLimitService<MemoryStore<ManualClock>, NoFallback>,
}

const START_SECS: u64 = 1_700_000_003;

fn import_config(config: &Config) -> ImportedService {
    let texts: Vec<String> = config.iter().map(GeneratedDomain::yaml).collect();
    let files: Vec<_> =
        texts.iter().map(|text| ForeignFile { file: "config.yaml", text }).collect();
    let imported = envoy_ratelimit(&files).unwrap_or_else(|wrong| panic!("{}", wrong[0]));
    assert_eq!(imported.unsupported, [], "everything has an equivalent");
    let document = Document::parse("imported.yaml", &imported.document).unwrap();
    let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(START_SECS * 1_000_000));
    let store = MemoryStore::with_shards(clock.clone(), 1 << 20, 2);
    let settings = Settings { charge: ChargeMode::Independent, headers: None };
    ImportedService {
        clock,
        service: RateLimitService::new(
            Arc::new(Limiter::new(store, rules)),
            settings,
            ApiKind::Grpc,
        ),
    }
}

impl ImportedService {
    fn decide(&self, request: &GeneratedRequest) -> EnvoyDecisions {
        let entry = |(key, value): &(&'static str, &'static str)| DescriptorPair {
            key: (*key).into(),
            value: (*value).into(),
        };
        let descriptor = |(pairs, hits_addend): &(Vec<_>, _)| EnvoyDescriptor {
            entries: pairs.iter().map(entry).collect(),
            hits_addend: *hits_addend,
            ..EnvoyDescriptor::default()
        };
        let descriptors = request.descriptors.iter().map(descriptor).collect();
        let domain = request.domain.into();
        let call = EnvoyRequest { domain, descriptors, hits_addend: request.hits_addend };
        let deciding = pin!(self.service.decide(&call));
        match deciding.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => decided.unwrap(),
            Poll::Pending => panic!("the memory store never waits"),
        }
    }

    /// Status of each descriptor: whether it is over the limit, the limit if reported, and the
    /// remaining quota.
    fn statuses(&self, request: &GeneratedRequest) -> Vec<(bool, Option<u32>, u32)> {
        let decided = self.decide(request);
        let answer = EnvoyResponse::from_decisions(&decided);
        let over = answer.statuses.iter().any(|status| status.code == RateLimitCode::OverLimit);
        assert_eq!(over, answer.overall_code() == RateLimitCode::OverLimit);
        let statuses = answer.statuses.iter().map(|status| {
            let limit = status.current_limit.map(|limit| limit.requests_per_unit);
            (status.code == RateLimitCode::OverLimit, limit, status.limit_remaining)
        });
        statuses.collect()
    }
}

/// Returns whether our status equals the reference server's, except for the differences that
/// docs/import.md lists.
fn matches_reference(expected: EnvoyReferenceStatus, actual: (bool, Option<u32>, u32)) -> bool {
    match expected {
        EnvoyReferenceStatus::Nothing => actual == (false, None, 0),
        // Here, an exemption from a wider limit is a rule without a limit.
        EnvoyReferenceStatus::Exempt => {
            actual == (false, None, 0) || actual == (false, None, u32::MAX)
        }
        EnvoyReferenceStatus::Unlimited => actual == (false, None, u32::MAX),
        // Rules in shadow mode are not reported.
        EnvoyReferenceStatus::Shadow => actual == (false, None, 0),
        EnvoyReferenceStatus::Limited { over, limit, remaining } => {
            actual == (over, Some(limit), remaining)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn imported_config_decides_like_reference_server(
        config in generators::config(),
        calls in prop::collection::vec((generators::request(), generators::pause()), 1..40),
    ) {
        let (imported, mut server) = (import_config(&config), EnvoyReferenceServer::new(&config));
        let mut now = Micros::from_secs(START_SECS);
        for (request, pause) in calls {
            now = Micros::new(now.get() + pause.get());
            imported.clock.advance(pause);
            let expected = server.decide(now.get() / 1_000_000, &request);
            let actual = imported.statuses(&request);
            let agree = expected.len() == actual.len()
                && expected.iter().zip(&actual).all(|(e, a)| matches_reference(*e, *a));
            prop_assert!(agree, "{request:?}\nreference: {expected:?}\nours: {actual:?}");
        }
    }
}
