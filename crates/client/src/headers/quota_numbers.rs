//! Reads the remaining quota from the header families in use: the IETF drafts 8 to 11 (`RateLimit`
//! and `RateLimit-Policy` as lists of policies), draft 7 (`RateLimit` as a dictionary), the drafts
//! before (`RateLimit-Limit`, `-Remaining`, `-Reset`), and `X-RateLimit-…`.
//!
//! The first family with valid numbers counts. Families that report the same limit differ in
//! precision, so mixing them would not be stricter, only less exact.

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};

use super::{number, values};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// More policies than any server needs. Bounds the work that a hostile response causes.
const MAX_POLICIES: usize = 16;

/// Prefixes of the older header families, the most reliable first. GitLab uses the first, X the
/// last.
const FAMILIES: [FamilyNames; 3] = [
    FamilyNames {
        limit: HeaderName::from_static("ratelimit-limit"),
        remaining: HeaderName::from_static("ratelimit-remaining"),
        reset: HeaderName::from_static("ratelimit-reset"),
        used: None,
    },
    FamilyNames {
        limit: HeaderName::from_static("x-ratelimit-limit"),
        remaining: HeaderName::from_static("x-ratelimit-remaining"),
        reset: HeaderName::from_static("x-ratelimit-reset"),
        used: Some(HeaderName::from_static("x-ratelimit-used")),
    },
    FamilyNames {
        limit: HeaderName::from_static("x-rate-limit-limit"),
        remaining: HeaderName::from_static("x-rate-limit-remaining"),
        reset: HeaderName::from_static("x-rate-limit-reset"),
        used: None,
    },
];

/// The remaining quota of one policy, in requests.
///
/// ```
/// use tidegate_client::ResponseHints;
///
/// let github = http::Response::builder()
///     .header("date", "Tue, 14 Nov 2023 22:13:20 GMT")
///     .header("x-ratelimit-limit", "5000")
///     .header("x-ratelimit-remaining", "4999")
///     .header("x-ratelimit-reset", "1700003600")
///     .body(())?;
/// let quota = &ResponseHints::from_response(&github, None).quotas[0];
/// assert_eq!((quota.remaining, quota.limit), (4999, Some(5000)));
/// assert_eq!(quota.reset_after.map(|span| span.as_secs()), Some(3600));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaNumbers {
    /// The name of the policy; empty if the server does not name it.
    pub policy: String,
    /// How many more requests pass within `reset_after`.
    pub remaining: u64,
    /// The whole quota, if the server reports it.
    pub limit: Option<u64>,
    /// The window of the quota, if the server reports it.
    pub window: Option<Duration>,
    /// The time in which no more than `remaining` pass: until the window ends, or until the bucket
    /// has refilled by one.
    pub reset_after: Option<Duration>,
}

struct FamilyNames {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
    used: Option<HeaderName>,
}

/// A member of `RateLimit-Policy`.
#[derive(Clone, Debug, Default)]
struct QuotaPolicy {
    name: String,
    limit: Option<u64>,
    window: Option<Duration>,
    /// Whether the policy counts requests, and not bytes or tokens.
    counts_requests: bool,
}

/// Reads the numbers of the first family that has valid ones.
pub(super) fn read(headers: &HeaderMap, server_time: Option<SystemTime>) -> Vec<QuotaNumbers> {
    let policies = read_policies(headers);
    let mut quotas = read_list(headers, &policies);
    if quotas.is_empty() {
        quotas.extend(read_dictionary(headers, &policies));
    }
    if quotas.is_empty() {
        let mut families = FAMILIES.into_iter();
        quotas.extend(families.find_map(|family| family.read(headers, &policies, server_time)));
    }
    quotas
}

/// Joins the lines of a header as RFC 9651 asks. `None` if one of them is not ASCII: the whole
/// field is then malformed.
fn join_lines(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Result<Vec<&str>, _> =
        headers.get_all(name).iter().map(http::HeaderValue::to_str).collect();
    lines.ok().map(|lines| lines.join(", "))
}

fn parse_list(headers: &HeaderMap, name: &HeaderName) -> Option<List> {
    Parser::new(&join_lines(headers, name)?).parse::<List>().ok()
}

fn read_policies(headers: &HeaderMap) -> Vec<QuotaPolicy> {
    let entries = parse_list(headers, &RATELIMIT_POLICY).unwrap_or_default();
    entries.iter().take(MAX_POLICIES).filter_map(QuotaPolicy::from_entry).collect()
}

impl QuotaPolicy {
    /// Reads `"name";q=100;w=60`, or `100;w=60` as in the drafts up to 7.
    fn from_entry(entry: &ListEntry) -> Option<Self> {
        let ListEntry::Item(item) = entry else { return None };
        let window = integer(&item.params, "w").filter(|secs| *secs > 0).map(Duration::from_secs);
        if let Some(limit) = item.bare_item.as_integer() {
            let limit = u64::try_from(i64::from(limit)).ok();
            return Some(Self { name: String::new(), limit, window, counts_requests: true });
        }
        let unit = item.params.get("qu").and_then(text).unwrap_or_default();
        Some(Self {
            name: text(&item.bare_item)?,
            limit: integer(&item.params, "q"),
            window,
            counts_requests: matches!(unit.as_str(), "" | "request" | "requests"),
        })
    }
}

