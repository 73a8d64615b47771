//! An admin API with its rule manager, limiter and violation log, and a client for it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value as Json;
use tempfile::TempDir;
use tidegate_admin::{AdminApi, AdminBody, AdminGuard, ObservabilityHandles};
use tidegate_api::http::{HttpApi, Settings};
use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, ManualClock, Timestamp};
use tidegate_limiter::{DecisionObserver, Limiter, NoFallback};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::diagnostic::DocumentError;
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_rulestore::{
    FileAccess, Repository, RuleCompiler, RuleConfig, RuleManager, RuleManagerDeps, RuleSink,
    SyncEvent, open,
};
use tidegate_telemetry::live_feed::LiveSource;
use tidegate_telemetry::{IdentityPolicy, MetricsExporter, TopKeys, ViolationLog};
use tidegate_web::{Peer, ProcessStatus};

type AdminFixtureStore = MemoryStore<ManualClock>;

/// The start of the clock: 2026-10-26T08:53:20.9Z, just before a full second.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_793_004_800_900_000);

pub(crate) const SECRET: Secret = Secret::UNSET;

/// An admin API and the parts behind it.
pub(crate) struct AdminFixture {
    admin: AdminApi<AdminFixtureStore, NoFallback>,
    pub(crate) manager: Arc<RuleManager>,
    pub(crate) limiter: Arc<Limiter<AdminFixtureStore>>,
    pub(crate) log: Arc<ViolationLog>,
    pub(crate) status: Arc<ProcessStatus>,
    pub(crate) clock: ManualClock,
    folder: TempDir,
}

/// A response of the admin API.
#[derive(Debug)]
pub(crate) struct AdminTestResponse {
    pub(crate) status: u16,
    pub(crate) head: http::HeaderMap,
    /// A JSON string if the body is not JSON.
    pub(crate) body: Json,
}

/// What a test can configure.
#[derive(Default)]
pub(crate) struct AdminFixtureOptions {
    pub(crate) guard: AdminGuard,
    pub(crate) plain: bool,
    pub(crate) repository: Option<Arc<dyn Repository>>,
}

struct TestRuleCompiler;

impl RuleCompiler for TestRuleCompiler {
    fn compile(&self, document: &str, _: FileAccess) -> Result<RuleSet, DocumentError> {
        RuleSet::compile(&Document::parse("rules", document)?, SECRET)
    }
}

/// Installs rules in the limiter.
struct TestLimiterSink(Arc<Limiter<AdminFixtureStore>>);

impl RuleSink for TestLimiterSink {
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>> {
        async { self.0.install(rules).await.map_err(|error| error.to_string()) }.boxed()
    }

    fn on_event(&self, event: &SyncEvent<'_>) {
        assert!(!matches!(event, SyncEvent::InstallFailed { .. }), "{event:?}");
    }
}

impl AdminFixture {
    /// Uses an empty SQLite file.
    pub(crate) async fn empty() -> Self {
        Self::build(AdminFixtureOptions::default()).await
    }

    /// Has these rules as version 1.
    pub(crate) async fn with_rules(document: &str) -> Self {
        let admin = Self::empty().await;
        admin.apply(document).await;
        admin
    }

    /// Uses the given repository.
    pub(crate) async fn with_repository(repository: Arc<dyn Repository>) -> Self {
        Self::build(AdminFixtureOptions {
            repository: Some(repository),
            ..AdminFixtureOptions::default()
        })
        .await
    }

