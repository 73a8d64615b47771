//! The headers that the rules read to identify the client and to determine the cost of a request.

use http::header::HeaderName;

/// The headers that the rules read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleInputHeaders(Vec<HeaderName>);

impl Extend<HeaderName> for RuleInputHeaders {
    fn extend<I: IntoIterator<Item = HeaderName>>(&mut self, names: I) {
        for name in names {
            if !self.0.contains(&name) {
                self.0.push(name);
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
    /// Whether the rules read a header of this name.
    pub fn contains(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }

    /// Whether the rules read a header whose name differs from this one only by `-` instead of `_`.
    /// CGI, WSGI, Rack and PHP map both names to one variable.
    pub fn contains_underscore_variant(&self, name: &HeaderName) -> bool {
        self.0.iter().any(|read| same_cgi_variable(read.as_str(), name.as_str()))
            && !self.contains(name)
    }
}

fn same_cgi_variable(one: &str, two: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    one.len() == two.len() && one.bytes().map(dashed).eq(two.bytes().map(dashed))
}
