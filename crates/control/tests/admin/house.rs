//! An office with everything that it needs, and somebody who asks.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value as Json;
use tempfile::TempDir;
use tidegate_control::admin::{Admin, Guard, Outgoing, Telling};
use tidegate_control::live::Tells;
use tidegate_control::{
    Book, Compiles, Desk, Exports, Files, Identities, News, Office, Repository, Staff, Top,
    ViolationLog, open,
};
use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, ManualClock, Timestamp};
use tidegate_edge::http::{Door, Settings};
use tidegate_edge::{Peer, Status};
use tidegate_engine::{Limiter, NoLocal, Observer};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::problem::Problems;
use tidegate_rules::{Document, Facts, RuleSet};

type Memory = MemoryStore<ManualClock>;

/// When everything begins: 2026-10-26T08:53:20.9Z, just before a second is over.
pub(crate) const BEGIN: Timestamp = Timestamp::from_micros(1_793_004_800_900_000);

pub(crate) const SECRET: Secret = Secret::UNSET;

/// An office, its door and its counters.
pub(crate) struct House {
    admin: Admin<Memory, NoLocal>,
    pub(crate) office: Arc<Office>,
    pub(crate) limiter: Arc<Limiter<Memory>>,
    pub(crate) log: Arc<ViolationLog>,
    pub(crate) status: Arc<Status>,
    pub(crate) clock: ManualClock,
    folder: TempDir,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: http::HeaderMap,
    /// A text if it is no JSON.
    pub(crate) body: Json,
}

/// How a house is.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) guard: Guard,
    pub(crate) plain: bool,
    pub(crate) repository: Option<Arc<dyn Repository>>,
}

struct Compiler;

impl Compiles for Compiler {
    fn compile(&self, document: &str, _: Files) -> Result<RuleSet, Problems> {
        RuleSet::compile(&Document::parse("rules", document)?, SECRET)
    }
}

/// Rules come into force on the limiter.
struct Hall(Arc<Limiter<Memory>>);

impl Desk for Hall {
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>> {
        async { self.0.install(rules).await.map_err(|error| error.to_string()) }.boxed()
    }

    fn hear(&self, news: &News<'_>) {
        assert!(!matches!(news, News::Faulty { .. }), "{news:?}");
    }
}

impl House {
    /// An office on an empty file of SQLite.
    pub(crate) async fn empty() -> Self {
        Self::built(Plan::default()).await
    }

    /// One with these rules, as version 1.
    pub(crate) async fn with(document: &str) -> Self {
        let house = Self::empty().await;
        house.apply(document).await;
        house
    }

    /// One on a repository of the test's own.
    pub(crate) async fn on(repository: Arc<dyn Repository>) -> Self {
        Self::built(Plan { repository: Some(repository), ..Plan::default() }).await
    }

    pub(crate) async fn built(plan: Plan) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = ManualClock::new(BEGIN);
        let repository = match plan.repository {
            Some(repository) => repository,
            None => {
                let url = format!("sqlite:{}", folder.path().join("rules.db").display());
                open(&url).await.expect("a repository")
            }
        };
        let told = clock.clone();
        let wall: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || told.now());
        let identities = Identities { secret: SECRET, plain: plan.plain };
        let log = Arc::new(ViolationLog::new(identities, Arc::clone(&wall)));
        let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
        let rules = Compiler.compile("rules: []", Files::None).expect("no rules");
        let limiter = Limiter::new(store, rules);
        let top = Arc::new(Top::new(identities, Arc::clone(&wall)));
        let limiter = limiter
            .observed_by(Arc::clone(&log) as Arc<dyn Observer>)
            .observed_by(Arc::clone(&top) as Arc<dyn Observer>);
        let limiter = Arc::new(limiter);
        let staff = Staff {
            repository,
            compiler: Arc::new(Compiler),
            desk: Arc::new(Hall(Arc::clone(&limiter))),
            clock: wall,
            secret: SECRET,
            identities,
            node: "here".to_owned(),
            copy: None,
        };
        let office = Arc::new(Office::new(staff, Book::default()));
        let status = Arc::new(Status::new());
        let door = Door::new(Arc::clone(&limiter), Arc::clone(&status), Settings::default());
        let exports = vec![Arc::clone(&log) as Arc<dyn Exports>];
        let live =
            Arc::new(log.live(vec![Arc::clone(&office) as Arc<dyn Tells>], Arc::clone(&status)));
        let telling = Telling { log: Arc::clone(&log), top, exports, live };
        let admin = Admin::new(Arc::clone(&office), door, plan.guard, telling);
        Self { admin, office, limiter, log, status, clock, folder }
    }

    /// Where the files of the database are.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let list = std::fs::read_dir(self.folder.path()).expect("a folder");
        list.map(|entry| entry.expect("a file").path()).collect()
    }

    /// Asks as somebody on this machine does.
    pub(crate) async fn ask(
        &self,
        line: &str,
        headers: &[(&str, &str)],
        body: impl ToString,
    ) -> Answer {
        self.ask_from(Peer::Ip(std::net::Ipv4Addr::LOCALHOST.into()), line, headers, body).await
    }

    pub(crate) async fn ask_from(
        &self,
        peer: Peer,
        line: &str,
        headers: &[(&str, &str)],
        body: impl ToString,
    ) -> Answer {
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
        let (head, body) = self.admin.ask(request, peer).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = || Json::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Answer { status: head.status.as_u16(), head: head.headers, body }
    }

    /// Listens to what goes on: the status, and the body that may never end.
    pub(crate) async fn listen(&self) -> (u16, Outgoing) {
        let request = Request::get("/v1/live").header("host", "localhost");
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        let (head, body) = self.admin.ask(request, Peer::Unix).await.into_parts();
        (head.status.as_u16(), body)
    }

    /// Decides a request of which one fact is known.
    pub(crate) async fn check(&self, fact: &str, value: &str) {
        self.limiter.decide(&[(fact, value)].into_iter().collect(), 1).await;
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], "").await
    }

    /// Puts a document in place of what there is.
    pub(crate) async fn apply(&self, document: &str) -> Answer {
        let seen = self.office.book().version();
        let seen = if seen == 0 { vec![] } else { vec![("if-match", "*")] };
        self.ask("PUT /v1/document", &seen, document).await.expect(200)
    }

    /// What is left of each rule that governs a request.
    pub(crate) async fn left(&self, facts: &[(&str, &str)]) -> Vec<(String, Option<u64>)> {
        let facts: Facts<'_> = facts.iter().copied().collect();
        let decision = self.limiter.peek(&facts, None, 1).await;
        let told = |numbers: tidegate_core::decision::Reading| numbers.remaining;
        decision
            .readings()
            .map(|(rule, read)| (rule.id().to_owned(), read.numbers.map(told)))
            .collect()
    }

    /// Everything that is kept and in force, to be compared.
    pub(crate) async fn state(&self) -> (Book, u64, Vec<String>) {
        let book = self.office.repository().book().await.expect("a book");
        assert_eq!(book, *self.office.book(), "what is kept is in force");
        let rules = self.limiter.rules();
        let ids = rules.rules().iter().map(|rule| rule.id().to_owned()).collect();
        (book, rules.version(), ids)
    }
}

impl Answer {
    /// The same, if its status is this one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// A problem that blames this field.
    #[track_caller]
    pub(crate) fn blames(&self, status: u16, field: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.head["content-type"], "application/problem+json");
        assert_eq!((&self.body["status"], &self.body["field"]), (&status.into(), &field.into()));
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }

    pub(crate) fn etag(&self) -> &str {
        self.head["etag"].to_str().expect("text")
    }
}
