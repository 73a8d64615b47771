//! Endpoint patterns: `POST /api/*`, `/users/{id}`, `GET|HEAD /files/*`, `*`.
//!
//! A `{name}` stands for one segment, a `*` at the end for everything below. Empty segments do not
//! count, in patterns or in paths: `/login/` and `//login` are `/login`, and `/api/*` matches
//! `/api` as well. That is the strict side, because most routers serve the same thing there.

use std::fmt;

use smallvec::SmallVec;

use crate::facts::Facts;
use crate::paths::Paths;
use crate::problem::Remark;

/// A deeper pattern is no endpoint, and the trie of patterns is walked recursively.
const MAX_SEGMENTS: usize = 64;

const FORM: &str = "`/path`, `METHOD /path`, `/path/{name}`, `/path/*` or `*`";

/// Which endpoints are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// None for any method.
    pub(crate) methods: SmallVec<[Box<str>; 1]>,
    pub(crate) segments: Box<[Segment]>,
    /// Whether everything below is meant too.
    pub(crate) open: bool,
    /// The path as typed.
    pub(crate) template: Box<str>,
}

/// One piece of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    Literal(Box<str>),
    Any,
}

/// The endpoint that a request is for, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'f> {
    pub(crate) method: Option<&'f str>,
    pub(crate) path: Option<&'f str>,
}

impl<'f> Endpoint<'f> {
    /// An `endpoint` fact that reads `METHOD /path` or `/path` counts before `method` and `path`.
    pub(crate) fn of(facts: &'f Facts<'_>) -> Self {
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

/// The segments of a path that count.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, Remark> {
        let (methods, path) = match text.split_once(' ') {
            Some((methods, path)) => (parse_methods(methods, path.trim())?, path.trim()),
            None => (SmallVec::new(), text),
        };
        if path != "*" && !path.starts_with('/') {
            let remark = Remark::new("an endpoint pattern begins with `/`").found(text);
            let plain = !path.is_empty() && !path.contains([' ', '*']);
            return Err(remark.write(if plain { format!("`/{path}`") } else { FORM.to_owned() }));
        }
        let mut names: Vec<&str> = segments(path).collect();
        let open = names.last() == Some(&"*");
        if open {
            names.pop();
        }
        if names.len() > MAX_SEGMENTS {
            let remark = Remark::new(format!("a pattern has at most {MAX_SEGMENTS} segments"));
            return Err(remark.write("a shorter one that ends in `/*`"));
        }
        let segments =
            names.into_iter().map(|name| parse_segment(name, text)).collect::<Result<_, _>>()?;
        Ok(Self { methods, segments, open, template: path.into() })
    }

    /// The endpoint of a request as far as it is known, as the pattern that matches nothing else.
    pub(crate) fn of(endpoint: &Endpoint<'_>) -> Self {
        let literal = |name: &str| Segment::Literal(name.into());
        let path = endpoint.path;
        Self {
            methods: endpoint.method.into_iter().map(Into::into).collect(),
            segments: path.map(|path| segments(path).map(literal).collect()).unwrap_or_default(),
            open: path.is_none(),
            template: path.unwrap_or("*").into(),
        }
    }

    /// The same pattern for paths that were put into their form for comparison.
    pub(crate) fn under(&self, paths: Paths) -> Self {
        let folded = |segment: &Segment| match segment {
            Segment::Literal(text) => Segment::Literal(paths.folded_segment(text).into()),
            Segment::Any => Segment::Any,
        };
        Self { segments: self.segments.iter().map(folded).collect(), ..self.clone() }
    }

    /// Whether it matches every request, even one whose path is not known.
    pub(crate) fn is_anything(&self) -> bool {
        self.methods.is_empty() && self.is_any_path()
    }

    /// Whether only the method matters.
    pub(crate) fn is_any_path(&self) -> bool {
        self.open && self.segments.is_empty()
    }

    pub(crate) fn admits_method(&self, method: Option<&str>) -> bool {
        self.methods.is_empty()
            || method.is_some_and(|method| self.methods.iter().any(|known| **known == *method))
    }

    pub(crate) fn matches(&self, endpoint: &Endpoint<'_>) -> bool {
        self.admits_method(endpoint.method)
            && (self.is_any_path() || endpoint.path.is_some_and(|path| self.matches_path(path)))
    }

    pub(crate) fn matches_path(&self, path: &str) -> bool {
        let mut given = segments(path);
        let fits = self.segments.iter().all(|wanted| match (wanted, given.next()) {
            (Segment::Literal(literal), Some(segment)) => **literal == *segment,
            (Segment::Any, Some(_)) => true,
            (_, None) => false,
        });
        fits && (self.open || given.next().is_none())
    }

