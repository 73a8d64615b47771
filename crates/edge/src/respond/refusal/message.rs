//! Why a request is refused, in two sentences for people.

use tidegate_core::decision::Verdict;

use super::super::told::{Counted, Told};

/// What is said of a refusal.
pub(super) fn of(told: Option<&Told<'_>>) -> String {
    let Some(told) = told else { return "The request is refused.".to_owned() };
    let come_back = match told.wait_secs() {
        Some(1) => "Retry after 1 second.".to_owned(),
        Some(secs) => format!("Retry after {secs} seconds."),
        None => "Retrying will not help.".to_owned(),
    };
    format!("Rule {} {}. {come_back}", told.rule.id(), reason(told))
}

fn reason(told: &Told<'_>) -> String {
    match (told.counted(), told.wait) {
        _ if told.verdict == Verdict::Ban => {
            "bans this client for a while, after too many requests over its limit".to_owned()
        }
        _ if told.is_unknown() => "refuses requests for the moment".to_owned(),
        (None, _) => "refuses requests of this kind".to_owned(),
        (Some(counted), Some(_)) => format!("allows {}", allowance(&counted)),
        (Some(counted), None) => {
            format!("allows {}, and this request alone costs more", allowance(&counted))
        }
    }
}

/// Such as `20 requests per 2s`.
fn allowance(counted: &Counted<'_>) -> String {
    let requests = match counted.numbers.limit {
        1 => "1 request".to_owned(),
        limit => format!("{limit} requests"),
    };
    match counted.rule.limit().policy() {
        Some(policy) => format!("{requests} per {}", policy.period()),
        None => requests,
    }
}
