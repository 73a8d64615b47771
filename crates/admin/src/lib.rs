//! The admin API: rules, subjects, overrides, versions and violations over HTTP.
//!
//! Whoever asks is admitted first (`guard`), then the path and method say what is asked (`route`). Every
//! change goes through the [`RuleManager`], so it is checked as a whole, written as one version and in force when
//! the answer is sent. What concerns counters is answered as the HTTP door does. The dashboard is a page of files
//! that uses this API like everybody else.

mod algorithm_comparison;
mod body;
mod compare_rules;
mod confirmation;
mod dashboard;
mod document;
pub mod guard;
mod openapi;
mod overrides;
mod precondition;
mod query;
mod reply;
mod response_body;
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
use tidegate_api::http::HttpApi;
use tidegate_api::http::body as http_body;
use tidegate_core::store::Store;
use tidegate_net::listen::{ConnectionInfo, HttpHandler};
use tidegate_rules::RuleSet;
use tidegate_web::problem::HttpError;
use tidegate_web::{Peer, ProcessStatus, http_response, read_bearer_token};

pub use confirmation::{CONFIRM_EMPTY, CONFIRM_HEADER};
use guard::AdminAccess;
pub use guard::AdminGuard;
use reply::{AdminReply, database_problem};
pub use response_body::AdminBody;
use route::{AdminOperation, AdminRoute};
use tidegate_rulestore::{ChangeAuthor, RuleManager};
use tidegate_telemetry::ViolationLog;
use tidegate_telemetry::live::{LiveBroadcaster, MAX_LISTENERS, TooManyListenersError};
use tidegate_telemetry::{Exposition, MetricsExporter};
use tidegate_telemetry::{TopKeys, Visibility};

/// The longest body: a rules document.
const MAX_BODY_BYTES: usize = 4 << 20;

/// How long a caller may take to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Who makes a change.
pub const AUTHOR_HEADER: HeaderName = HeaderName::from_static("x-tidegate-author");
/// Why.
pub const REASON_HEADER: HeaderName = HeaderName::from_static("x-tidegate-reason");

/// The longest name of an author, and the longest reason.
const MAX_HEADER_TEXT_BYTES: usize = 500;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// Answers whoever administers rules.
pub struct AdminApi<S, L> {
    manager: Arc<RuleManager>,
    log: Arc<ViolationLog>,
    top: Arc<TopKeys>,
    /// What concerns counters.
    decision_api: HttpApi<S, L>,
    guard: AdminGuard,
    exports: Vec<Arc<dyn MetricsExporter>>,
    live: Arc<LiveBroadcaster>,
}

/// What is told besides what is in the office.
#[derive(Clone)]
pub struct ObservabilityHandles {
    /// What was refused.
    pub log: Arc<ViolationLog>,
    /// Who asks most.
    pub top: Arc<TopKeys>,
    /// What `/metrics` tells.
    pub exports: Vec<Arc<dyn MetricsExporter>>,
    /// What `/v1/live` tells.
    pub live: Arc<LiveBroadcaster>,
}

impl<S: Store, L: Store> AdminApi<S, L> {
    /// The API of an office and of what there is to tell, beside a door that answers what concerns counters.
    #[must_use]
    pub fn new(
        manager: Arc<RuleManager>,
        decision_api: HttpApi<S, L>,
        guard: AdminGuard,
        telling: ObservabilityHandles,
    ) -> Self {
        let ObservabilityHandles { log, top, exports, live } = telling;
        Self { manager, log, top, decision_api, guard, exports, live }
    }

