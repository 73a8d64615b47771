//! A question for the limiter, and the reply to it.

use tidegate_core::store::Store;
use tidegate_rules::Door as AskedAt;

use super::Door;
use super::by_rules::Asked;
use super::frame::Args;
use super::reply::{Version, Writer};
use super::throttle::{self, Throttle};

/// What the limiter is asked.
#[derive(Debug)]
pub(super) enum Question<'a> {
    /// A bucket with its own numbers.
    Throttle(Throttle),
    /// The rules; the arguments with the command's name.
    Rules(Verb, Args<'a>),
}

/// What is asked of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Check,
    Peek,
    Reset,
}

impl Question<'_> {
    /// Whether others may be asked at the same time, because each sees what came before it: a store
    /// decides in the order in which it is asked, but forgetting goes to all of its parts.
    pub(super) const fn goes_with_others(&self) -> bool {
        !matches!(self, Self::Rules(Verb::Reset, _))
    }
}

impl<S: Store, L: Store> Door<S, L> {
    /// Asks, and writes the reply.
    pub(super) async fn reply(&self, question: Question<'_>, version: Version, out: &mut Vec<u8>) {
        match question {
            Question::Throttle(Throttle { dialect, key, policy, quantity }) => {
                let amount = quantity.unsigned_abs();
                let told = match quantity {
                    0.. => self.limiter.charge_ad_hoc(AskedAt::Resp, key, &policy, amount).await,
                    _ => self.limiter.give_back_ad_hoc(key, &policy, amount).await,
                };
                let mut reply = Writer::new(out, version);
                match told {
                    Ok(reading) => throttle::write(&mut reply, dialect, &reading),
                    Err(error) => {
                        tracing::debug!(%error, "no answer for a command");
                        // What the store said may tell of the inside of the house.
                        reply.error("TRYAGAIN", "the store of the counters does not answer");
                    }
                }
            }
            Question::Rules(verb, args) => match Asked::read(verb, &args[1..]) {
                Ok(asked) => self.ask_rules(&asked, version, out).await,
                Err(why) => Writer::new(out, version).error("ERR", &why),
            },
        }
    }
}
