//! Selects the upstream of a request by host and path prefix.

/// A route to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRoute {
    /// The host without a port; `*.example.com` matches all subdomains; `None` matches every host.
    pub host: Option<String>,
    /// The path prefix, by whole segments: `/api` matches `/api` and `/api/x`, but not `/apis`.
    pub prefix: String,
    /// The index of the upstream.
    pub upstream: usize,
}

/// All routes, the most specific first.
#[derive(Debug)]
pub(super) struct RouteTable(Vec<UpstreamRoute>);

impl RouteTable {
    pub(super) fn new(mut routes: Vec<UpstreamRoute>) -> Self {
        for route in &mut routes {
            route.prefix.truncate(route.prefix.trim_end_matches('/').len());
            route.host.as_mut().into_iter().for_each(|host| host.make_ascii_lowercase());
        }
        // Exact hosts before wildcards before no host, then longer hosts, then longer prefixes. The
        // sort is stable: of equal routes the first wins.
        routes.sort_by_key(|route| {
            let host = route.host.as_deref().unwrap_or_default();
            let named = usize::from(!host.is_empty()) + usize::from(!host.starts_with('*'));
            std::cmp::Reverse((named, host.len(), route.prefix.len()))
        });
        Self(routes)
    }

    /// Finds the upstream of a request.
    pub(super) fn find(&self, host: Option<&str>, path: &str) -> Option<usize> {
        let host = host.map(strip_port);
        let matches = |route: &&UpstreamRoute| {
            let host_matches_route = match &route.host {
                None => true,
                Some(wanted) => host.is_some_and(|host| host_matches(wanted, host)),
            };
            host_matches_route && has_path_prefix(path, &route.prefix)
        };
        self.0.iter().find(matches).map(|route| route.upstream)
    }
}

/// The index of the upstream that requests for a host and a path go to.
#[must_use]
pub fn find_upstream(routes: &[UpstreamRoute], host: Option<&str>, path: &str) -> Option<usize> {
    RouteTable::new(routes.to_vec()).find(host, path)
}

fn has_path_prefix(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn host_matches(wanted: &str, host: &str) -> bool {
    match wanted.strip_prefix('*') {
        Some(suffix) => {
            let at = host.len().checked_sub(suffix.len()).filter(|at| *at > 0);
            at.and_then(|at| host.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
        }
        None => host.eq_ignore_ascii_case(wanted),
    }
}

/// Removes the port and the trailing dot of a fully qualified name.
fn strip_port(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(list: &[(Option<&str>, &str)]) -> RouteTable {
        let route = |(upstream, (host, prefix)): (usize, &(Option<&str>, &str))| UpstreamRoute {
            host: host.map(str::to_owned),
            prefix: (*prefix).to_owned(),
            upstream,
        };
        RouteTable::new(list.iter().enumerate().map(route).collect())
    }

    #[test]
    fn most_specific_route_wins() {
        let routes = routes(&[
            (None, "/"),
            (None, "/api/"),
            (None, "/api/v2"),
            (Some("*.example.com"), "/"),
            (Some("API.example.com"), "/"),
            (Some("api.example.com"), "/api"),
        ]);
        for (host, path, upstream) in [
            (None, "/", 0),
            (Some("other"), "/apis", 0),
            (Some("other"), "/api", 1),
            (Some("other:8080"), "/api/v1", 1),
            (Some("other"), "/api/v2/x", 2),
            (Some("www.example.com"), "/api", 3),
            (Some("a.b.EXAMPLE.com:80"), "/", 3),
            (Some("example.com"), "/", 0),
            (Some("api.example.com."), "/x", 4),
            (Some("Api.Example.Com:443"), "/api/x", 5),
            (Some("[::1]:80"), "/api", 1),
        ] {
            assert_eq!(routes.find(host, path), Some(upstream), "{host:?} {path}");
        }
    }

    #[test]
    fn unmatched_request_has_no_upstream() {
        let routes = routes(&[(Some("a"), "/"), (None, "/api")]);
        assert_eq!(routes.find(Some("b"), "/"), None);
        assert_eq!(routes.find(None, "/apis"), None);
    }
}
