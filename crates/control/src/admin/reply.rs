//! Answers of the admin API.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_edge::answer;
use tidegate_edge::problem::Problem;

use super::confirm::CONFIRM;
use crate::compile::Flaw;
use crate::office::Fault;
use crate::repository::Refused;

/// The code of the problem that rules are changed elsewhere.
const RULES_READ_ONLY: &str = "rules_read_only";

/// An answer in the making.
pub(super) struct Reply(Response<Full<Bytes>>);

impl Reply {
    pub(super) fn ok(view: &impl Serialize) -> Self {
        Self(answer::json(StatusCode::OK, view))
    }

    pub(super) fn created(view: &impl Serialize, location: &str) -> Self {
        let mut response = answer::json(StatusCode::CREATED, view);
        if let Ok(location) = HeaderValue::try_from(location) {
            response.headers_mut().insert(LOCATION, location);
        }
        Self(response)
    }

    /// JSON as it stands.
    pub(super) fn verbatim(json: &'static [u8]) -> Self {
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

    /// The same with the version that it is of.
    pub(super) fn tagged(mut self, version: u64) -> Self {
        if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
            self.0.headers_mut().insert(ETAG, tag);
        }
        self
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        self.0
    }

    /// What is wrong with rules, field by field.
    fn invalid(flaws: &[Flaw]) -> Self {
        let first = flaws.first().map_or("", |flaw| flaw.field.as_str());
        let detail = match flaws {
            [one] => one.to_string(),
            many => format!("{} things are wrong; see `errors`", many.len()),
        };
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let view = json!({
            "type": "about:blank",
            "title": "Unprocessable Entity",
            "status": status.as_u16(),
            "detail": detail,
            "field": first,
            "errors": flaws.iter().map(flaw).collect::<Vec<_>>(),
        });
        let mut response = answer::json(status, &view);
        let problem = HeaderValue::from_static(Problem::MEDIA_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, problem);
        Self(response)
    }
}

/// Something wrong, as callers are told.
pub(super) fn flaw(flaw: &Flaw) -> Json {
    let (kind, id) = match &flaw.of {
        Some((kind, id)) => (Some(kind.name()), Some(id)),
        None => (None, None),
    };
    json!({
        "kind": kind, "id": id, "field": flaw.field, "found": flaw.found, "message": flaw.message,
        "hint": flaw.hint,
    })
}

/// Why nothing was changed; what is wrong with rules is an answer of its own.
pub(super) fn fault(fault: &Fault) -> Result<Reply, Problem> {
    let status = match fault {
        Fault::Invalid(flaws) => return Ok(Reply::invalid(flaws)),
        Fault::Emptied { .. } => {
            let problem = Problem::new(StatusCode::PRECONDITION_REQUIRED, fault.to_string());
            return Err(problem.with_field(CONFIRM.as_str()));
        }
        Fault::Missing(_) => StatusCode::NOT_FOUND,
        Fault::Exists(_) => StatusCode::CONFLICT,
        Fault::Outdated { .. } => StatusCode::PRECONDITION_FAILED,
        Fault::Unseen => StatusCode::PRECONDITION_REQUIRED,
        Fault::Refused(refused) => return Err(refused.clone().into()),
    };
    Err(Problem::new(status, fault.to_string()))
}

impl From<Refused> for Problem {
    fn from(why: Refused) -> Self {
        let status = match why {
            Refused::Outdated { .. } | Refused::ReadOnly { .. } => StatusCode::CONFLICT,
            Refused::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refused::Gone(_) | Refused::Foreign(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let problem = Self::new(status, why.to_string());
        match why {
            Refused::ReadOnly { .. } => problem.with_code(RULES_READ_ONLY),
            _ => problem,
        }
    }
}

pub(super) fn missing(what: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is no {what}"))
}

pub(super) fn wrong_method(allow: &'static str) -> Response<Full<Bytes>> {
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("this takes {allow}"));
    let mut response = answer::problem(&problem);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    answer::close(&mut response);
    response
}
