//! The body of a refusal, in the media type that `Accept` prefers. JSON wins where nothing else is
//! wanted more, problem+json (RFC 9457) only where it is named.

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue};
use serde::Serialize;
use tidegate_core::decision::Verdict;
use tidegate_core::time::Timestamp;
use tidegate_engine::Decision;

use super::super::accept::Accept;
use super::super::told::{Counted, Told};
use crate::date::rfc3339;
use crate::json::write::put;
use crate::problem::Problem;

/// Plain enough to need neither scripts nor styles.
const PAGE: &str = include_str!("../../../assets/refused.html");

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const ABNORMAL_USAGE: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// Room for most.
const USUAL_BYTES: usize = 256;

/// A body and its media type.
pub(super) struct Body {
    pub(super) media_type: HeaderValue,
    pub(super) bytes: Bytes,
}

/// The kinds of bodies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Problem,
    Json,
    Text,
    Html,
}

impl Kind {
    /// The kind that a caller wants most; of those it wants alike, the first of these.
    fn wanted(request: &HeaderMap) -> Self {
        let accept = Accept::of(request);
        let qualities = [
            (Self::Problem, accept.named_quality("application", "problem+json")),
            (Self::Json, accept.quality("application", "json")),
            (Self::Text, accept.quality("text", "plain")),
            (Self::Html, accept.quality("text", "html")),
        ];
        let most = qualities.iter().map(|(_, quality)| *quality).max().unwrap_or(0);
        let first = qualities.into_iter().find(|(_, quality)| *quality == most && most > 0);
        // Whoever accepts none of them is better served with one that it may not understand.
        first.map_or(Self::Json, |(kind, _)| kind)
    }

    const fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Problem => Problem::MEDIA_TYPE,
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        })
    }
}

/// The form of RFC 9457, with the member that the problem types of the draft define.
#[derive(Serialize)]
struct RefusedProblem<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<&'a str>,
}

impl Body {
    pub(super) fn of(
        decision: &Decision,
        told: Option<&Told<'_>>,
        message: &str,
        request: &HeaderMap,
    ) -> Self {
        let kind = Kind::wanted(request);
        let bytes = match kind {
            Kind::Problem => json(&problem(decision, told, message)),
            Kind::Json => plain(told, message),
            Kind::Text => format!("Too many requests\n\n{message}\n").into_bytes(),
            Kind::Html => PAGE.replace("{message}", &escaped(message)).into_bytes(),
        };
        Self { media_type: kind.media_type(), bytes: bytes.into() }
    }
}

/// The plain form.
fn plain(told: Option<&Told<'_>>, message: &str) -> Vec<u8> {
    let counted = told.and_then(Told::counted);
    let reset_at = counted.as_ref().and_then(Counted::reset_at);
    let reset_at = reset_at.map(|at| rfc3339(at.since(Timestamp::EPOCH).as_secs_ceil()));
    let mut out = String::with_capacity(USUAL_BYTES);
    put(&mut out, r#"{"error":"rate_limit_exceeded","message":"#, message);
    put(&mut out, r#","limit":"#, counted.as_ref().map(|counted| counted.numbers.limit));
    put(&mut out, r#","retry_after":"#, told.and_then(Told::wait_secs));
    put(&mut out, r#","reset_at":"#, reset_at.as_deref());
    out.push('}');
    out.into_bytes()
}

fn problem<'a>(
    decision: &'a Decision,
    told: Option<&Told<'_>>,
    message: &'a str,
) -> RefusedProblem<'a> {
    let (r#type, title) = match told {
        Some(told) if told.verdict == Verdict::Ban => (ABNORMAL_USAGE, "Abnormal Usage Detected"),
        // No quota is known to be exceeded; so the title is the status' own phrase.
        Some(told) if told.is_unknown => ("about:blank", "Too Many Requests"),
        _ => (QUOTA_EXCEEDED, "Quota Exceeded"),
    };
    let refusing = decision.readings().filter(|(_, reading)| reading.verdict.refuses());
    RefusedProblem {
        r#type,
        title,
        status: StatusCode::TOO_MANY_REQUESTS.as_u16(),
        detail: message,
        violated_policies: refusing.map(|(rule, _)| rule.id()).collect(),
    }
}

fn json(view: &impl Serialize) -> Vec<u8> {
    // Text for names, written into memory: there is nothing that could fail.
    serde_json::to_vec(view).unwrap_or_default()
}

/// Text that a page shows as it is.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    fn wanted(accept: &str) -> Kind {
        let value = HeaderValue::from_str(accept).unwrap();
        Kind::wanted(&HeaderMap::from_iter([(ACCEPT, value)]))
    }

    #[test]
    fn json_wins_unless_something_else_is_wanted_more() {
        assert_eq!(Kind::wanted(&HeaderMap::new()), Kind::Json);
        for (accept, kind) in [
            ("*/*", Kind::Json),
            ("application/*", Kind::Json),
            ("application/json, text/plain, */*", Kind::Json),
            ("text/html, application/json", Kind::Json),
            ("image/png", Kind::Json),
            ("application/json;q=0", Kind::Json),
            ("nonsense", Kind::Json),
            ("application/problem+json", Kind::Problem),
            ("application/json, application/problem+json", Kind::Problem),
            ("application/problem+json, */*", Kind::Problem),
            ("application/problem+json;q=0.9, application/json", Kind::Json),
            ("application/problem+json;q=0.9, */*", Kind::Json),
            ("application/problem+json;q=0, application/json;q=0.1", Kind::Json),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Kind::Html),
            ("text/html, application/problem+json;q=0.5", Kind::Html),
            ("text/plain", Kind::Text),
            ("text/*", Kind::Text),
            ("text/plain, application/json;q=0.9", Kind::Text),
        ] {
            assert_eq!(wanted(accept), kind, "{accept}");
        }
    }

    #[test]
    fn a_page_shows_text_and_nothing_else() {
        assert_eq!(escaped(r#"<a b="c" d='e'>&"#), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
    }
}
