//! Endpoint patterns: `POST /api/*`, `/users/{id}`, `GET|HEAD /files/*`, `*`.
//!
//! `{name}` matches one segment, and a `*` at the end matches everything below. Empty segments are
//! ignored in patterns and in paths: `/login/` and `//login` equal `/login`, and `/api/*` also
//! matches `/api`. This is the strict choice, because most routers serve the same resource for
//! these paths.

use std::fmt;

use smallvec::SmallVec;

use super::require_canonical_path;
use crate::diagnostic::FieldError;
use crate::facts::Facts;
use crate::path_normalization::PathNormalization;

/// Maximum segments of a pattern. No real endpoint is deeper, and the trie of patterns is walked
/// recursively.
const MAX_SEGMENTS: usize = 64;

const PATTERN_SYNTAX: &str = "`/path`, `METHOD /path`, `/path/{name}`, `/path/*` or `*`";

/// A set of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointPattern {
    /// Empty for any method.
    pub(crate) methods: SmallVec<[Box<str>; 1]>,
    pub(crate) segments: Box<[PatternSegment]>,
    /// Whether the pattern also matches everything below.
    pub(crate) open_ended: bool,
    /// The path as written.
    pub(crate) template: Box<str>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PatternSegment {
    Literal(Box<str>),
    Any,
}

/// The endpoint of a request, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestEndpoint<'f> {
    pub(crate) method: Option<&'f str>,
    pub(crate) path: Option<&'f str>,
}

impl<'f> RequestEndpoint<'f> {
    /// An `endpoint` fact of the form `METHOD /path` or `/path` takes precedence over `method` and
    /// `path`.
    pub(crate) fn from_facts(facts: &'f Facts<'_>) -> Self {
        let method = facts.get("method");
        match facts.get("endpoint") {
            Some(path) if path.starts_with('/') => Self { method, path: Some(path) },
            Some(given) => match given.split_once(' ') {
                Some((method, path)) if path.starts_with('/') => {
                    Self { method: Some(method), path: Some(path) }
                }
                _ => Self { method, path: facts.get("path") },
            },
            None => Self { method, path: facts.get("path") },
        }
    }
}

/// The non-empty segments of a path.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