/// Reads `RateLimit: "name";r=50;t=30`. An open change of the draft renames `r` to `a` and `t` to
/// `w`; both spellings count.
fn read_list(headers: &HeaderMap, policies: &[QuotaPolicy]) -> Vec<QuotaNumbers> {
    let entries = parse_list(headers, &RATELIMIT).unwrap_or_default();
    let read_entry = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { return None };
        let (name, params) = (text(&item.bare_item)?, &item.params);
        let policy = policies.iter().find(|policy| policy.name == name);
        let remaining = integer(params, "r").or_else(|| integer(params, "a"))?;
        if policy.is_some_and(|policy| !policy.counts_requests) {
            return None;
        }
        let reset_after = integer(params, "t").or_else(|| integer(params, "w"));
        Some(QuotaNumbers {
            remaining,
            limit: policy.and_then(|policy| policy.limit),
            window: policy.and_then(|policy| policy.window),
            reset_after: reset_after.map(Duration::from_secs),
            policy: name,
        })
    };
    entries.iter().take(MAX_POLICIES).filter_map(read_entry).collect()
}

/// Reads `RateLimit: limit=100, remaining=50, reset=30` of draft 7.
fn read_dictionary(headers: &HeaderMap, policies: &[QuotaPolicy]) -> Option<QuotaNumbers> {
    let dictionary = Parser::new(&join_lines(headers, &RATELIMIT)?).parse::<Dictionary>().ok()?;
    let member = |name: &str| {
        let ListEntry::Item(item) = dictionary.get(name)? else { return None };
        u64::try_from(i64::from(item.bare_item.as_integer()?)).ok()
    };
    let limit = member("limit");
    Some(QuotaNumbers {
        policy: String::new(),
        remaining: member("remaining")?,
        limit,
        window: window_of(policies, limit),
        reset_after: member("reset").map(Duration::from_secs),
    })
}

impl FamilyNames {
    /// Reads three separate headers. Of repeated values the strictest counts.
    fn read(
        &self,
        headers: &HeaderMap,
        policies: &[QuotaPolicy],
        server_time: Option<SystemTime>,
    ) -> Option<QuotaNumbers> {
        let remaining = values(headers, &self.remaining).filter_map(number::parse).min()?;
        // Envoy sends `10, 10;w=60;name="x"`: the limit in effect, and then its policies.
        let first_number = |value: &str| value.split([',', ';']).next().and_then(number::parse);
        let used = self.used.as_ref().and_then(|name| values(headers, name).find_map(first_number));
        let limit = values(headers, &self.limit).filter_map(first_number).min();
        let limit = limit.or_else(|| Some(used? + remaining));
        let resets = values(headers, &self.reset);
        let reset_after = resets.filter_map(|text| parse_reset(text, server_time)).max();
        let window = window_of(policies, limit).or_else(|| {
            let listed = parse_list(headers, &self.limit)?;
            let listed: Vec<_> = listed.iter().filter_map(QuotaPolicy::from_entry).collect();
            window_of(&listed, limit)
        });
        Some(QuotaNumbers { policy: String::new(), remaining, limit, window, reset_after })
    }
}

/// The window of the policy with this limit.
fn window_of(policies: &[QuotaPolicy], limit: Option<u64>) -> Option<Duration> {
    let fitting = policies.iter().filter(|policy| policy.limit.is_some() && policy.limit == limit);
    fitting.filter_map(|policy| policy.window).max()
}

/// Parses a reset: seconds from now, epoch seconds, epoch milliseconds or a date. Seconds from now
/// above 1 000 000 000 would be 31 years, and epoch seconds above 1 000 000 000 000 would be 31 000
/// years, so the forms cannot be confused. `None` if it has passed: the numbers are then outdated.
fn parse_reset(text: &str, server_time: Option<SystemTime>) -> Option<Duration> {
    let since_epoch = match number::parse(text) {
        Some(secs @ ..=1_000_000_000) => return Some(Duration::from_secs(secs)),
        Some(secs @ ..=1_000_000_000_000) => Duration::from_secs(secs),
        Some(millis) => Duration::from_millis(millis),
        None => {
            let date = httpdate::parse_http_date(text.trim()).ok()?;
            return date.duration_since(server_time?).ok();
        }
    };
    let now = server_time?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    since_epoch.checked_sub(now)
}

fn integer(params: &Parameters, name: &str) -> Option<u64> {
    let integer = params.get(name)?.as_integer()?;
    u64::try_from(i64::from(integer)).ok()
}

/// A String or a Token.
fn text(item: &BareItem) -> Option<String> {
    match item {
        BareItem::String(text) => Some(text.as_str().to_owned()),
        BareItem::Token(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}
