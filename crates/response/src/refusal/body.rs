//! The body of a refusal, in the media type that the `Accept` header prefers. JSON is the default;
//! problem+json (RFC 9457) is used only if the client names it.

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue};
use serde::Serialize;
use tidegate_core::decision::Verdict;
use tidegate_core::time::Timestamp;
use tidegate_limiter::Decision;

use super::super::accept::AcceptHeader;
use super::super::summary::{LimitSummary, ReportedCounter};
use tidegate_web::date::format_rfc3339;
use tidegate_web::json::write::write_value;
use tidegate_web::problem::HttpError;

/// The HTML page, without scripts or styles.
const REFUSAL_PAGE: &str = include_str!("../../assets/refused.html");

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const ABNORMAL_USAGE: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// Initial capacity, enough for most bodies.
const USUAL_BYTES: usize = 256;

/// A body and its media type.
pub(super) struct RefusalBody {
    pub(super) media_type: HeaderValue,
    pub(super) bytes: Bytes,
}

/// The supported body formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalFormat {
    Problem,
    Json,
    Text,
    Html,
}

impl RefusalFormat {
    /// The format with the highest quality in `Accept`; on a tie, the first in the list below.
    fn negotiate(request: &HeaderMap) -> Self {
        let accept = AcceptHeader::from_headers(request);
        let qualities = [
            (Self::Problem, accept.explicit_quality("application", "problem+json")),
            (Self::Json, accept.quality("application", "json")),
            (Self::Text, accept.quality("text", "plain")),
            (Self::Html, accept.quality("text", "html")),
        ];
        let most = qualities.iter().map(|(_, quality)| *quality).max().unwrap_or(0);
        let first = qualities.into_iter().find(|(_, quality)| *quality == most && most > 0);
        // If the client accepts none of them, JSON is still better than an empty body.
        first.map_or(Self::Json, |(format, _)| format)
    }

    const fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Problem => HttpError::MEDIA_TYPE,
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        })
    }
}

/// A problem document (RFC 9457) with the member that the draft's problem types define.
#[derive(Serialize)]
struct RefusalProblem<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<&'a str>,
}

impl RefusalBody {
    pub(super) fn render(
        decision: &Decision,
        summary: Option<&LimitSummary<'_>>,
        message: &str,
        request: &HeaderMap,
    ) -> Self {
        let format = RefusalFormat::negotiate(request);
        let bytes = match format {
            RefusalFormat::Problem => to_json(&build_problem(decision, summary, message)),
            RefusalFormat::Json => render_json(summary, message),
            RefusalFormat::Text => format!("Too many requests\n\n{message}\n").into_bytes(),
            RefusalFormat::Html => {
                REFUSAL_PAGE.replace("{message}", &escape_html(message)).into_bytes()
            }
        };
        Self { media_type: format.media_type(), bytes: bytes.into() }
    }
}

/// Renders the default JSON body.
fn render_json(summary: Option<&LimitSummary<'_>>, message: &str) -> Vec<u8> {
    let counter = summary.and_then(LimitSummary::counter);
    let reset_at = counter.as_ref().and_then(ReportedCounter::reset_at);
    let reset_at = reset_at.map(|at| format_rfc3339(at.since(Timestamp::EPOCH).as_secs_ceil()));
    let mut out = String::with_capacity(USUAL_BYTES);
    write_value(&mut out, r#"{"error":"rate_limit_exceeded","message":"#, message);
    write_value(&mut out, r#","limit":"#, counter.as_ref().map(|counter| counter.numbers.limit));
    write_value(&mut out, r#","retry_after":"#, summary.and_then(LimitSummary::wait_secs));
    write_value(&mut out, r#","reset_at":"#, reset_at.as_deref());
    out.push('}');
    out.into_bytes()
}

fn build_problem<'a>(
    decision: &'a Decision,
    summary: Option<&LimitSummary<'_>>,
    message: &'a str,
) -> RefusalProblem<'a> {
    let (r#type, title) = match summary {
        Some(summary) if summary.verdict == Verdict::Ban => {
            (ABNORMAL_USAGE, "Abnormal Usage Detected")
        }
        // No quota is known to be exceeded, so use the generic type and the status phrase.
        Some(summary) if summary.is_uncounted => ("about:blank", "Too Many Requests"),
        _ => (QUOTA_EXCEEDED, "Quota Exceeded"),
    };
    let refusing = decision.readings().filter(|(_, reading)| reading.verdict.refuses());
    RefusalProblem {
        r#type,
        title,
        status: StatusCode::TOO_MANY_REQUESTS.as_u16(),
        detail: message,
        violated_policies: refusing.map(|(rule, _)| rule.id()).collect(),
    }
}

fn to_json(view: &impl Serialize) -> Vec<u8> {
    // Serialization to memory cannot fail here: all keys are strings.
    serde_json::to_vec(view).unwrap_or_default()
}

/// Escapes text for use in HTML.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    fn negotiated_format(accept: &str) -> RefusalFormat {
        let value = HeaderValue::from_str(accept).unwrap();
        RefusalFormat::negotiate(&HeaderMap::from_iter([(ACCEPT, value)]))
    }

    #[test]
    fn json_is_default_refusal_format() {
        assert_eq!(RefusalFormat::negotiate(&HeaderMap::new()), RefusalFormat::Json);
        for (accept, format) in [
            ("*/*", RefusalFormat::Json),
            ("application/*", RefusalFormat::Json),
            ("application/json, text/plain, */*", RefusalFormat::Json),
            ("text/html, application/json", RefusalFormat::Json),
            ("image/png", RefusalFormat::Json),
            ("application/json;q=0", RefusalFormat::Json),
            ("nonsense", RefusalFormat::Json),
            ("application/problem+json", RefusalFormat::Problem),
            ("application/json, application/problem+json", RefusalFormat::Problem),
            ("application/problem+json, */*", RefusalFormat::Problem),
            ("application/problem+json;q=0.9, application/json", RefusalFormat::Json),
            ("application/problem+json;q=0.9, */*", RefusalFormat::Json),
            ("application/problem+json;q=0, application/json;q=0.1", RefusalFormat::Json),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                RefusalFormat::Html,
            ),
            ("text/html, application/problem+json;q=0.5", RefusalFormat::Html),
            ("text/plain", RefusalFormat::Text),
            ("text/*", RefusalFormat::Text),
            ("text/plain, application/json;q=0.9", RefusalFormat::Text),
        ] {
            assert_eq!(negotiated_format(accept), format, "{accept}");
        }
    }

    #[test]
    fn html_message_is_escaped() {
        assert_eq!(
            escape_html(r#"<a b="c" d='e'>&"#),
            "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;"
        );
    }
}
