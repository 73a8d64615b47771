//! The admin API: rules, subjects, overrides, versions and violations over HTTP.
//!
//! A request is routed by path and method (`route`), then authorized (`guard`). Every change goes
//! through the [`RuleManager`]: it validates the whole configuration, writes it as one version, and
//! activates it before the response is sent. Counter requests are forwarded to the decision API.
//! The dashboard is a set of static files that uses this API like any other client.

mod algorithm_comparison;
mod algorithm_simulation;
mod body;
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
mod rule_consistency;
mod rule_regions;
mod rules;
mod sse_feed;
mod subjects;
mod top;
mod versions;
mod violations;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderName, HeaderValue, ORIGIN};
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
use rule_consistency::ActiveCounters;
use tidegate_rulestore::{ChangeAuthor, RuleManager};
use tidegate_telemetry::ViolationLog;
use tidegate_telemetry::live_feed::LiveBroadcaster;
use tidegate_telemetry::{Exposition, MetricsExporter};
use tidegate_telemetry::{TopKeys, Visibility};

/// The maximum body size; a rules document is the largest body.
const MAX_BODY_BYTES: usize = 4 << 20;

/// How long a client may take to send the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The author of a change.
pub const AUTHOR_HEADER: HeaderName = HeaderName::from_static("x-tidegate-author");
/// The reason for a change.
pub const REASON_HEADER: HeaderName = HeaderName::from_static("x-tidegate-reason");

/// The maximum length of an author and of a reason.
const MAX_HEADER_TEXT_BYTES: usize = 500;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// Handles requests to the admin API.
pub struct AdminApi<S, L> {
    manager: Arc<RuleManager>,
    log: Arc<ViolationLog>,
    top: Arc<TopKeys>,
    /// Handles requests about counters, and probes.
    decision_api: HttpApi<S, L>,
    guard: AdminGuard,
    exports: Vec<Arc<dyn MetricsExporter>>,
    live: Arc<LiveBroadcaster>,
    regions: RegionSource,
}

/// Reads the state of the stores of other regions, as JSON.
pub type RegionSource = Arc<dyn Fn() -> Json + Send + Sync>;

/// The sources of everything that the API reports but does not manage.
#[derive(Clone)]
pub struct ObservabilityHandles {
    /// Records violations.
    pub log: Arc<ViolationLog>,
    /// Tracks the most active and the most refused clients.
    pub top: Arc<TopKeys>,
    /// The metrics of `/metrics`.
    pub exports: Vec<Arc<dyn MetricsExporter>>,
    /// The events of `/v1/live`.
    pub live: Arc<LiveBroadcaster>,
    /// The regions of `/v1/status`.
    pub regions: RegionSource,
}

impl<S: Store, L: Store> AdminApi<S, L> {
    /// Creates the API. `decision_api` handles requests about counters, and probes.
    #[must_use]
    pub fn new(
        manager: Arc<RuleManager>,
        decision_api: HttpApi<S, L>,
        guard: AdminGuard,
        observability: ObservabilityHandles,
    ) -> Self {
        let ObservabilityHandles { log, top, exports, live, regions } = observability;
        Self { manager, log, top, decision_api, guard, exports, live, regions }
    }

    /// Handles one request. Errors become problem+json responses.
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
        let visibility = match self.guard.admit(&head, AdminAccess::Read, caller) {
            Ok(()) => Visibility::Clear,
            // Report a wrong token instead of silently hiding identities.
            Err(refusal)
                if route.shows_identities() && read_bearer_token(&head.headers).is_some() =>
            {
                return Ok(refusal.into_response().map(AdminBody::from));
            }
            Err(_) => Visibility::Hashed,
        };
        let call = match route {
            AdminRoute::Counters(_) | AdminRoute::Probe => {
                // The request is already authorized: the decision API must not check it again.
                head.headers.remove(ORIGIN);
                let response = self
                    .decision_api
                    .handle_request(Request::from_parts(head, body), Peer::Unix)
                    .await;
                return Ok(response.map(AdminBody::from));
            }
            AdminRoute::DashboardFile(file) => return Ok(file.to_response().map(AdminBody::from)),
            AdminRoute::Live => return sse_feed::open_feed(&self.live),
            AdminRoute::Operation(call) => call,
            AdminRoute::MethodNotAllowed { allow } => {
                return Ok(reply::method_not_allowed(allow).map(AdminBody::from));
            }
        };
        let body = match http_body::read(body, MAX_BODY_BYTES, BODY_TIMEOUT).await {
            Ok(body) => body,
            Err(unread) => return Ok(unread.into_response().map(AdminBody::from)),
        };
        let request = AdminRequest {
            manager: &self.manager,
            log: &self.log,
            top: &self.top,
            exports: &self.exports,
            rules: &self.decision_api.rules(),
            counters: &self.decision_api,
            regions: &self.regions,
            status: self.decision_api.status(),
            visibility,
            head: &head,
            body: &body,
        };
        let response = request.dispatch(call).await.map(AdminReply::into_response);
        response.map(|response| response.map(AdminBody::from))
    }
}

/// An authorized request, with everything that its handler needs.
struct AdminRequest<'a> {
    manager: &'a RuleManager,
    log: &'a ViolationLog,
    top: &'a TopKeys,
    exports: &'a [Arc<dyn MetricsExporter>],
    rules: &'a RuleSet,
    counters: &'a dyn ActiveCounters,
    regions: &'a RegionSource,
    status: &'a ProcessStatus,
    /// Whether the caller sees client identities or hashes.
    visibility: Visibility,
    head: &'a Parts,
    body: &'a Bytes,
}

impl AdminRequest<'_> {
    async fn dispatch(&self, call: AdminOperation) -> Result<AdminReply, HttpError> {
        // Checked before the body is parsed: no body could make read-only rules editable.
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

    /// All metrics, in OpenMetrics format if `Accept` names it.
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
        let (config, head) = (self.manager.config(), self.manager.repository().head().await);
        let (latest, trouble) = match head {
            Ok(head) => (Some(head), None),
            Err(refused) => (None, Some(refused.to_string())),
        };
        Ok(AdminReply::ok(&json!({
            "version": config.version(),
            "latest": latest,
            "database": self.manager.repository().name(),
            "database_error": trouble,
            "process": self.status.ready_view(),
            "rules": self.rules_source(),
            "violations": self.log.counts(),
            "nodes": self.manager.node_views(latest).await,
            "holdings": rule_consistency::node_json(self.counters.holdings().as_ref()),
            "regions": (self.regions)(),
        })))
    }

    /// Where the rules come from, and whether this API can change them.
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

    /// The author and reason of a change, from the request's headers.
    fn change_author(&self, default_reason: &str) -> Result<ChangeAuthor, HttpError> {
        let author = self.header_text(&AUTHOR_HEADER)?.unwrap_or("admin").to_owned();
        let reason = self.header_text(&REASON_HEADER)?.unwrap_or(default_reason).to_owned();
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
                let detail = format!(
                    "this header must be UTF-8 text of at most {MAX_HEADER_TEXT_BYTES} bytes, \
                     without control characters"
                );
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
        f.debug_struct("AdminApi").field("manager", &self.manager).finish_non_exhaustive()
    }
}
