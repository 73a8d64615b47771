//! The admin API: rules, subjects, overrides, versions and violations over HTTP.
//!
//! Whoever asks is admitted first (`guard`), then the path and method say what is asked (`route`). Every
//! change goes through the [`Office`], so it is checked as a whole, written as one version and in force when
//! the answer is sent. What concerns counters is answered as the HTTP door does. The dashboard is a page of files
//! that uses this API like everybody else.

mod body;
mod compare;
mod confirm;
mod document;
pub mod guard;
mod openapi;
mod outgoing;
mod overrides;
mod precondition;
mod query;
mod reply;
mod route;
mod rules;
mod subjects;
mod top;
mod versions;
mod violations;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use serde_json::{Value as Json, json};
use tidegate_core::store::Store;
use tidegate_edge::http::Door;
use tidegate_edge::http::body as http_body;
use tidegate_edge::listen::{Answers, Caller};
use tidegate_edge::problem::Problem;
use tidegate_edge::{Peer, Status, answer, bearer};

use crate::live::{Crowded, Live, MOST_LISTENERS};
use crate::log::ViolationLog;
use crate::metrics::{Exports, Exposition};
use crate::office::{By, Office};
use crate::top::{Sight, Top};
pub use confirm::{CONFIRM, EMPTY};
use guard::Access;
pub use guard::Guard;
pub use outgoing::Outgoing;
use reply::Reply;
use route::{Call, Route};

/// The longest body: a rules document.
const MAX_BODY_BYTES: usize = 4 << 20;

/// How long a caller may take to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Who makes a change.
pub const AUTHOR: HeaderName = HeaderName::from_static("x-tidegate-author");
/// Why.
pub const REASON: HeaderName = HeaderName::from_static("x-tidegate-reason");

/// The longest name of an author, and the longest reason.
const MAX_SAID: usize = 500;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// Answers whoever administers rules.
pub struct Admin<S, L> {
    office: Arc<Office>,
    log: Arc<ViolationLog>,
    top: Arc<Top>,
    /// What concerns counters.
    door: Door<S, L>,
    guard: Guard,
    exports: Vec<Arc<dyn Exports>>,
    live: Arc<Live>,
}

/// What is told besides what is in the office.
#[derive(Clone)]
pub struct Telling {
    /// What was refused.
    pub log: Arc<ViolationLog>,
    /// Who asks most.
    pub top: Arc<Top>,
    /// What `/metrics` tells.
    pub exports: Vec<Arc<dyn Exports>>,
    /// What `/v1/live` tells.
    pub live: Arc<Live>,
}

impl<S: Store, L: Store> Admin<S, L> {
    /// The API of an office and of what there is to tell, beside a door that answers what concerns counters.
    #[must_use]
    pub fn new(office: Arc<Office>, door: Door<S, L>, guard: Guard, telling: Telling) -> Self {
        let Telling { log, top, exports, live } = telling;
        Self { office, log, top, door, guard, exports, live }
    }

