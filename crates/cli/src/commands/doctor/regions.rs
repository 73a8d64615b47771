//! Checks the stores of other regions: their servers, their markers, and whether they are near
//! enough for the rules that borrow.

use std::time::Duration;

use tidegate_core::key::Secret;
use tidegate_redis::{FindingSeverity, RedisOptions, RedisStore, StoreDiagnosis, StoreFinding};
use tidegate_rules::{Rule, RuleSet};
use tidegate_server::config::{RedisSettings, RegionStoreSettings};
use tidegate_server::regions::{MarkerProblem, compare_markers, region_marker, rule_notices};
use tidegate_server::store;

use super::lending::RegionDistance;

/// How long to wait for a connection, and for replies: what matters here is how long they take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the regions of a node are checked for.
pub(super) struct RegionExaminer<'a> {
    /// The node's region.
    pub(super) region: Option<&'a str>,
    pub(super) secret: Secret,
    /// The rules of the document, if one was given.
    pub(super) rules: Option<&'a RuleSet>,
    /// The stores of other regions.
    pub(super) stores: &'a [RegionStoreSettings],
}

impl RegionExaminer<'_> {
    /// Checks the rules and the marker of the node's own store.
    pub(super) async fn examine_own(&self, own: &RedisSettings) -> Vec<StoreFinding> {
        let Some(region) = self.region else { return Vec::new() };
        let stores: Vec<&str> = self.stores.iter().map(|store| store.region.as_str()).collect();
        let notices = self.rules.map(|rules| rule_notices(rules, &stores)).unwrap_or_default();
        let mut findings: Vec<StoreFinding> = notices
            .into_iter()
            .map(|notice| StoreFinding {
                severity: FindingSeverity::Warning,
                server: String::new(),
                what: notice.what,
                advice: notice.advice,
            })
            .collect();
        // Perhaps no node of this region has been started yet.
        let problem = self.marker_problem(region, own).await;
        if let Some(problem) = problem.filter(|problem| *problem != MarkerProblem::Missing) {
            findings.push(StoreFinding {
                severity: FindingSeverity::Error,
                server: String::new(),
                what: format!("by its marker, --store is not that of region {region}: {problem}"),
                advice: problem.advice().to_owned(),
            });
        }
        findings
    }

    /// Checks the store of another region.
    pub(super) async fn examine(&self, store: &RegionStoreSettings) -> StoreDiagnosis {
        let region = &store.region;
        let options = RedisOptions { deadline: PATIENCE, ..store::options(&store.redis) };
        let mut diagnosis = tidegate_redis::diagnose(&options).await;
        for found in &mut diagnosis.findings {
            if found.advice.contains("--store") {
                found.advice = format!(
                    "correct --region-store {region}=URL, or `region_stores` if it needs a \
                     password or certificates"
                );
            }
        }
        if let Some(distance) = RegionDistance::measured(region, &diagnosis.servers) {
            diagnosis.findings.extend(self.marker_finding(store).await);
            diagnosis.findings.extend(self.distance_finding(&distance));
        }
        for found in &mut diagnosis.findings {
            found.server = match found.server.is_empty() {
                true => format!("region {region}"),
                false => format!("region {region}, {}", found.server),
            };
        }
        diagnosis
    }

    async fn marker_finding(&self, store: &RegionStoreSettings) -> Option<StoreFinding> {
        let problem = self.marker_problem(&store.region, &store.redis).await?;
        let severity = match problem {
            MarkerProblem::Missing => FindingSeverity::Warning,
            _ => FindingSeverity::Error,
        };
        let advice = problem.advice().to_owned();
        let what = format!("nothing is borrowed from it: {problem}");
        Some(StoreFinding { severity, server: String::new(), what, advice })
    }

    /// What is wrong with the marker of a store that should belong to `region`.
    async fn marker_problem(&self, region: &str, redis: &RedisSettings) -> Option<MarkerProblem> {
        let options =
            RedisOptions { deadline: PATIENCE, heartbeat: false, ..store::options(redis) };
        let store = RedisStore::start(&options);
        store.wait_ready(PATIENCE).await;
        let found = store.read_region_marker().await.ok()?;
        compare_markers(&region_marker(region, self.secret), found)
    }

    /// Warns if units that are borrowed arrive too late to be of much use.
    fn distance_finding(&self, distance: &RegionDistance) -> Option<StoreFinding> {
        let RegionDistance { region, round_trip } = distance;
        let has_share = |rule: &&Rule| {
            rule.regional().is_some_and(|regional| regional.shares().share(region).is_some())
        };
        let late = self.rules?.rules().iter().filter(has_share).find_map(|rule| {
            let terms = rule.regional()?.shares().borrow_terms()?;
            let needed = *round_trip + Duration::from(terms.every);
            (needed > Duration::from(terms.ttl) / 2).then_some((rule, terms, needed))
        });
        let (rule, terms, needed) = late?;
        Some(StoreFinding {
            severity: FindingSeverity::Warning,
            server: String::new(),
            what: format!(
                "round trip and `every` take {} ms, more than half of the `borrow` ttl of rule {}, \
                 {}: a part of what other regions leave stays unused",
                needed.as_millis(),
                rule.id(),
                terms.ttl
            ),
            advice: format!("`borrow: {{ ttl: {}ms }}` or longer", 2 * needed.as_millis()),
        })
    }
}
