//! `TIDEGATE.CHECK`, `TIDEGATE.PEEK` and `TIDEGATE.RESET`: commands that the rules decide.
//!
//! Facts are pairs of arguments. The decision is a map with the same names as in `/v1/check`.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_core::decision::{AnsweredBy, Retry};
use tidegate_core::store::Store;
use tidegate_core::time::Timestamp;
use tidegate_limiter::Decision;
use tidegate_rules::{ApiKind, Facts};

use super::RespApi;
use super::dispatch::{CommandDispatch, truncated_text};
use super::limiter_query::RespRuleAction;
use super::reply_writer::{ReplyWriter, RespVersion};
use super::session::RespSession;
use crate::counter_problem::{STORE_DOWN_NOT_RESET, missing_key_message};
use crate::json::retry_after_ms;
use tidegate_identity as extract;

/// The parsed arguments of a command.
#[derive(Debug)]
pub(super) struct RespRuleQuery<'a> {
    action: RespRuleAction,
    facts: Facts<'a>,
    cost: u32,
    rule: Option<&'a str>,
}

impl<'a> RespRuleQuery<'a> {
    /// Parses facts and options. Option names are case-insensitive, so `cost 5` is never mistaken
    /// for a fact.
    pub(super) fn parse(action: RespRuleAction, args: &'a [Cow<'_, [u8]>]) -> Result<Self, String> {
        let (mut cost, mut rule) = (None, None);
        let mut given: SmallVec<[(&str, &str); 8]> = SmallVec::new();
        let (pairs, rest) = args.as_chunks::<2>();
        if let [left] = rest {
            return Err(format!(
                "'{}' has no value; send facts and options in pairs",
                truncated_text(left)
            ));
        }
        for [name, value] in pairs {
            let (name, value) = (parse_utf8(name)?, parse_utf8(value)?);
            if name.eq_ignore_ascii_case("COST") && action != RespRuleAction::Reset {
                set_once(&mut cost, "COST", parse_cost(value)?)?;
            } else if name.eq_ignore_ascii_case("RULE") && action != RespRuleAction::Check {
                set_once(&mut rule, "RULE", value)?;
            } else if name.eq_ignore_ascii_case("COST") || name.eq_ignore_ascii_case("RULE") {
                let option = name.to_ascii_uppercase();
                return Err(format!("{option} is not an option of this command"));
            } else {
                given.push((name, value));
            }
        }
        let mut facts = extract::facts_from_pairs(given).map_err(|invalid| invalid.to_string())?;
        facts.set_api(ApiKind::Resp);
        Ok(Self { action, facts, cost: cost.unwrap_or(1), rule })
    }
}

fn parse_utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("'{}' is not UTF-8", truncated_text(bytes)))
}

fn parse_cost(text: &str) -> Result<u32, String> {
    let cost = text.parse().ok().filter(|cost| *cost > 0);
    cost.ok_or_else(|| format!("COST must be a whole number from 1 to {}", u32::MAX))
}

fn set_once<T>(option: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("duplicate {name}")),
    }
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Authorizes a command that reads or changes more than a decision does. Such commands are open
    /// to local callers and to callers that sent the token.
    pub(super) fn authorize_rule_command(
        &self,
        session: &RespSession,
        action: RespRuleAction,
        reply: &mut ReplyWriter<'_>,
    ) -> CommandDispatch {
        if session.caller.is_local() || session.authenticated {
            return CommandDispatch::Rules(action);
        }
        match self.token {
            Some(_) => reply.error("NOAUTH", "Authentication required."),
            None => reply.error(
                "NOPERM",
                "callers from another machine need a token: start tidegate with \
                 --admin-token-file FILE and send AUTH TOKEN",
            ),
        }
        CommandDispatch::Replied
    }

    pub(super) async fn execute_rule_query(
        &self,
        query: &RespRuleQuery<'_>,
        version: RespVersion,
        out: &mut Vec<u8>,
    ) {
        let RespRuleQuery { action, facts, cost, rule } = query;
        if let Some(id) = rule
            && !self.limiter.rules().rules().iter().any(|rule| rule.id() == *id)
        {
            return ReplyWriter::new(out, version).error("ERR", "RULE: no rule has this id");
        }
        if let (RespRuleAction::Reset, Some(id)) = (action, rule)
            && let Some(why) = missing_key_message(&self.limiter.rules(), id, facts)
        {
            return ReplyWriter::new(out, version).error("ERR", &why);
        }
        let decision = match action {
            RespRuleAction::Check => self.limiter.decide_no_queue(facts, *cost).await,
            RespRuleAction::Peek => self.limiter.peek_no_queue(facts, *rule, *cost).await,
            RespRuleAction::Reset => self.limiter.reset(facts, *rule).await,
        };
        let mut reply = ReplyWriter::new(out, version);
        match (action, decision.answered_by()) {
            (RespRuleAction::Reset, AnsweredBy::Fallback) => {
                reply.error("ERR", STORE_DOWN_NOT_RESET);
            }
            _ => write_decision(&mut reply, &decision),
        }
    }
}

/// Writes a decision as a map. `allowed` comes first, so it has a fixed position in RESP2.
fn write_decision(reply: &mut ReplyWriter<'_>, decision: &Decision) {
    let tightest = decision.tightest();
    let numbers = tightest.and_then(|(_, reading)| reading.numbers);
    let retry = match tightest {
        Some((_, reading)) if !decision.is_allowed() => reading.retry(),
        _ => Retry::Now,
    };
    reply.map(8);
    reply.text("allowed");
    reply.boolean(decision.is_allowed());
    reply.text("rule");
    match tightest {
        Some((rule, _)) => reply.text(rule.id()),
        None => reply.null(),
    }
    let mut count = |name: &str, number: Option<u64>| {
        reply.text(name);
        match number {
            Some(number) => reply.count(number),
            None => reply.null(),
        }
    };
    count("limit", numbers.map(|numbers| numbers.limit));
    count("remaining", numbers.map(|numbers| numbers.remaining));
    let reset_after = numbers.map(|numbers| numbers.reset_after).unwrap_or_default();
    count("reset_after_ms", Some(reset_after.as_millis_ceil()));
    count("retry_after_ms", retry_after_ms(retry));
    count("charged_at_us", decision.charged_at().map(Timestamp::as_micros));
    reply.text("answered_by");
    reply.text(decision.answered_by().name());
}