    /// Whether no request matches both.
    pub(crate) fn disjoint(&self, other: &Self) -> bool {
        let methods = !self.methods.is_empty()
            && !other.methods.is_empty()
            && !self.methods.iter().any(|method| other.methods.contains(method));
        let differ = self.segments.iter().zip(&other.segments).any(|pair| match pair {
            (Segment::Literal(one), Segment::Literal(two)) => one != two,
            _ => false,
        });
        let (short, long) = (self.segments.len(), other.segments.len());
        let lengths = (short < long && !self.open) || (long < short && !other.open);
        methods || differ || lengths
    }
}

fn parse_methods(text: &str, path: &str) -> Result<SmallVec<[Box<str>; 1]>, Remark> {
    let upper = text.to_ascii_uppercase();
    if text.is_empty() || !upper.split('|').all(is_method) {
        let remark = Remark::new("this is not an HTTP method").found(text);
        return Err(remark.write("`POST /path`, `GET|HEAD /path`, or `/path` for any method"));
    }
    if text != upper {
        let remark = Remark::new("methods are written in upper case").found(text);
        return Err(remark.write(format!("`{upper} {path}`")));
    }
    Ok(text.split('|').map(Into::into).collect())
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

fn parse_segment(name: &str, whole: &str) -> Result<Segment, Remark> {
    let wrong = |message: &str| Remark::new(message).found(whole);
    if let Some(inner) = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        if !is_name(inner) {
            let message = "a placeholder has a name of letters, digits and `_`";
            return Err(wrong(message).write("for instance `{id}`"));
        }
        return Ok(Segment::Any);
    }
    if let Some(hint) = in_braces(whole).filter(|_| name.starts_with(':')) {
        return Err(wrong("a placeholder is written in braces").write(format!("`{hint}`")));
    }
    if name.contains('*') {
        let hint = "`{name}` for one segment, or `/*` at the end for everything below";
        return Err(wrong("a `*` can only be the last segment, whole").write(hint));
    }
    if name.contains(['{', '}']) {
        let message = "a placeholder is a whole segment";
        return Err(wrong(message).write("for instance `/users/{id}`"));
    }
    if name.contains([' ', '?', '#']) || name.contains(char::is_control) {
        let message = "a pattern is a path alone, without spaces, query or fragment";
        return Err(wrong(message).write(FORM));
    }
    Ok(Segment::Literal(name.into()))
}

/// The path with placeholders as Express and Rails write them, `/users/:id`, written in braces;
/// nothing if it has none.
pub(crate) fn in_braces(path: &str) -> Option<String> {
    let named = |segment: &str| {
        let name = segment.strip_prefix(':').filter(|name| is_name(name))?;
        Some(format!("{{{name}}}"))
    };
    let segments: Vec<_> = path.split('/').map(|segment| (segment, named(segment))).collect();
    let text = |(segment, named): &(&str, Option<String>)| {
        named.clone().unwrap_or_else(|| (*segment).to_owned())
    };
    let any = segments.iter().any(|(_, named)| named.is_some());
    any.then(|| segments.iter().map(text).collect::<Vec<_>>().join("/"))
}

/// Whether this can be the name of a placeholder.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for Pattern {
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

    fn hit(pattern: &str, endpoint: &str) -> bool {
        let facts: Facts = [("endpoint", endpoint)].into_iter().collect();
        Pattern::parse(pattern).unwrap().matches(&Endpoint::of(&facts))
    }

    #[test]
    fn patterns_match_what_they_say() {
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
            assert!(yes.iter().all(|endpoint| hit(pattern, endpoint)), "{pattern}");
            assert!(!no.iter().any(|endpoint| hit(pattern, endpoint)), "{pattern}");
        }
    }

    #[test]
    fn bad_patterns_say_what_to_write() {
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
            let written = Pattern::parse(pattern).unwrap_err().hint.unwrap();
            assert!(written.contains(hint), "{pattern}: {written}");
        }
        assert!(Pattern::parse(&"/a".repeat(65)).is_err());
    }

    #[test]
    fn disjoint_patterns_share_no_request() {
        let disjoint = |a: &str, b: &str| {
            let (a, b) = (Pattern::parse(a).unwrap(), Pattern::parse(b).unwrap());
            assert_eq!(a.disjoint(&b), b.disjoint(&a));
            a.disjoint(&b)
        };
        assert!(disjoint("GET /a", "POST /a") && disjoint("/a", "/b") && disjoint("/a", "/a/b"));
        assert!(disjoint("/a/{x}/*", "/a") && disjoint("/a/*", "/b/*"));
        assert!(!disjoint("/a/*", "/a") && !disjoint("/{x}", "/a") && !disjoint("GET /a", "/a"));
        assert!(!disjoint("*", "POST /a/b") && !disjoint("/a/*", "/a/b/{c}"));
    }
}
