//! Parses the `Accept` header (RFC 9110 section 12.5.1): how much a client prefers a media type.
//!
//! A malformed header counts as `*/*`, because the request is already being refused. Parameters
//! other than `q` are ignored, because no response varies by them.

use http::header::{ACCEPT, HeaderMap};

/// The weight of a media type, in thousandths.
type QualityValue = u16;

const MAX_QUALITY: QualityValue = 1_000;

/// The media types that a client accepts.
#[derive(Debug, Default)]
pub(super) struct AcceptHeader<'a> {
    /// Empty if the client accepts everything equally.
    ranges: Vec<MediaRange<'a>>,
}

/// A media range such as `text/html`, `text/*` or `*/*`, with its quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: QualityValue,
}

impl<'a> AcceptHeader<'a> {
    /// Parses all `Accept` lines of a request.
    pub(super) fn from_headers(headers: &'a HeaderMap) -> Self {
        let mut ranges = Vec::new();
        for line in headers.get_all(ACCEPT) {
            let Some(line) = line.to_str().ok().and_then(parse_ranges) else {
                return Self::default();
            };
            ranges.extend(line);
        }
        Self { ranges }
    }

    /// The quality of a media type, from the most specific range that matches it.
    pub(super) fn quality(&self, kind: &str, subtype: &str) -> QualityValue {
        if self.ranges.is_empty() {
            return MAX_QUALITY;
        }
        let fitting = self.ranges.iter().filter(|range| range.matches(kind, subtype));
        let best = fitting.max_by_key(|range| (range.specificity(), range.quality));
        best.map_or(0, |range| range.quality)
    }

    /// The quality of a media type that the client names exactly, without wildcards; otherwise 0.
    pub(super) fn explicit_quality(&self, kind: &str, subtype: &str) -> QualityValue {
        let named = self.ranges.iter().filter(|range| range.matches_exactly(kind, subtype));
        named.map(|range| range.quality).max().unwrap_or(0)
    }
}

impl MediaRange<'_> {
    fn matches_exactly(&self, kind: &str, subtype: &str) -> bool {
        self.kind.eq_ignore_ascii_case(kind) && self.subtype.eq_ignore_ascii_case(subtype)
    }

    fn matches(&self, kind: &str, subtype: &str) -> bool {
        self.matches_exactly(kind, subtype)
            || self.subtype == "*" && (self.kind == "*" || self.kind.eq_ignore_ascii_case(kind))
    }

    fn specificity(&self) -> u8 {
        u8::from(self.kind != "*") + u8::from(self.subtype != "*")
    }
}

/// The ranges of one line; `None` if it is malformed. Empty elements are allowed.
fn parse_ranges(line: &str) -> Option<Vec<MediaRange<'_>>> {
    let elements = split_unquoted(line, b',').map(trim).filter(|element| !element.is_empty());
    elements.map(parse_range).collect()
}

fn parse_range(element: &str) -> Option<MediaRange<'_>> {
    let mut parts = split_unquoted(element, b';').map(trim);
    let (kind, subtype) = parts.next()?.split_once('/')?;
    let wild = (kind == "*", subtype == "*");
    if !is_token(kind) || !is_token(subtype) || wild == (true, false) {
        return None;
    }
    let mut quality = MAX_QUALITY;
    for parameter in parts.filter(|part| !part.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !is_token(name) || !(value.is_empty() || is_token(value) || is_quoted(value)) {
            return None;
        }
        if name.eq_ignore_ascii_case("q") {
            quality = parse_quality(value)?;
        }
    }
    Some(MediaRange { kind, subtype, quality })
}

/// Parses `0` to `1` with up to three decimals.
fn parse_quality(text: &str) -> Option<QualityValue> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = decimals.len() <= 3 && decimals.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !matches!(whole, "0" | "1") {
        return None;
    }
    let thousandths = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= MAX_QUALITY).then_some(thousandths)
}

/// Splits at separators outside of quoted strings.
fn split_unquoted(text: &str, separator: u8) -> impl Iterator<Item = &str> {
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

/// Whether a text is a token (RFC 9110 section 5.6.2).
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

    fn quality(lines: &[&str], kind: &str, subtype: &str) -> QualityValue {
        AcceptHeader::from_headers(&headers(lines)).quality(kind, subtype)
    }

    #[test]
    fn most_specific_media_range_wins() {
        let lines = ["text/*;q=0.3, text/html;q=0.7, */*;q=0.5"];
        assert_eq!(quality(&lines, "text", "html"), 700);
        assert_eq!(quality(&lines, "text", "plain"), 300);
        assert_eq!(quality(&lines, "application", "json"), 500);
        assert_eq!(quality(&["text/html"], "application", "json"), 0);
        assert_eq!(quality(&["TEXT/HTML ; Q=0.25"], "text", "html"), 250);
    }

    #[test]
    fn accept_lines_join_and_skip_empties() {
        let lines = [",, text/html;q=0.1 ,", "application/json;q=0.2"];
        assert_eq!(quality(&lines, "text", "html"), 100);
        assert_eq!(quality(&lines, "application", "json"), 200);
    }

    #[test]
    fn media_range_parameters_are_ignored() {
        let lines = [r#"text/html;level=1;profile="a, b;q=0, \" */*";q=0.4;ext, text/plain;q=0"#];
        assert_eq!(quality(&lines, "text", "html"), 400);
        assert_eq!(quality(&lines, "text", "plain"), 0);
    }

    #[test]
    fn missing_or_malformed_accept_allows_all() {
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
            assert_eq!(quality(lines, "text", "html"), MAX_QUALITY, "{lines:?}");
            assert_eq!(quality(lines, "image", "png"), MAX_QUALITY, "{lines:?}");
            assert_eq!(
                AcceptHeader::from_headers(&headers(lines)).explicit_quality("text", "html"),
                0,
                "{lines:?}"
            );
        }
    }

    #[test]
    fn wildcard_has_no_explicit_quality() {
        let lines = headers(&["application/*, */*, text/html;q=0.5"]);
        let accept = AcceptHeader::from_headers(&lines);
        assert_eq!(accept.explicit_quality("application", "json"), 0);
        assert_eq!(accept.explicit_quality("text", "html"), 500);
    }

    #[test]
    fn every_quality_value_is_parsed() {
        for thousandths in 0..=MAX_QUALITY {
            let text = format!("{}.{:03}", thousandths / MAX_QUALITY, thousandths % MAX_QUALITY);
            assert_eq!(parse_quality(&text), Some(thousandths), "{text}");
        }
        assert_eq!(
            (parse_quality("0."), parse_quality("1.0"), parse_quality("0.5")),
            (Some(0), Some(1000), Some(500))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_accept_parses_without_panic(line in "[ -~]{0,60}") {
            prop_assert!(quality(&[&line], "text", "html") <= MAX_QUALITY);
        }
    }
}
