//! Maps a path and a method to an operation of the admin API.

use http::{Method, StatusCode, Uri};
use tidegate_web::percent::percent_decode;
use tidegate_web::problem::HttpError;

use super::guard::AdminAccess;
use crate::dashboard::DashboardFile;

/// The methods of read-only paths.
const READ_METHODS: &str = "GET, HEAD";

/// The health probes.
pub(super) const PROBES: [&str; 2] = ["livez", "readyz"];

/// Paths below `/v1` that the decision API handles, and the access they need.
pub(super) const COUNTERS: [(&str, AdminAccess); 5] = [
    ("check", AdminAccess::Write),
    ("counters", AdminAccess::Read),
    ("explain", AdminAccess::Read),
    ("peek", AdminAccess::Read),
    ("reset", AdminAccess::Write),
];

/// The handler of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AdminRoute {
    /// An operation of the admin API.
    Operation(AdminOperation),
    /// A request about counters, for the decision API.
    Counters(AdminAccess),
    /// A health probe, for the decision API.
    Probe,
    /// The stream of live events.
    Live,
    /// A file of the dashboard.
    DashboardFile(&'static DashboardFile),
    /// The path exists, but not for this method.
    MethodNotAllowed { allow: &'static str },
}

/// An operation of the admin API.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AdminOperation {
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

impl AdminRoute {
    pub(super) fn parse(method: &Method, uri: &Uri) -> Result<Self, HttpError> {
        if let Some(file) = DashboardFile::find(uri.path()) {
            return Ok(match is_read(method) {
                true => Self::DashboardFile(file),
                false => Self::MethodNotAllowed { allow: READ_METHODS },
            });
        }
        let not_found =
            || HttpError::new(StatusCode::NOT_FOUND, "no such endpoint; see /openapi.json");
        let path = uri.path().strip_prefix('/').ok_or_else(not_found)?;
        let segments: Option<Vec<String>> = path.split('/').map(percent_decode).collect();
        let segments = segments.ok_or_else(|| {
            HttpError::new(StatusCode::BAD_REQUEST, "the path is not percent-encoded UTF-8")
        })?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        Self::match_path(method, &segments).ok_or_else(not_found)
    }

    fn match_path(method: &Method, path: &[&str]) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok();
        let reads = |call| route_by_method(method, READ_METHODS, &[(&["GET", "HEAD"], call)]);
        let acts = |call| route_by_method(method, "POST", &[(&["POST"], call)]);
        if let ["v1", what] = path
            && let Some(access) = counter_access(what)
        {
            return Some(Self::Counters(access));
        }
        Some(match path {
            [probe] if PROBES.contains(probe) => Self::Probe,
            ["openapi.json"] => reads(&|| AdminOperation::OpenApi),
            ["metrics"] => reads(&|| AdminOperation::Metrics),
            ["v1", "status"] => reads(&|| AdminOperation::Status),
            ["v1", "live"] if is_read(method) => Self::Live,
            ["v1", "live"] => Self::MethodNotAllowed { allow: READ_METHODS },
            ["v1", "compare"] => acts(&|| AdminOperation::Compare),
            ["v1", "rules"] => {
                collection_route(method, &|| AdminOperation::Rules, &|| AdminOperation::CreateRule)
            }
            ["v1", "rules", id] => route_by_method(
                method,
                "GET, HEAD, PUT, PATCH, DELETE",
                &[
                    (&["GET", "HEAD"], &|| AdminOperation::Rule((*id).to_owned())),
                    (&["PUT"], &|| AdminOperation::PutRule((*id).to_owned())),
                    (&["PATCH"], &|| AdminOperation::PatchRule((*id).to_owned())),
                    (&["DELETE"], &|| AdminOperation::DeleteRule((*id).to_owned())),
                ],
            ),
            ["v1", "rules", id, switch @ ("enable" | "disable")] => {
                let active = *switch == "enable";
                acts(&|| AdminOperation::SwitchRule { id: (*id).to_owned(), active })
            }
            ["v1", "document"] => route_by_method(
                method,
                "GET, HEAD, PUT",
                &[
                    (&["GET", "HEAD"], &|| AdminOperation::Document),
                    (&["PUT"], &|| AdminOperation::ApplyDocument),
                ],
            ),
            ["v1", "validate"] => acts(&|| AdminOperation::Validate),
            ["v1", "subjects"] => collection_route(method, &|| AdminOperation::Subjects, &|| {
                AdminOperation::PutSubject
            }),
            ["v1", "subjects", id] => {
                item_route(method, &|| AdminOperation::Subject((*id).to_owned()), &|| {
                    AdminOperation::DeleteSubject((*id).to_owned())
                })
            }
            ["v1", "overrides"] => collection_route(method, &|| AdminOperation::Overrides, &|| {
                AdminOperation::PutOverrides
            }),
            ["v1", "overrides", id] => {
                item_route(method, &|| AdminOperation::Override((*id).to_owned()), &|| {
                    AdminOperation::DeleteOverride((*id).to_owned())
                })
            }
            ["v1", "versions"] => reads(&|| AdminOperation::Versions),
            ["v1", "versions", at] => {
                let at = number(at)?;
                reads(&|| AdminOperation::Version(at))
            }
            ["v1", "versions", at, "rollback"] => {
                let at = number(at)?;
                acts(&|| AdminOperation::Rollback(at))
            }
            ["v1", "violations"] => reads(&|| AdminOperation::Violations),
            ["v1", "violations", "top"] => reads(&|| AdminOperation::TopViolations),
            ["v1", "top"] => reads(&|| AdminOperation::Top),
            ["v1", "bursts"] => reads(&|| AdminOperation::Bursts),
            _ => return None,
        })
    }

    /// Whether callers with read access see client identities where others see hashes.
    pub(super) const fn shows_identities(&self) -> bool {
        matches!(self, Self::Operation(AdminOperation::Top | AdminOperation::Bursts))
    }

    /// The access that the caller needs.
    pub(super) fn access(&self) -> AdminAccess {
        match self {
            Self::Probe | Self::DashboardFile(_) => AdminAccess::Open,
            Self::Counters(access) => *access,
            Self::Live | Self::MethodNotAllowed { .. } => AdminAccess::Read,
            Self::Operation(call) => call.access(),
        }
    }
}