impl EndpointPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, FieldError> {
        let (methods, path) = match text.split_once(' ') {
            Some((methods, path)) => (parse_methods(methods, path.trim())?, path.trim()),
            None => (SmallVec::new(), text),
        };
        if path != "*" && !path.starts_with('/') {
            let error = FieldError::new("an endpoint pattern begins with `/`").with_found(text);
            let plain = !path.is_empty() && !path.contains([' ', '*']);
            return Err(error.with_hint(if plain {
                format!("`/{path}`")
            } else {
                PATTERN_SYNTAX.to_owned()
            }));
        }
        let mut names: Vec<&str> = segments(path).collect();
        let open = names.last() == Some(&"*");
        if open {
            names.pop();
        }
        if names.len() > MAX_SEGMENTS {
            let error = FieldError::new(format!("a pattern has at most {MAX_SEGMENTS} segments"));
            return Err(error.with_hint("a shorter one that ends in `/*`"));
        }
        let segments =
            names.into_iter().map(|name| parse_segment(name, text)).collect::<Result<_, _>>()?;
        require_canonical_path(path)?;
        Ok(Self { methods, segments, open_ended: open, template: path.into() })
    }

    /// A pattern that matches only this endpoint, as far as the endpoint is known.
    pub(crate) fn for_endpoint(endpoint: &RequestEndpoint<'_>) -> Self {
        let literal = |name: &str| PatternSegment::Literal(name.into());
        let path = endpoint.path;
        Self {
            methods: endpoint.method.into_iter().map(Into::into).collect(),
            segments: path.map(|path| segments(path).map(literal).collect()).unwrap_or_default(),
            open_ended: path.is_none(),
            template: path.unwrap_or("*").into(),
        }
    }

    /// The same pattern for normalized paths.
    pub(crate) fn with_normalized_paths(&self, paths: PathNormalization) -> Self {
        let folded = |segment: &PatternSegment| match segment {
            PatternSegment::Literal(text) => {
                PatternSegment::Literal(paths.fold_segment(text).into())
            }
            PatternSegment::Any => PatternSegment::Any,
        };
        Self { segments: self.segments.iter().map(folded).collect(), ..self.clone() }
    }

    /// Whether the pattern matches every request, even one without a known path.
    pub(crate) fn matches_everything(&self) -> bool {
        self.methods.is_empty() && self.matches_any_path()
    }

    /// Whether only the method matters.
    pub(crate) fn matches_any_path(&self) -> bool {
        self.open_ended && self.segments.is_empty()
    }

    pub(crate) fn allows_method(&self, method: Option<&str>) -> bool {
        self.methods.is_empty()
            || method.is_some_and(|method| self.methods.iter().any(|known| **known == *method))
    }

    pub(crate) fn matches(&self, endpoint: &RequestEndpoint<'_>) -> bool {
        self.allows_method(endpoint.method)
            && (self.matches_any_path()
                || endpoint.path.is_some_and(|path| self.matches_path(path)))
    }

    pub(crate) fn matches_path(&self, path: &str) -> bool {
        let mut given = segments(path);
        let fits = self.segments.iter().all(|wanted| match (wanted, given.next()) {
            (PatternSegment::Literal(literal), Some(segment)) => **literal == *segment,
            (PatternSegment::Any, Some(_)) => true,
            (_, None) => false,
        });
        fits && (self.open_ended || given.next().is_none())
    }

    /// Whether no request can match both.
    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        let methods = !self.methods.is_empty()
            && !other.methods.is_empty()
            && !self.methods.iter().any(|method| other.methods.contains(method));
        let differ = self.segments.iter().zip(&other.segments).any(|pair| match pair {
            (PatternSegment::Literal(one), PatternSegment::Literal(two)) => one != two,
            _ => false,
        });
        let (short, long) = (self.segments.len(), other.segments.len());
        let lengths = (short < long && !self.open_ended) || (long < short && !other.open_ended);
        methods || differ || lengths
    }
}

fn parse_methods(text: &str, path: &str) -> Result<SmallVec<[Box<str>; 1]>, FieldError> {
    let upper = text.to_ascii_uppercase();
    if text.is_empty() || !upper.split('|').all(is_method) {
        let error = FieldError::new("this is not an HTTP method").with_found(text);
        return Err(error.with_hint("`POST /path`, `GET|HEAD /path`, or `/path` for any method"));
    }
    if text != upper {
        let error = FieldError::new("methods are written in upper case").with_found(text);
        return Err(error.with_hint(format!("`{upper} {path}`")));
    }
    Ok(text.split('|').map(Into::into).collect())
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

fn parse_segment(name: &str, whole: &str) -> Result<PatternSegment, FieldError> {
    let wrong = |message: &str| FieldError::new(message).with_found(whole);
    if let Some(inner) = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        if !is_placeholder_name(inner) {
            let message = "a placeholder has a name of letters, digits and `_`";
            return Err(wrong(message).with_hint("for instance `{id}`"));
        }
        return Ok(PatternSegment::Any);
    }
    if let Some(hint) = to_brace_placeholders(whole).filter(|_| name.starts_with(':')) {
        return Err(wrong("a placeholder is written in braces").with_hint(format!("`{hint}`")));
    }
    if name.contains('*') {
        let hint = "`{name}` for one segment, or `/*` at the end for everything below";
        return Err(wrong("a `*` can only be the last segment, whole").with_hint(hint));
    }
    if name.contains(['{', '}']) {
        let message = "a placeholder is a whole segment";
        return Err(wrong(message).with_hint("for instance `/users/{id}`"));
    }
    if name.contains([' ', '?', '#']) || name.contains(char::is_control) {
        let message = "a pattern is a path alone, without spaces, query or fragment";
        return Err(wrong(message).with_hint(PATTERN_SYNTAX));
    }
    Ok(PatternSegment::Literal(name.into()))
}

