//! The headers that the rules read to identify the client and to determine the cost of a request.

use http::header::HeaderName;

/// The headers that the rules read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleInputHeaders {
    from_anyone: Vec<HeaderName>,
    from_proxies: Vec<HeaderName>,
}

impl Extend<HeaderName> for RuleInputHeaders {
    /// Adds headers that the rules read from any client.
    fn extend<I: IntoIterator<Item = HeaderName>>(&mut self, names: I) {
        for name in names {
            if !self.from_anyone.contains(&name) {
                self.from_anyone.push(name);
            }
        }
    }
}

impl FromIterator<HeaderName> for RuleInputHeaders {
    fn from_iter<I: IntoIterator<Item = HeaderName>>(names: I) -> Self {
        let mut read = Self::default();
        read.extend(names);
        read
    }
}

impl RuleInputHeaders {
    /// Adds headers that the rules read only from trusted proxies.
    #[must_use]
    pub fn with_proxy_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.from_proxies.extend(names);
        self
    }

    /// Whether the rules read a header of this name.
    pub fn contains(&self, name: &HeaderName) -> bool {
        self.all().any(|read| read == name)
    }

    /// Whether the rules believe this header only if a trusted proxy sent it.
    pub fn is_proxy_only(&self, name: &HeaderName) -> bool {
        self.from_proxies.contains(name) && !self.from_anyone.contains(name)
    }

    fn all(&self) -> impl Iterator<Item = &HeaderName> {
        self.from_anyone.iter().chain(&self.from_proxies)
    }

    /// Whether the rules read a header whose name differs from this one only by `-` instead of `_`.
    /// CGI, WSGI, Rack and PHP map both names to one variable.
    pub fn contains_underscore_variant(&self, name: &HeaderName) -> bool {
        self.all().any(|read| same_cgi_variable(read.as_str(), name.as_str()))
            && !self.contains(name)
    }
}

fn same_cgi_variable(one: &str, two: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    one.len() == two.len() && one.bytes().map(dashed).eq(two.bytes().map(dashed))
}
