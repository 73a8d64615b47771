//! Which upstream a request is for, by its host and the beginning of its path.

/// One way to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRoute {
    /// The host that it is for, without a port; `*.example.com` for all below; none for every host.
    pub host: Option<String>,
    /// How the path begins, segment by segment: `/api` is for `/api` and `/api/x`, not for `/apis`.
    pub prefix: String,
    /// The upstream's place among them.
    pub upstream: usize,
}

/// All ways, the most specific first.
#[derive(Debug)]
pub(super) struct RouteTable(Vec<UpstreamRoute>);

impl RouteTable {
    pub(super) fn new(mut routes: Vec<UpstreamRoute>) -> Self {
        for route in &mut routes {
            route.prefix.truncate(route.prefix.trim_end_matches('/').len());
            route.host.as_mut().into_iter().for_each(|host| host.make_ascii_lowercase());
        }
        // A named host before a wildcard, a long one before a short one, then the longest prefix; of
        // equals the first.
        routes.sort_by_key(|route| {
            let host = route.host.as_deref().unwrap_or_default();
            let named = usize::from(!host.is_empty()) + usize::from(!host.starts_with('*'));
            std::cmp::Reverse((named, host.len(), route.prefix.len()))
        });
        Self(routes)
    }

    /// The upstream for a request.
    pub(super) fn find(&self, host: Option<&str>, path: &str) -> Option<usize> {
        let host = host.map(strip_port);
        let fits = |route: &&UpstreamRoute| {
            let host_fits = match &route.host {
                None => true,
                Some(wanted) => host.is_some_and(|host| host_matches(wanted, host)),
            };
            host_fits && has_path_prefix(path, &route.prefix)
        };
        self.0.iter().find(fits).map(|route| route.upstream)
    }
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

/// A name that ends with a dot is the same name.
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
