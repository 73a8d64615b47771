//! A question for the limiter, and the reply to it.

use tidegate_core::store::Store;
use tidegate_rules::ApiKind as AskedAt;

use super::RespApi;
use super::reply_writer::{ReplyWriter, RespVersion};
use super::request_parser::RespArgs;
use super::rule_commands::RespRuleQuery;
use super::throttle::{self, ThrottleRequest};

/// What the limiter is asked.
#[derive(Debug)]
pub(super) enum RespQuery<'a> {
    /// A bucket with its own numbers.
    Throttle(ThrottleRequest),
    /// The rules; the arguments with the command's name.
    Rules(RespRuleAction, RespArgs<'a>),
}

/// What is asked of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RespRuleAction {
    Check,
    Peek,
    Reset,
}

impl RespQuery<'_> {
    /// Whether others may be asked at the same time, because each sees what came before it: a store
    /// decides in the order in which it is asked, but forgetting goes to all of its parts.
    pub(super) const fn can_run_concurrently(&self) -> bool {
        !matches!(self, Self::Rules(RespRuleAction::Reset, _))
    }
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Asks, and writes the reply.
    pub(super) async fn execute_query(
        &self,
        question: RespQuery<'_>,
        version: RespVersion,
        out: &mut Vec<u8>,
    ) {
        match question {
            RespQuery::Throttle(ThrottleRequest { dialect, key, policy, quantity }) => {
                let amount = quantity.unsigned_abs();
                let told = match quantity {
                    0.. => self.limiter.charge_ad_hoc(AskedAt::Resp, key, &policy, amount).await,
                    _ => self.limiter.refund_ad_hoc(key, &policy, amount).await,
                };
                let mut reply = ReplyWriter::new(out, version);
                match told {
                    Ok(reading) => throttle::write_reply(&mut reply, dialect, &reading),
                    Err(error) => {
                        tracing::debug!(%error, "no answer for a command");
                        // What the store said may tell of the inside of the house.
                        reply.error("TRYAGAIN", "the store of the counters does not answer");
                    }
                }
            }
            RespQuery::Rules(verb, args) => match RespRuleQuery::parse(verb, &args[1..]) {
                Ok(asked) => self.execute_rule_query(&asked, version, out).await,
                Err(why) => ReplyWriter::new(out, version).error("ERR", &why),
            },
        }
    }
}
