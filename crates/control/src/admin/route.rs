//! What a path and a method ask for.

use http::{Method, StatusCode, Uri};
use tidegate_edge::path::percent_decoded;
use tidegate_edge::problem::Problem;

use super::guard::Access;
use crate::dashboard::File;

/// What is only read takes these methods.
const READS: &str = "GET, HEAD";

/// What tells how the process is.
pub(super) const PROBES: [&str; 2] = ["livez", "readyz"];

/// What concerns counters, and what it needs.
pub(super) const COUNTERS: [(&str, Access); 5] = [
    ("check", Access::Write),
    ("counters", Access::Read),
    ("explain", Access::Read),
    ("peek", Access::Read),
    ("reset", Access::Write),
];

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To the office.
    Call(Call),
    /// To the limiter: it concerns counters.
    Counters(Access),
    /// To whoever knows how the process is.
    Probe,
    /// To what goes on from now on.
    Live,
    /// To a file of the dashboard.
    Page(&'static File),
    /// Nowhere: the path takes other methods.
    WrongMethod { allow: &'static str },
}

/// What is asked of the office.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    OpenApi,
    Metrics,
    Status,
    Compare,
    Rules,
    CreateRule,
    Rule(String),
    PutRule(String),
    PatchRule(String),
    DeleteRule(String),
    SwitchRule { id: String, active: bool },
    Document,
    ApplyDocument,
    Validate,
    Subjects,
    PutSubject,
    Subject(String),
    DeleteSubject(String),
    Overrides,
    PutOverrides,
    Override(String),
    DeleteOverride(String),
    Versions,
    Version(u64),
    Rollback(u64),
    Violations,
    TopViolations,
    Top,
    Bursts,
}

impl Route {
    pub(super) fn of(method: &Method, uri: &Uri) -> Result<Self, Problem> {
        if let Some(file) = File::at(uri.path()) {
            return Ok(match is_read(method) {
                true => Self::Page(file),
                false => Self::WrongMethod { allow: READS },
            });
        }
        let nothing = || Problem::new(StatusCode::NOT_FOUND, "nothing is here; see /openapi.json");
        let path = uri.path().strip_prefix('/').ok_or_else(nothing)?;
        let segments: Option<Vec<String>> = path.split('/').map(percent_decoded).collect();
        let segments = segments.ok_or_else(|| {
            Problem::new(StatusCode::BAD_REQUEST, "the path is not percent-encoded UTF-8")
        })?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        Self::find(method, &segments).ok_or_else(nothing)
    }

    fn find(method: &Method, path: &[&str]) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok();
        let reads = |call| by_method(method, READS, &[(&["GET", "HEAD"], call)]);
        let acts = |call| by_method(method, "POST", &[(&["POST"], call)]);
        if let ["v1", what] = path
            && let Some(access) = counters(what)
        {
            return Some(Self::Counters(access));
        }
        Some(match path {
            [probe] if PROBES.contains(probe) => Self::Probe,
            ["openapi.json"] => reads(&|| Call::OpenApi),
            ["metrics"] => reads(&|| Call::Metrics),
            ["v1", "status"] => reads(&|| Call::Status),
            ["v1", "live"] if is_read(method) => Self::Live,
            ["v1", "live"] => Self::WrongMethod { allow: READS },
            ["v1", "compare"] => acts(&|| Call::Compare),
            ["v1", "rules"] => listed(method, &|| Call::Rules, &|| Call::CreateRule),
            ["v1", "rules", id] => by_method(
                method,
                "GET, HEAD, PUT, PATCH, DELETE",
                &[
                    (&["GET", "HEAD"], &|| Call::Rule((*id).to_owned())),
                    (&["PUT"], &|| Call::PutRule((*id).to_owned())),
                    (&["PATCH"], &|| Call::PatchRule((*id).to_owned())),
                    (&["DELETE"], &|| Call::DeleteRule((*id).to_owned())),
                ],
            ),
            ["v1", "rules", id, switch @ ("enable" | "disable")] => {
                let active = *switch == "enable";
                acts(&|| Call::SwitchRule { id: (*id).to_owned(), active })
            }
            ["v1", "document"] => by_method(
                method,
                "GET, HEAD, PUT",
                &[(&["GET", "HEAD"], &|| Call::Document), (&["PUT"], &|| Call::ApplyDocument)],
            ),
            ["v1", "validate"] => acts(&|| Call::Validate),
            ["v1", "subjects"] => listed(method, &|| Call::Subjects, &|| Call::PutSubject),
            ["v1", "subjects", id] => kept(method, &|| Call::Subject((*id).to_owned()), &|| {
                Call::DeleteSubject((*id).to_owned())
            }),
            ["v1", "overrides"] => listed(method, &|| Call::Overrides, &|| Call::PutOverrides),
            ["v1", "overrides", id] => kept(method, &|| Call::Override((*id).to_owned()), &|| {
                Call::DeleteOverride((*id).to_owned())
            }),
            ["v1", "versions"] => reads(&|| Call::Versions),
            ["v1", "versions", at] => {
                let at = number(at)?;
                reads(&|| Call::Version(at))
            }
            ["v1", "versions", at, "rollback"] => {
                let at = number(at)?;
                acts(&|| Call::Rollback(at))
            }
            ["v1", "violations"] => reads(&|| Call::Violations),
            ["v1", "violations", "top"] => reads(&|| Call::TopViolations),
            ["v1", "top"] => reads(&|| Call::Top),
            ["v1", "bursts"] => reads(&|| Call::Bursts),
            _ => return None,
        })
    }

    /// Whether those who may read everything see more of it than others.
    pub(super) const fn shows_identities(&self) -> bool {
        matches!(self, Self::Call(Call::Top | Call::Bursts))
    }

    /// What the caller needs.
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Probe | Self::Page(_) => Access::Open,
            Self::Counters(access) => *access,
            Self::Live | Self::WrongMethod { .. } => Access::Read,
            Self::Call(call) => call.access(),
        }
    }
}

