//! Builds the responses of the admin API.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_web::http_response;
use tidegate_web::problem::HttpError;

use super::confirmation::CONFIRM_HEADER;
use tidegate_rulestore::EditError;
use tidegate_rulestore::RepositoryError;
use tidegate_rulestore::ValidationError;

/// The problem code when this API cannot change the rules, for example because they are in a file.
const RULES_READ_ONLY: &str = "rules_read_only";

/// A response under construction.
pub(super) struct AdminReply(Response<Full<Bytes>>);

impl AdminReply {
    pub(super) fn ok(view: &impl Serialize) -> Self {
        Self(http_response::json(StatusCode::OK, view))
    }

    pub(super) fn created(view: &impl Serialize, location: &str) -> Self {
        let mut response = http_response::json(StatusCode::CREATED, view);
        if let Ok(location) = HeaderValue::try_from(location) {
            response.headers_mut().insert(LOCATION, location);
        }
        Self(response)
    }

    /// A static JSON document.
    pub(super) fn static_json(json: &'static [u8]) -> Self {
        let mut response = Response::new(Full::from(Bytes::from_static(json)));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        Self(response)
    }

    pub(super) fn text(media_type: &'static str, text: String) -> Self {
        let mut response = Response::new(Full::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Self(response)
    }

    /// Sets the ETag to a version.
    pub(super) fn with_etag(mut self, version: u64) -> Self {
        if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
            self.0.headers_mut().insert(ETAG, tag);
        }
        self
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        self.0
    }

    /// Problem+json that lists the errors field by field.
    fn invalid(flaws: &[ValidationError]) -> Self {
        let first = flaws.first().map_or("", |flaw| flaw.field.as_str());
        let detail = match flaws {
            [one] => one.to_string(),
            many => format!("{} validation errors; see `errors`", many.len()),
        };
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let view = json!({
            "type": "about:blank",
            "title": "Unprocessable Entity",
            "status": status.as_u16(),
            "detail": detail,
            "field": first,
            "errors": flaws.iter().map(validation_error_view).collect::<Vec<_>>(),
        });
        let mut response = http_response::json(status, &view);
        let problem = HeaderValue::from_static(HttpError::MEDIA_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, problem);
        Self(response)
    }
}

/// The JSON form of a validation error.
pub(super) fn validation_error_view(flaw: &ValidationError) -> Json {
    let (kind, id) = match &flaw.entry {
        Some((kind, id)) => (Some(kind.name()), Some(id)),
        None => (None, None),
    };
    json!({
        "kind": kind, "id": id, "field": flaw.field, "found": flaw.found, "message": flaw.message,
        "hint": flaw.hint,
    })
}

/// The response to a rejected edit. Validation errors have a body with `errors`; all others are
/// plain problems.
pub(super) fn from_edit_error(fault: &EditError) -> Result<AdminReply, HttpError> {
    let status = match fault {
        EditError::Invalid(flaws) => return Ok(AdminReply::invalid(flaws)),
        EditError::EmptyNotConfirmed { .. } => {
            let problem = HttpError::new(StatusCode::PRECONDITION_REQUIRED, fault.to_string());
            return Err(problem.with_field(CONFIRM_HEADER.as_str()));
        }
        EditError::NotFound(_) => StatusCode::NOT_FOUND,
        EditError::AlreadyExists(_) => StatusCode::CONFLICT,
        EditError::PreconditionFailed { .. } => StatusCode::PRECONDITION_FAILED,
        EditError::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
        EditError::Repository(refused) => return Err(database_problem(refused.clone())),
    };
    Err(HttpError::new(status, fault.to_string()))
}

/// The response to an error of the rules database.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn database_problem(why: RepositoryError) -> HttpError {
    let status = match why {
        RepositoryError::VersionConflict { .. } | RepositoryError::ReadOnly { .. } => {
            StatusCode::CONFLICT
        }
        RepositoryError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        RepositoryError::Unavailable(_) | RepositoryError::Incompatible(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let problem = HttpError::new(status, why.to_string());
    match why {
        RepositoryError::ReadOnly { .. } => problem.with_code(RULES_READ_ONLY),
        _ => problem,
    }
}

pub(super) fn not_found(what: &str) -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, format!("there is no {what}"))
}

pub(super) fn method_not_allowed(allow: &'static str) -> Response<Full<Bytes>> {
    let problem =
        HttpError::new(StatusCode::METHOD_NOT_ALLOWED, format!("allowed methods: {allow}"));
    let mut response = http_response::problem(&problem);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    http_response::set_connection_close(&mut response);
    response
}
