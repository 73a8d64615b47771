//! `Accept` (RFC 9110 section 12.5.1): how much a caller wants a media type.
//!
//! A header that is not well formed counts as `*/*`: a refusal is no occasion to refuse once more.
//! Parameters other than `q` are read over, because no answer of ours has variants by them.

use http::header::{ACCEPT, HeaderMap};

/// How much a media type is wanted, in thousandths.
type Quality = u16;

const FULL: Quality = 1_000;

/// What a caller accepts.
#[derive(Debug, Default)]
pub(super) struct Accept<'a> {
    /// None is everything, alike.
    ranges: Vec<Range<'a>>,
}

/// `text/html`, `text/*` or `*/*`, with its quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: Quality,
}

impl<'a> Accept<'a> {
    /// What the headers of a request say.
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let mut ranges = Vec::new();
        for line in headers.get_all(ACCEPT) {
            let Some(line) = line.to_str().ok().and_then(ranges_of) else {
                return Self::default();
            };
            ranges.extend(line);
        }
        Self { ranges }
    }

    /// How much a media type is wanted: what the most specific range says that has it.
    pub(super) fn quality(&self, kind: &str, subtype: &str) -> Quality {
        if self.ranges.is_empty() {
            return FULL;
        }
        let fitting = self.ranges.iter().filter(|range| range.has(kind, subtype));
        let best = fitting.max_by_key(|range| (range.specificity(), range.quality));
        best.map_or(0, |range| range.quality)
    }

    /// The same, but only for who names it.
    pub(super) fn named_quality(&self, kind: &str, subtype: &str) -> Quality {
        let named = self.ranges.iter().filter(|range| range.names(kind, subtype));
        named.map(|range| range.quality).max().unwrap_or(0)
    }
}

impl Range<'_> {
    fn names(&self, kind: &str, subtype: &str) -> bool {
        self.kind.eq_ignore_ascii_case(kind) && self.subtype.eq_ignore_ascii_case(subtype)
    }

    fn has(&self, kind: &str, subtype: &str) -> bool {
        self.names(kind, subtype)
            || self.subtype == "*" && (self.kind == "*" || self.kind.eq_ignore_ascii_case(kind))
    }

    fn specificity(&self) -> u8 {
        u8::from(self.kind != "*") + u8::from(self.subtype != "*")
    }
}

/// The ranges of one line; none if it is not well formed. Empty elements are allowed.
fn ranges_of(line: &str) -> Option<Vec<Range<'_>>> {
    let elements = split(line, b',').map(trim).filter(|element| !element.is_empty());
    elements.map(range_of).collect()
}

fn range_of(element: &str) -> Option<Range<'_>> {
    let mut parts = split(element, b';').map(trim);
    let (kind, subtype) = parts.next()?.split_once('/')?;
    let wild = (kind == "*", subtype == "*");
    if !is_token(kind) || !is_token(subtype) || wild == (true, false) {
        return None;
    }
    let mut quality = FULL;
    for parameter in parts.filter(|part| !part.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !is_token(name) || !(value.is_empty() || is_token(value) || is_quoted(value)) {
            return None;
        }
        if name.eq_ignore_ascii_case("q") {
            quality = quality_of(value)?;
        }
    }
    Some(Range { kind, subtype, quality })
}

/// `0` to `1` with up to three decimals.
fn quality_of(text: &str) -> Option<Quality> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = decimals.len() <= 3 && decimals.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !matches!(whole, "0" | "1") {
        return None;
    }
    let thousandths = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= FULL).then_some(thousandths)
}

/// The parts between separators, those inside a quoted string not counted.
fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c: char| {
        if escaped {
            escaped = false;
            return false;
        }
        match c {
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return !quoted && c == char::from(separator),
        }
        false
    })
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

fn is_quoted(text: &str) -> bool {
    text.len() >= 2 && text.starts_with('"') && text.ends_with('"')
}

/// RFC 9110 section 5.6.2.
pub(super) fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[&str]) -> HeaderMap {
        let value = |line: &&str| (ACCEPT, HeaderValue::from_str(line).unwrap());
        lines.iter().map(value).collect()
    }

    fn quality(lines: &[&str], kind: &str, subtype: &str) -> Quality {
        Accept::of(&headers(lines)).quality(kind, subtype)
    }

    #[test]
    fn the_most_specific_range_counts() {
        let lines = ["text/*;q=0.3, text/html;q=0.7, */*;q=0.5"];
        assert_eq!(quality(&lines, "text", "html"), 700);
        assert_eq!(quality(&lines, "text", "plain"), 300);
        assert_eq!(quality(&lines, "application", "json"), 500);
        assert_eq!(quality(&["text/html"], "application", "json"), 0);
        assert_eq!(quality(&["TEXT/HTML ; Q=0.25"], "text", "html"), 250);
    }

    #[test]
    fn lines_are_one_list_and_may_have_empty_elements() {
        let lines = [",, text/html;q=0.1 ,", "application/json;q=0.2"];
        assert_eq!(quality(&lines, "text", "html"), 100);
        assert_eq!(quality(&lines, "application", "json"), 200);
    }

    #[test]
    fn parameters_are_read_over() {
        let lines = [r#"text/html;level=1;profile="a, b;q=0, \" */*";q=0.4;ext, text/plain;q=0"#];
        assert_eq!(quality(&lines, "text", "html"), 400);
        assert_eq!(quality(&lines, "text", "plain"), 0);
    }

    #[test]
    fn what_says_nothing_or_is_not_well_formed_accepts_everything() {
        for lines in [
            &[][..],
            &[""],
            &[" , "],
            &["text"],
            &["text/"],
            &["*/html"],
            &["*; q=.2"],
            &["text/html;q=2"],
            &["text/html;q=1.001"],
            &["text/html;q=0.0001"],
            &["text/html;q="],
            &["text/html;q=-1"],
            &["text/html;q=0;=x"],
            &["text/html;q=0, te xt/plain"],
            &["text/html;a=\"b"],
            &["text/html;q=0", "nonsense"],
        ] {
            assert_eq!(quality(lines, "text", "html"), FULL, "{lines:?}");
            assert_eq!(quality(lines, "image", "png"), FULL, "{lines:?}");
            assert_eq!(Accept::of(&headers(lines)).named_quality("text", "html"), 0, "{lines:?}");
        }
    }

    #[test]
    fn only_a_name_names() {
        let lines = headers(&["application/*, */*, text/html;q=0.5"]);
        let accept = Accept::of(&lines);
        assert_eq!(accept.named_quality("application", "json"), 0);
        assert_eq!(accept.named_quality("text", "html"), 500);
    }

    #[test]
    fn every_quality_is_read() {
        for thousandths in 0..=FULL {
            let text = format!("{}.{:03}", thousandths / FULL, thousandths % FULL);
            assert_eq!(quality_of(&text), Some(thousandths), "{text}");
        }
        assert_eq!(
            (quality_of("0."), quality_of("1.0"), quality_of("0.5")),
            (Some(0), Some(1000), Some(500))
        );
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(line in "[ -~]{0,60}") {
            prop_assert!(quality(&[&line], "text", "html") <= FULL);
        }
    }
}
