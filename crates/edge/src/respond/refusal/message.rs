//! Why a request is refused, in two sentences for people.
//!
//! Put together piece by piece: the formatting machinery took a third of what a whole refusal takes.

use std::fmt::Write as _;

use tidegate_core::decision::Verdict;

use super::super::told::{Counted, Told};

/// Room for most.
const USUAL_BYTES: usize = 128;

/// What is said of a refusal.
pub(super) fn of(told: Option<&Told<'_>>) -> String {
    let Some(told) = told else { return "The request is refused.".to_owned() };
    let mut said = String::with_capacity(USUAL_BYTES);
    said.push_str("Rule ");
    said.push_str(told.rule.id());
    said.push(' ');
    say_why(told, &mut said);
    said.push_str(". ");
    match told.wait_secs() {
        Some(secs) => {
            said.push_str("Retry after ");
            say_number(secs, "second", &mut said);
        }
        None => said.push_str("Retrying will not help"),
    }
    said.push('.');
    said
}

fn say_why(told: &Told<'_>, said: &mut String) {
    let counted = match told.counted() {
        _ if told.verdict == Verdict::Ban => {
            return said
                .push_str("bans this client for a while, after too many requests over its limit");
        }
        Some(counted) if counted.reset_at().is_none() => {
            return said.push_str("refuses requests for the moment");
        }
        None => return said.push_str("refuses requests of this kind"),
        Some(counted) => counted,
    };
    said.push_str("allows ");
    say_allowance(&counted, said);
    if told.wait.is_none() {
        said.push_str(", and this request alone costs more");
    }
}

/// Such as `20 requests per 2s`.
fn say_allowance(counted: &Counted<'_>, said: &mut String) {
    say_number(counted.numbers.limit, "request", said);
    if let Some(policy) = counted.rule.limit().policy() {
        // To write into a string cannot fail.
        let _ = write!(said, " per {}", policy.period());
    }
}

fn say_number(number: u64, of: &str, said: &mut String) {
    said.push_str(itoa::Buffer::new().format(number));
    said.push(' ');
    said.push_str(of);
    if number != 1 {
        said.push('s');
    }
}