    /// Answers one request of a caller at an address. It always answers.
    pub async fn ask<B>(&self, request: Request<B>, caller: Peer) -> Response<Outgoing>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut response = match self.admit(request, caller).await {
            Ok(response) => response,
            Err(problem) => answer::problem(&problem),
        };
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        response.headers_mut().insert(NO_SNIFF.0, NO_SNIFF.1);
        response
    }

    async fn admit<B>(
        &self,
        request: Request<B>,
        caller: Peer,
    ) -> Result<Response<Outgoing>, Problem>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (mut head, body) = request.into_parts();
        let route = Route::of(&head.method, &head.uri)?;
        if let Err(refusal) = self.guard.admit(&head, route.access(), caller) {
            return Ok(refusal.into_response().map(Outgoing::from));
        }
        let sight = match self.guard.admit(&head, Access::Read, caller) {
            Ok(()) => Sight::Clear,
            // Whoever brings a token that is wrong should hear of it.
            Err(refusal) if route.shows_identities() && bearer(&head.headers).is_some() => {
                return Ok(refusal.into_response().map(Outgoing::from));
            }
            Err(_) => Sight::Hashed,
        };
        let call = match route {
            Route::Counters(_) | Route::Probe => {
                // Whoever is admitted here is not asked again.
                head.headers.remove(ORIGIN);
                let answered = self.door.ask(Request::from_parts(head, body), Peer::Unix).await;
                return Ok(answered.map(Outgoing::from));
            }
            Route::Page(file) => return Ok(file.response().map(Outgoing::from)),
            Route::Live => return self.listen(),
            Route::Call(call) => call,
            Route::WrongMethod { allow } => {
                return Ok(reply::wrong_method(allow).map(Outgoing::from));
            }
        };
        let body = match http_body::read(body, MAX_BODY_BYTES, BODY_TIMEOUT).await {
            Ok(body) => body,
            Err(unread) => return Ok(unread.into_response().map(Outgoing::from)),
        };
        let asked = Asked {
            office: &self.office,
            log: &self.log,
            top: &self.top,
            exports: &self.exports,
            status: self.door.status(),
            sight,
            head: &head,
            body: &body,
        };
        let answered = asked.answer(call).await.map(Reply::into_response);
        answered.map(|response| response.map(Outgoing::from))
    }

    /// What goes on from now on.
    fn listen(&self) -> Result<Response<Outgoing>, Problem> {
        let feed = self.live.listen().map_err(|Crowded| {
            let detail = format!(
                "{MOST_LISTENERS} listen already, which is as many as may; close a dashboard somewhere, or read \
                 /metrics"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        let mut response = Response::new(Outgoing::Live(feed));
        let events = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(CONTENT_TYPE, events);
        Ok(response)
    }
}

/// A request of somebody who is admitted.
struct Asked<'a> {
    office: &'a Office,
    log: &'a ViolationLog,
    top: &'a Top,
    exports: &'a [Arc<dyn Exports>],
    status: &'a Status,
    /// What they see of others.
    sight: Sight,
    head: &'a Parts,
    body: &'a Bytes,
}

impl Asked<'_> {
    async fn answer(&self, call: Call) -> Result<Reply, Problem> {
        // Before the body is looked at: no other body would help.
        if call.access() == Access::Write {
            self.office.check_editable()?;
        }
        match call {
            Call::OpenApi => Ok(Reply::verbatim(openapi::DOCUMENT)),
            Call::Metrics => Ok(self.metrics()),
            Call::Status => self.status().await,
            Call::Compare => self.compare(),
            Call::Rules => self.rules(),
            Call::CreateRule => self.create_rule().await,
            Call::Rule(id) => self.rule(&id),
            Call::PutRule(id) => self.put_rule(&id).await,
            Call::PatchRule(id) => self.patch_rule(&id).await,
            Call::DeleteRule(id) => self.delete_rule(&id).await,
            Call::SwitchRule { id, active } => self.switch_rule(&id, active).await,
            Call::Document => self.document(),
            Call::ApplyDocument => self.apply().await,
            Call::Validate => self.validate().await,
            Call::Subjects => self.subjects(),
            Call::PutSubject => self.put_subject().await,
            Call::Subject(id) => self.subject(&id),
            Call::DeleteSubject(id) => self.delete_subject(&id).await,
            Call::Overrides => self.overrides(),
            Call::PutOverrides => self.put_overrides().await,
            Call::Override(id) => self.one_override(&id),
            Call::DeleteOverride(id) => self.delete_override(&id).await,
            Call::Versions => self.versions().await,
            Call::Version(number) => self.version(number).await,
            Call::Rollback(number) => self.rollback(number).await,
            Call::Violations => self.violations().await,
            Call::TopViolations => self.top_violations().await,
            Call::Top => self.top(),
            Call::Bursts => self.bursts(),
        }
    }

    /// Everything that is counted, in the format that is asked for.
    fn metrics(&self) -> Reply {
        let accept = self.head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        let mut page = Exposition::new(open);
        self.exports.iter().for_each(|exports| exports.export(&mut page));
        let media_type = match open {
            true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            false => "text/plain; version=0.0.4; charset=utf-8",
        };
        Reply::text(media_type, page.finish())
    }

    async fn status(&self) -> Result<Reply, Problem> {
        let (book, head) = (self.office.book(), self.office.repository().head().await);
        let (latest, trouble) = match head {
            Ok(head) => (Some(head), None),
            Err(refused) => (None, Some(refused.to_string())),
        };
        Ok(Reply::ok(&json!({
            "version": book.version(),
            "latest": latest,
            "database": self.office.repository().name(),
            "database_error": trouble,
            "process": self.status.told(),
            "rules": self.rules_source(),
            "violations": self.log.tally(),
            "nodes": self.office.nodes(latest).await,
        })))
    }

    /// Where the rules come from, and whether this API changes them.
    fn rules_source(&self) -> Json {
        let repository = self.office.repository();
        let (source, why_not) = (repository.source(), self.office.check_editable().err());
        json!({
            "source": source,
            "name": repository.name(),
            "editable": source.is_editable(),
            "read_only_reason": why_not.map(|refused| refused.to_string()),
        })
    }

    /// Who wants something changed, and why.
    fn by(&self, otherwise: &str) -> Result<By, Problem> {
        let author = self.said(&AUTHOR)?.unwrap_or("admin").to_owned();
        let reason = self.said(&REASON)?.unwrap_or(otherwise).to_owned();
        Ok(By { author, reason })
    }

    fn said(&self, name: &HeaderName) -> Result<Option<&str>, Problem> {
        let Some(value) = self.head.headers.get(name) else { return Ok(None) };
        let text = str::from_utf8(value.as_bytes()).ok().map(str::trim);
        match text.filter(|text| text.len() <= MAX_SAID && !text.contains(char::is_control)) {
            Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            None => {
                let detail = format!("this header is UTF-8 text of at most {MAX_SAID} bytes");
                Err(Problem::new(StatusCode::BAD_REQUEST, detail).with_field(name.as_str()))
            }
        }
    }
}

impl<S: Store + 'static, L: Store + 'static> Answers for Admin<S, L> {
    type Body = Outgoing;

    async fn answer(&self, request: Request<Incoming>, caller: &Caller) -> Response<Outgoing> {
        self.ask(request, caller.peer).await
    }

    fn believes(&self, _: Peer) -> bool {
        false
    }
}

impl<S, L> fmt::Debug for Admin<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("office", &self.office).finish_non_exhaustive()
    }
}