    /// Answers one request of a caller at an address. It always answers.
    pub async fn handle<B>(&self, request: Request<B>, caller: Peer) -> Response<AdminBody>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut response = match self.route_request(request, caller).await {
            Ok(response) => response,
            Err(problem) => http_response::problem(&problem),
        };
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        response.headers_mut().insert(NO_SNIFF.0, NO_SNIFF.1);
        response
    }

    async fn route_request<B>(
        &self,
        request: Request<B>,
        caller: Peer,
    ) -> Result<Response<AdminBody>, HttpError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (mut head, body) = request.into_parts();
        let route = AdminRoute::parse(&head.method, &head.uri)?;
        if let Err(refusal) = self.guard.admit(&head, route.access(), caller) {
            return Ok(refusal.into_response().map(AdminBody::from));
        }
        let sight = match self.guard.admit(&head, AdminAccess::Read, caller) {
            Ok(()) => Visibility::Clear,
            // Whoever brings a token that is wrong should hear of it.
            Err(refusal)
                if route.shows_identities() && read_bearer_token(&head.headers).is_some() =>
            {
                return Ok(refusal.into_response().map(AdminBody::from));
            }
            Err(_) => Visibility::Hashed,
        };
        let call = match route {
            AdminRoute::Counters(_) | AdminRoute::Probe => {
                // Whoever is admitted here is not asked again.
                head.headers.remove(ORIGIN);
                let answered = self
                    .decision_api
                    .handle_request(Request::from_parts(head, body), Peer::Unix)
                    .await;
                return Ok(answered.map(AdminBody::from));
            }
            AdminRoute::DashboardFile(file) => return Ok(file.to_response().map(AdminBody::from)),
            AdminRoute::Live => return self.open_live_feed(),
            AdminRoute::Operation(call) => call,
            AdminRoute::MethodNotAllowed { allow } => {
                return Ok(reply::method_not_allowed(allow).map(AdminBody::from));
            }
        };
        let body = match http_body::read(body, MAX_BODY_BYTES, BODY_TIMEOUT).await {
            Ok(body) => body,
            Err(unread) => return Ok(unread.into_response().map(AdminBody::from)),
        };
        let asked = AdminRequest {
            manager: &self.manager,
            log: &self.log,
            top: &self.top,
            exports: &self.exports,
            rules: &self.decision_api.rules(),
            status: self.decision_api.status(),
            visibility: sight,
            head: &head,
            body: &body,
        };
        let answered = asked.dispatch(call).await.map(AdminReply::into_response);
        answered.map(|response| response.map(AdminBody::from))
    }

    /// What goes on from now on.
    fn open_live_feed(&self) -> Result<Response<AdminBody>, HttpError> {
        let feed = self.live.subscribe().map_err(|TooManyListenersError| {
            let detail = format!(
                "{MAX_LISTENERS} listen already, which is as many as may; close a dashboard somewhere, or read \
                 /metrics"
            );
            HttpError::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        let mut response = Response::new(AdminBody::Live(feed));
        let events = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(CONTENT_TYPE, events);
        Ok(response)
    }
}

/// A request of somebody who is admitted.
struct AdminRequest<'a> {
    manager: &'a RuleManager,
    log: &'a ViolationLog,
    top: &'a TopKeys,
    exports: &'a [Arc<dyn MetricsExporter>],
    rules: &'a RuleSet,
    status: &'a ProcessStatus,
    /// What they see of others.
    visibility: Visibility,
    head: &'a Parts,
    body: &'a Bytes,
}

