//! `CL.THROTTLE` and `THROTTLE`: buckets whose limit is in the command.
//!
//! Both take the same arguments, but they differ in the meaning of the reply's first number, in
//! whether the limit is `max_burst` or one more, and in the order of the reply's durations.

use std::borrow::Cow;

use tidegate_core::decision::{Reading, Retry};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::quota::Quota;
use tidegate_core::store::Store;
use tidegate_core::time::Micros;

use super::RespApi;
use super::command_table::RespCommandSpec;
use super::dispatch::{CommandDispatch, write_arity_error};
use super::reply_writer::ReplyWriter;
use super::session::RespSession;

/// The product whose command and reply layout are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThrottleDialect {
    /// redis-cell's `CL.THROTTLE`.
    RedisCell,
    /// throttlecrab's `THROTTLE`.
    Throttlecrab,
}

/// A bucket and the quantity to charge.
#[derive(Debug)]
pub(super) struct ThrottleRequest {
    pub(super) dialect: ThrottleDialect,
    pub(super) key: Fingerprint,
    pub(super) policy: Policy,
    /// 0 peeks without charging; a negative quantity is a refund.
    pub(super) quantity: i64,
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Parses the arguments; replies with an error if they are invalid.
    pub(super) fn parse_throttle(
        &self,
        session: &mut RespSession,
        dialect: ThrottleDialect,
        entry: &RespCommandSpec,
        args: &[Cow<'_, [u8]>],
        reply: &mut ReplyWriter<'_>,
    ) -> CommandDispatch {
        let (key, numbers) = match args {
            [_, key, numbers @ ..] if numbers.len() <= 4 => (key, numbers),
            _ => {
                write_arity_error(reply, entry);
                return CommandDispatch::Replied;
            }
        };
        let request = parse_quota(dialect, numbers).and_then(|(quota, quantity)| {
            let policy = self.cached_policy(session, quota)?;
            Ok(ThrottleRequest { dialect, key: self.ad_hoc.key(key), policy, quantity })
        });
        match request {
            Ok(throttle) => CommandDispatch::Throttle(throttle),
            Err(why) => {
                reply.error("ERR", &why);
                CommandDispatch::Replied
            }
        }
    }

    /// Returns the policy for a quota, from the session if the last command had the same quota.
    fn cached_policy(&self, session: &mut RespSession, quota: Quota) -> Result<Policy, String> {
        if let Some((last, policy)) = &session.last_policy
            && *last == quota
        {
            return Ok(*policy);
        }
        let policy = self.ad_hoc.policy(quota).map_err(|why| why.to_string())?;
        session.last_policy = Some((quota, policy));
        Ok(policy)
    }
}

/// Parses `max_burst count_per_period period [quantity]` to a quota and a quantity.
fn parse_quota(
    dialect: ThrottleDialect,
    numbers: &[Cow<'_, [u8]>],
) -> Result<(Quota, i64), String> {
    let [burst, count, period, rest @ ..] = numbers else {
        return Err("max_burst, count_per_period and period are required".to_owned());
    };
    let (burst, count) =
        (parse_count("max_burst", burst)?, parse_count("count_per_period", count)?);
    let period = parse_count("period", period)?;
    let quantity = rest.first().map_or(Ok(1), |text| parse_quantity(dialect, text))?;
    if count == 0 || period == 0 {
        return Err("zero rates are not supported: count_per_period and period must be at least 1"
            .to_owned());
    }
    let limit = match dialect {
        // `burst` is at most 2^63 - 1, so this cannot overflow.
        ThrottleDialect::RedisCell => burst + 1,
        ThrottleDialect::Throttlecrab if burst == 0 => {
            return Err("max_burst of THROTTLE must be at least 1".to_owned());
        }
        ThrottleDialect::Throttlecrab => burst,
    };
    Ok((Quota::new(count, Micros::from_secs(period)).with_burst(limit), quantity))
}

/// Parses the quantity. redis-cell refunds a negative quantity; throttlecrab rejects it.
fn parse_quantity(dialect: ThrottleDialect, text: &[u8]) -> Result<i64, String> {
    match parse_integer(text) {
        Some(quantity) if quantity >= 0 || dialect == ThrottleDialect::RedisCell => Ok(quantity),
        _ if dialect == ThrottleDialect::Throttlecrab => parse_count("quantity", text).map(|_| 0),
        _ => Err(format!(
            "value is not an integer or out of range: quantity must be a whole number from {} to {}",
            i64::MIN,
            i64::MAX
        )),
    }
}

/// Parses an integer as redis-cell does: a sign and leading zeros are allowed.
fn parse_integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_count(name: &str, text: &[u8]) -> Result<u64, String> {
    parse_integer(text).and_then(|number| u64::try_from(number).ok()).ok_or_else(|| {
        format!(
            "value is not an integer or out of range: {name} must be a whole number from 0 to {}",
            i64::MAX
        )
    })
}

/// Writes the reply in the layout of the dialect. Seconds are rounded up, so a reported wait is
/// always long enough.
pub(super) fn write_reply(
    reply: &mut ReplyWriter<'_>,
    dialect: ThrottleDialect,
    reading: &Reading,
) {
    let allowed = !reading.verdict.refuses();
    let seconds = |span: Micros| i64::try_from(span.as_secs_ceil()).unwrap_or(i64::MAX);
    let (reset_after, wait) = (seconds(reading.reset_after), reading.retry);
    reply.array(5);
    match dialect {
        ThrottleDialect::RedisCell => {
            reply.integer(i64::from(!allowed));
            reply.count(reading.limit);
            reply.count(reading.remaining);
            reply.integer(match wait {
                Retry::After(wait) => seconds(wait),
                Retry::Now | Retry::Never => -1,
            });
            reply.integer(reset_after);
        }
        ThrottleDialect::Throttlecrab => {
            reply.integer(i64::from(allowed));
            reply.count(reading.limit);
            reply.count(reading.remaining);
            reply.integer(reset_after);
            reply.integer(match wait {
                Retry::After(wait) => seconds(wait),
                Retry::Now => 0,
                Retry::Never => -1,
            });
        }
    }
}