impl AdminOperation {
    pub(super) const fn access(&self) -> AdminAccess {
        match self {
            Self::OpenApi | Self::Metrics | Self::Top | Self::Bursts => AdminAccess::Open,
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
            | Self::TopViolations => AdminAccess::Read,
            _ => AdminAccess::Write,
        }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn counter_access(segment: &str) -> Option<AdminAccess> {
    COUNTERS.into_iter().find(|(name, _)| *name == segment).map(|(_, access)| access)
}

type OperationFactory<'a> = &'a dyn Fn() -> AdminOperation;

fn collection_route(
    method: &Method,
    list: OperationFactory<'_>,
    add: OperationFactory<'_>,
) -> AdminRoute {
    route_by_method(method, "GET, HEAD, POST", &[(&["GET", "HEAD"], list), (&["POST"], add)])
}

fn item_route(
    method: &Method,
    get: OperationFactory<'_>,
    delete: OperationFactory<'_>,
) -> AdminRoute {
    route_by_method(method, "GET, HEAD, DELETE", &[(&["GET", "HEAD"], get), (&["DELETE"], delete)])
}

fn route_by_method(
    method: &Method,
    allow: &'static str,
    calls: &[(&[&str], OperationFactory<'_>)],
) -> AdminRoute {
    let call = calls.iter().find(|(methods, _)| methods.contains(&method.as_str()));
    call.map_or(AdminRoute::MethodNotAllowed { allow }, |(_, call)| AdminRoute::Operation(call()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Result<AdminRoute, StatusCode> {
        let uri = path.parse().unwrap();
        AdminRoute::parse(&method.parse().unwrap(), &uri).map_err(|problem| problem.status)
    }

    #[test]
    fn path_and_method_select_the_route() {
        let id = "a/b:c".to_owned();
        assert_eq!(
            route("GET", "/v1/rules/a%2Fb:c"),
            Ok(AdminRoute::Operation(AdminOperation::Rule(id.clone())))
        );
        assert_eq!(
            route("DELETE", "/v1/rules/a%2fb:c"),
            Ok(AdminRoute::Operation(AdminOperation::DeleteRule(id)))
        );
        let allow = "GET, HEAD, POST";
        assert_eq!(route("PUT", "/v1/rules"), Ok(AdminRoute::MethodNotAllowed { allow }));
        assert_eq!(
            route("POST", "/v1/versions/7/rollback"),
            Ok(AdminRoute::Operation(AdminOperation::Rollback(7)))
        );
        assert_eq!(route("GET", "/v1/versions/x"), Err(StatusCode::NOT_FOUND));
        assert_eq!(route("GET", "/v1/rules/%ff"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(route("GET", "/v1/rules/%zz"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(route("GET", "/nothing"), Err(StatusCode::NOT_FOUND));
        assert!(matches!(route("GET", "/"), Ok(AdminRoute::DashboardFile(_))));
        assert_eq!(route("POST", "/"), Ok(AdminRoute::MethodNotAllowed { allow: READ_METHODS }));
    }
}