impl AdminRequest<'_> {
    async fn dispatch(&self, call: AdminOperation) -> Result<AdminReply, HttpError> {
        // Before the body is looked at: no other body would help.
        if call.access() == AdminAccess::Write {
            self.manager.check_editable().map_err(database_problem)?;
        }
        match call {
            AdminOperation::OpenApi => Ok(AdminReply::static_json(openapi::DOCUMENT)),
            AdminOperation::Metrics => Ok(self.metrics()),
            AdminOperation::Status => self.status().await,
            AdminOperation::Compare => self.compare(),
            AdminOperation::Rules => self.rules(),
            AdminOperation::CreateRule => self.create_rule().await,
            AdminOperation::Rule(id) => self.rule(&id),
            AdminOperation::PutRule(id) => self.put_rule(&id).await,
            AdminOperation::PatchRule(id) => self.patch_rule(&id).await,
            AdminOperation::DeleteRule(id) => self.delete_rule(&id).await,
            AdminOperation::SwitchRule { id, active } => self.switch_rule(&id, active).await,
            AdminOperation::Document => self.document(),
            AdminOperation::ApplyDocument => self.apply_document().await,
            AdminOperation::Validate => self.validate_document().await,
            AdminOperation::Subjects => self.subjects(),
            AdminOperation::PutSubject => self.put_subject().await,
            AdminOperation::Subject(id) => self.subject(&id),
            AdminOperation::DeleteSubject(id) => self.delete_subject(&id).await,
            AdminOperation::Overrides => self.overrides(),
            AdminOperation::PutOverrides => self.put_overrides().await,
            AdminOperation::Override(id) => self.get_override(&id),
            AdminOperation::DeleteOverride(id) => self.delete_override(&id).await,
            AdminOperation::Versions => self.versions().await,
            AdminOperation::Version(number) => self.version(number).await,
            AdminOperation::Rollback(number) => self.rollback(number).await,
            AdminOperation::Violations => self.violations().await,
            AdminOperation::TopViolations => self.top_violations().await,
            AdminOperation::Top => self.top(),
            AdminOperation::Bursts => self.bursts(),
        }
    }

    /// Everything that is counted, in the format that is asked for.
    fn metrics(&self) -> AdminReply {
        let accept = self.head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        let mut page = Exposition::new(open);
        self.exports.iter().for_each(|exports| exports.export(&mut page));
        let media_type = match open {
            true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            false => "text/plain; version=0.0.4; charset=utf-8",
        };
        AdminReply::text(media_type, page.finish())
    }

    async fn status(&self) -> Result<AdminReply, HttpError> {
        let (book, head) = (self.manager.config(), self.manager.repository().head().await);
        let (latest, trouble) = match head {
            Ok(head) => (Some(head), None),
            Err(refused) => (None, Some(refused.to_string())),
        };
        Ok(AdminReply::ok(&json!({
            "version": book.version(),
            "latest": latest,
            "database": self.manager.repository().name(),
            "database_error": trouble,
            "process": self.status.ready_view(),
            "rules": self.rules_source(),
            "violations": self.log.counts(),
            "nodes": self.manager.node_views(latest).await,
        })))
    }

    /// Where the rules come from, and whether this API changes them.
    fn rules_source(&self) -> Json {
        let repository = self.manager.repository();
        let (source, why_not) = (repository.source(), self.manager.check_editable().err());
        json!({
            "source": source,
            "name": repository.name(),
            "editable": source.is_editable(),
            "read_only_reason": why_not.map(|refused| refused.to_string()),
        })
    }

    /// Who wants something changed, and why.
    fn change_author(&self, otherwise: &str) -> Result<ChangeAuthor, HttpError> {
        let author = self.header_text(&AUTHOR_HEADER)?.unwrap_or("admin").to_owned();
        let reason = self.header_text(&REASON_HEADER)?.unwrap_or(otherwise).to_owned();
        Ok(ChangeAuthor { author, reason })
    }

    fn header_text(&self, name: &HeaderName) -> Result<Option<&str>, HttpError> {
        let Some(value) = self.head.headers.get(name) else { return Ok(None) };
        let text = str::from_utf8(value.as_bytes()).ok().map(str::trim);
        match text
            .filter(|text| text.len() <= MAX_HEADER_TEXT_BYTES && !text.contains(char::is_control))
        {
            Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            None => {
                let detail =
                    format!("this header is UTF-8 text of at most {MAX_HEADER_TEXT_BYTES} bytes");
                Err(HttpError::new(StatusCode::BAD_REQUEST, detail).with_field(name.as_str()))
            }
        }
    }
}

impl<S: Store + 'static, L: Store + 'static> HttpHandler for AdminApi<S, L> {
    type Body = AdminBody;

    async fn handle(
        &self,
        request: Request<Incoming>,
        caller: &ConnectionInfo,
    ) -> Response<AdminBody> {
        self.handle(request, caller.peer).await
    }

    fn trusts_peer(&self, _: Peer) -> bool {
        false
    }
}

impl<S, L> fmt::Debug for AdminApi<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminApi").field("office", &self.manager).finish_non_exhaustive()
    }
}