impl Call {
    pub(super) const fn access(&self) -> Access {
        match self {
            Self::OpenApi | Self::Metrics | Self::Top | Self::Bursts => Access::Open,
            Self::Status
            | Self::Compare
            | Self::Rules
            | Self::Rule(_)
            | Self::Document
            | Self::Validate
            | Self::Subjects
            | Self::Subject(_)
            | Self::Overrides
            | Self::Override(_)
            | Self::Versions
            | Self::Version(_)
            | Self::Violations
            | Self::TopViolations => Access::Read,
            _ => Access::Write,
        }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn counters(what: &str) -> Option<Access> {
    COUNTERS.into_iter().find(|(name, _)| *name == what).map(|(_, access)| access)
}

type Maker<'a> = &'a dyn Fn() -> Call;

fn listed(method: &Method, list: Maker<'_>, add: Maker<'_>) -> Route {
    by_method(method, "GET, HEAD, POST", &[(&["GET", "HEAD"], list), (&["POST"], add)])
}

fn kept(method: &Method, get: Maker<'_>, delete: Maker<'_>) -> Route {
    by_method(method, "GET, HEAD, DELETE", &[(&["GET", "HEAD"], get), (&["DELETE"], delete)])
}

fn by_method(method: &Method, allow: &'static str, calls: &[(&[&str], Maker<'_>)]) -> Route {
    let call = calls.iter().find(|(methods, _)| methods.contains(&method.as_str()));
    call.map_or(Route::WrongMethod { allow }, |(_, call)| Route::Call(call()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Result<Route, StatusCode> {
        let uri = path.parse().unwrap();
        Route::of(&method.parse().unwrap(), &uri).map_err(|problem| problem.status)
    }

    #[test]
    fn paths_and_methods_are_told_apart() {
        let id = "a/b:c".to_owned();
        assert_eq!(route("GET", "/v1/rules/a%2Fb:c"), Ok(Route::Call(Call::Rule(id.clone()))));
        assert_eq!(route("DELETE", "/v1/rules/a%2fb:c"), Ok(Route::Call(Call::DeleteRule(id))));
        let allow = "GET, HEAD, POST";
        assert_eq!(route("PUT", "/v1/rules"), Ok(Route::WrongMethod { allow }));
        assert_eq!(route("POST", "/v1/versions/7/rollback"), Ok(Route::Call(Call::Rollback(7))));
        assert_eq!(route("GET", "/v1/versions/x"), Err(StatusCode::NOT_FOUND));
        assert_eq!(route("GET", "/v1/rules/%ff"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(route("GET", "/v1/rules/%zz"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(route("GET", "/nothing"), Err(StatusCode::NOT_FOUND));
        assert!(matches!(route("GET", "/"), Ok(Route::Page(_))));
        assert_eq!(route("POST", "/"), Ok(Route::WrongMethod { allow: READS }));
    }
}