/// Rewrites the placeholders of Express and Rails, such as `/users/:id`, with braces. Returns
/// `None` if the path has none.
pub(crate) fn to_brace_placeholders(path: &str) -> Option<String> {
    let named = |segment: &str| {
        let name = segment.strip_prefix(':').filter(|name| is_placeholder_name(name))?;
        Some(format!("{{{name}}}"))
    };
    let segments: Vec<_> = path.split('/').map(|segment| (segment, named(segment))).collect();
    let text = |(segment, named): &(&str, Option<String>)| {
        named.clone().unwrap_or_else(|| (*segment).to_owned())
    };
    let any = segments.iter().any(|(_, named)| named.is_some());
    any.then(|| segments.iter().map(text).collect::<Vec<_>>().join("/"))
}

/// Whether the text is a valid placeholder name.
fn is_placeholder_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for EndpointPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join("|"))?;
        }
        f.write_str(&self.template)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern_matches(pattern: &str, endpoint: &str) -> bool {
        let facts: Facts = [("endpoint", endpoint)].into_iter().collect();
        EndpointPattern::parse(pattern).unwrap().matches(&RequestEndpoint::from_facts(&facts))
    }

    #[test]
    fn patterns_match_methods_and_paths() {
        for (pattern, yes, no) in [
            ("*", vec!["GET /", "POST /a/b", "/"], vec![]),
            ("/", vec!["GET /", "//"], vec!["/a"]),
            ("/a", vec!["/a", "/a/", "//a", "PUT /a"], vec!["/", "/a/b", "/A"]),
            ("POST /a", vec!["POST /a"], vec!["GET /a", "/a"]),
            ("GET|HEAD /a", vec!["GET /a", "HEAD /a"], vec!["POST /a"]),
            ("POST *", vec!["POST /", "POST /a/b"], vec!["GET /"]),
            ("/api/*", vec!["/api", "/api/", "/api/x", "/api/x/y"], vec!["/apix", "/"]),
            ("/u/{id}", vec!["/u/7", "/u/7/"], vec!["/u", "/u/7/x"]),
            ("/u/{id}/*", vec!["/u/7", "/u/7/x/y"], vec!["/u"]),
        ] {
            assert!(yes.iter().all(|endpoint| pattern_matches(pattern, endpoint)), "{pattern}");
            assert!(!no.iter().any(|endpoint| pattern_matches(pattern, endpoint)), "{pattern}");
        }
    }

    #[test]
    fn invalid_pattern_error_has_hint() {
        for (pattern, hint) in [
            ("api/x", "`/api/x`"),
            ("", "`/path`"),
            ("post /x", "`POST /x`"),
            ("POST  x", "`/x`"),
            ("9 /x", "any method"),
            ("/a*", "`/*` at the end"),
            ("/a/*/b", "`{name}`"),
            ("/a/{}", "`{id}`"),
            ("/api/:id", "`/api/{id}`"),
            ("GET /api/:id/:idx/*", "`GET /api/{id}/{idx}/*`"),
            ("/a/{b", "`/users/{id}`"),
            ("/a?b=c", "`/path`"),
        ] {
            let written = EndpointPattern::parse(pattern).unwrap_err().hint.unwrap();
            assert!(written.contains(hint), "{pattern}: {written}");
        }
        assert!(EndpointPattern::parse(&"/a".repeat(65)).is_err());
    }

    #[test]
    fn disjoint_patterns_share_no_request() {
        let disjoint = |a: &str, b: &str| {
            let (a, b) = (EndpointPattern::parse(a).unwrap(), EndpointPattern::parse(b).unwrap());
            assert_eq!(a.is_disjoint(&b), b.is_disjoint(&a));
            a.is_disjoint(&b)
        };
        assert!(disjoint("GET /a", "POST /a") && disjoint("/a", "/b") && disjoint("/a", "/a/b"));
        assert!(disjoint("/a/{x}/*", "/a") && disjoint("/a/*", "/b/*"));
        assert!(!disjoint("/a/*", "/a") && !disjoint("/{x}", "/a") && !disjoint("GET /a", "/a"));
        assert!(!disjoint("*", "POST /a/b") && !disjoint("/a/*", "/a/b/{c}"));
    }
}
