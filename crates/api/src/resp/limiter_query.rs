//! Queries to the limiter, and their replies.

use tidegate_core::store::Store;
use tidegate_rules::ApiKind;

use super::RespApi;
use super::reply_writer::{ReplyWriter, RespVersion};
use super::request_parser::RespArgs;
use super::rule_commands::RespRuleQuery;
use super::throttle::{self, ThrottleRequest};

/// A query to the limiter.
#[derive(Debug)]
pub(super) enum RespQuery<'a> {
    /// Charges or refunds a bucket whose limit is in the command.
    Throttle(ThrottleRequest),
    /// Decided by the rules. The arguments include the command's name.
    Rules(RespRuleAction, RespArgs<'a>),
}

/// What a `TIDEGATE.…` command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RespRuleAction {
    Check,
    Peek,
    Reset,
}

impl RespQuery<'_> {
    /// Returns whether the query may be in flight together with others. A store applies charges in
    /// the order of the calls, so each sees the earlier ones. A reset goes to all parts of the
    /// store and has no such order.
    pub(super) const fn can_run_concurrently(&self) -> bool {
        !matches!(self, Self::Rules(RespRuleAction::Reset, _))
    }
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Executes the query and writes the reply.
    pub(super) async fn execute_query(
        &self,
        query: RespQuery<'_>,
        version: RespVersion,
        out: &mut Vec<u8>,
    ) {
        match query {
            RespQuery::Throttle(ThrottleRequest { dialect, key, policy, quantity }) => {
                let amount = quantity.unsigned_abs();
                let result = match quantity {
                    0.. => self.limiter.charge_ad_hoc(ApiKind::Resp, key, &policy, amount).await,
                    _ => self.limiter.refund_ad_hoc(key, &policy, amount).await,
                };
                let mut reply = ReplyWriter::new(out, version);
                match result {
                    Ok(reading) => throttle::write_reply(&mut reply, dialect, &reading),
                    Err(error) => {
                        tracing::debug!(%error, "command failed: the store is unavailable");
                        // The store's error may contain internal addresses, so it is only logged.
                        reply.error("TRYAGAIN", "the store is unavailable");
                    }
                }
            }
            RespQuery::Rules(action, args) => match RespRuleQuery::parse(action, &args[1..]) {
                Ok(query) => self.execute_rule_query(&query, version, out).await,
                Err(why) => ReplyWriter::new(out, version).error("ERR", &why),
            },
        }
    }
}
