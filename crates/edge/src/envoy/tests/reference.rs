//! Imported configurations of the reference server beside a model of that server: random configurations, random
//! calls, a clock that moves. The same code and the same remaining for each descriptor.

mod model;
mod random;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use tidegate_core::key::Secret;
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_engine::{Limiter, NoLocal};
use tidegate_memory::MemoryStore;
use tidegate_rules::import::{Foreign, envoy_ratelimit};
use tidegate_rules::{Document, Door, Entry, RuleSet};

use super::super::answer::{Answer, Code};
use super::super::call::{Call, Descriptor};
use super::super::service::{ChargeMode, Decided, Service, Settings};
use model::{Said, Server};
use random::{Asked, Config, Domain};

/// `TIDEGATE_CASES`, as for other properties, or enough for each change.
fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000)
}

struct Imported {
    clock: ManualClock,
    service: Service<MemoryStore<ManualClock>, NoLocal>,
}

const START_SECS: u64 = 1_700_000_003;

fn import(config: &Config) -> Imported {
    let texts: Vec<String> = config.iter().map(Domain::yaml).collect();
    let files: Vec<_> = texts.iter().map(|text| Foreign { file: "config.yaml", text }).collect();
    let imported = envoy_ratelimit(&files).unwrap_or_else(|wrong| panic!("{}", wrong[0]));
    assert_eq!(imported.gaps, [], "everything has an equivalent");
    let document = Document::parse("imported.yaml", &imported.document).unwrap();
    let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(START_SECS * 1_000_000));
    let store = MemoryStore::with_shards(clock.clone(), 1 << 20, 2);
    let settings = Settings { charge: ChargeMode::Independent, headers: None };
    Imported {
        clock,
        service: Service::new(Arc::new(Limiter::new(store, rules)), settings, Door::Grpc),
    }
}

impl Imported {
    fn decide(&self, asked: &Asked) -> Decided {
        let entry = |(key, value): &(&'static str, &'static str)| Entry {
            key: (*key).into(),
            value: (*value).into(),
        };
        let descriptor = |(pairs, hits_addend): &(Vec<_>, _)| Descriptor {
            entries: pairs.iter().map(entry).collect(),
            hits_addend: *hits_addend,
            ..Descriptor::default()
        };
        let descriptors = asked.descriptors.iter().map(descriptor).collect();
        let domain = asked.domain.into();
        let call = Call { domain, descriptors, hits_addend: asked.hits_addend };
        let deciding = pin!(self.service.decide(&call));
        match deciding.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => decided.unwrap(),
            Poll::Pending => panic!("memory waits for nothing"),
        }
    }

    /// What each descriptor is told: whether it is over, the limit if one is told, and what is left.
    fn told(&self, asked: &Asked) -> Vec<(bool, Option<u32>, u32)> {
        let decided = self.decide(asked);
        let answer = Answer::of(&decided);
        let over = answer.statuses.iter().any(|status| status.code == Code::OverLimit);
        assert_eq!(over, answer.overall_code() == Code::OverLimit);
        let statuses = answer.statuses.iter().map(|status| {
            let limit = status.current_limit.map(|limit| limit.requests_per_unit);
            (status.code == Code::OverLimit, limit, status.limit_remaining)
        });
        statuses.collect()
    }
}

/// Whether what is told is what the reference server says, but for what docs/import.md says is different.
fn agrees(said: Said, told: (bool, Option<u32>, u32)) -> bool {
    match said {
        Said::Nothing => told == (false, None, 0),
        // An exemption from a wider limit is a rule without a limit here.
        Said::Exempt => told == (false, None, 0) || told == (false, None, u32::MAX),
        Said::Unlimited => told == (false, None, u32::MAX),
        // A rule in shadow is not told of.
        Said::Shadow => told == (false, None, 0),
        Said::Limited { over, limit, remaining } => told == (over, Some(limit), remaining),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn an_imported_configuration_decides_as_the_reference_server_does(
        config in random::config(),
        calls in prop::collection::vec((random::asked(), random::pause()), 1..40),
    ) {
        let (imported, mut server) = (import(&config), Server::new(&config));
        let mut now = Micros::from_secs(START_SECS);
        for (asked, pause) in calls {
            now = Micros::new(now.get() + pause.get());
            imported.clock.advance(pause);
            let said = server.answer(now.get() / 1_000_000, &asked);
            let told = imported.told(&asked);
            let agree = said.len() == told.len() && said.iter().zip(&told).all(|(s, t)| agrees(*s, *t));
            prop_assert!(agree, "{asked:?}\nthe server says {said:?}\nwe tell {told:?}");
        }
    }
}