    pub(crate) async fn build(options: AdminFixtureOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = ManualClock::new(START);
        let repository = match options.repository {
            Some(repository) => repository,
            None => {
                let url = format!("sqlite:{}", folder.path().join("rules.db").display());
                open(&url).await.expect("a repository")
            }
        };
        let wall_clock = clock.clone();
        let wall: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || wall_clock.now());
        let identities = IdentityPolicy { secret: SECRET, plain: options.plain };
        let log = Arc::new(ViolationLog::new(identities, Arc::clone(&wall)));
        let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
        let rules = TestRuleCompiler.compile("rules: []", FileAccess::None).expect("no rules");
        let limiter = Limiter::new(store, rules);
        let top = Arc::new(TopKeys::new(identities, Arc::clone(&wall)));
        let limiter = limiter
            .with_observer(Arc::clone(&log) as Arc<dyn DecisionObserver>)
            .with_observer(Arc::clone(&top) as Arc<dyn DecisionObserver>);
        let limiter = Arc::new(limiter);
        let deps = RuleManagerDeps {
            repository,
            compiler: Arc::new(TestRuleCompiler),
            sink: Arc::new(TestLimiterSink(Arc::clone(&limiter))),
            clock: wall,
            secret: SECRET,
            identities,
            node: "here".to_owned(),
            local_cache: None,
        };
        let manager = Arc::new(RuleManager::new(deps, RuleConfig::default()));
        let status = Arc::new(ProcessStatus::new());
        let decision_api =
            HttpApi::new(Arc::clone(&limiter), Arc::clone(&status), Settings::default());
        let exports = vec![Arc::clone(&log) as Arc<dyn MetricsExporter>];
        let live = Arc::new(log.live_broadcaster(
            vec![Arc::clone(&manager) as Arc<dyn LiveSource>],
            Arc::clone(&status),
        ));
        let regions = Arc::new(|| serde_json::Value::Null);
        let handles = ObservabilityHandles { log: Arc::clone(&log), top, exports, live, regions };
        let admin = AdminApi::new(Arc::clone(&manager), decision_api, options.guard, handles);
        Self { admin, manager, limiter, log, status, clock, folder }
    }

    /// The files of the database.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let list = std::fs::read_dir(self.folder.path()).expect("a folder");
        list.map(|entry| entry.expect("a file").path()).collect()
    }

    /// Sends a request from the loopback address.
    pub(crate) async fn send(
        &self,
        line: &str,
        headers: &[(&str, &str)],
        body: impl ToString,
    ) -> AdminTestResponse {
        self.send_from(Peer::Ip(std::net::Ipv4Addr::LOCALHOST.into()), line, headers, body).await
    }

    pub(crate) async fn send_from(
        &self,
        peer: Peer,
        line: &str,
        headers: &[(&str, &str)],
        body: impl ToString,
    ) -> AdminTestResponse {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "127.0.0.1:8084");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_string()));
        let request = request.body(body).expect("a request");
        let (head, body) = self.admin.handle(request, peer).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = || Json::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        AdminTestResponse { status: head.status.as_u16(), head: head.headers, body }
    }

    /// Subscribes to live events. Returns the status and the body, which may never end.
    pub(crate) async fn open_live_feed(&self) -> (u16, AdminBody) {
        let request = Request::get("/v1/live").header("host", "localhost");
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        let (head, body) = self.admin.handle(request, Peer::Unix).await.into_parts();
        (head.status.as_u16(), body)
    }

    /// Decides a request with a single fact.
    pub(crate) async fn decide(&self, fact: &str, value: &str) {
        self.limiter.decide(&[(fact, value)].into_iter().collect(), 1).await;
    }

    pub(crate) async fn get(&self, path: &str) -> AdminTestResponse {
        self.send(&format!("GET {path}"), &[], "").await
    }

    /// Replaces all rules with a document.
    pub(crate) async fn apply(&self, document: &str) -> AdminTestResponse {
        let seen = self.manager.config().version();
        let seen = if seen == 0 { vec![] } else { vec![("if-match", "*")] };
        self.send("PUT /v1/document", &seen, document).await.expect(200)
    }

    /// The remaining quota of each rule that applies to a request.
    pub(crate) async fn remaining(&self, facts: &[(&str, &str)]) -> Vec<(String, Option<u64>)> {
        let facts: Facts<'_> = facts.iter().copied().collect();
        let decision = self.limiter.peek(&facts, None, 1).await;
        let remaining = |numbers: tidegate_core::decision::Reading| numbers.remaining;
        decision
            .readings()
            .map(|(rule, read)| (rule.id().to_owned(), read.numbers.map(remaining)))
            .collect()
    }

    /// The stored configuration, which must be the active one, and the limiter's version and rules.
    pub(crate) async fn state(&self) -> (RuleConfig, u64, Vec<String>) {
        let config = self.manager.repository().load_config().await.expect("a config");
        assert_eq!(config, *self.manager.config(), "the stored configuration is active");
        let rules = self.limiter.rules();
        let ids = rules.rules().iter().map(|rule| rule.id().to_owned()).collect();
        (config, rules.version(), ids)
    }
}

impl AdminTestResponse {
    /// Asserts the status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// Asserts a problem+json response that names this field.
    #[track_caller]
    pub(crate) fn expect_problem(&self, status: u16, field: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.head["content-type"], "application/problem+json");
        assert_eq!((&self.body["status"], &self.body["field"]), (&status.into(), &field.into()));
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }

    pub(crate) fn etag(&self) -> &str {
        self.head["etag"].to_str().expect("text")
    }
}
