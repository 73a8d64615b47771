//! The RESP door: limits for whoever has a Redis client.
//!
//! `CL.THROTTLE` and `THROTTLE` bring their own numbers, `TIDEGATE.…` asks the rules, and the rest is
//! what clients say on connect. A pipeline is read, decided and answered as a whole, in order, and on a
//! store in this process without waiting for anything. Nothing is stored here: it is no Redis.

mod answer;
mod by_rules;
mod client;
mod command;
mod connection;
mod frame;
mod hello;
mod inline;
mod pipeline;
mod question;
mod reply;
mod server;
mod session;
mod throttle;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_engine::{AdHoc, Limiter, NoLocal};

use crate::listen::{self, Listener, attend};
use crate::{Status, Token};

/// How the door behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The secret under which the keys of `CL.THROTTLE` are hashed.
    pub secret: Secret,
    /// The password (`AUTH`) that opens the guarded commands to callers from elsewhere.
    pub token: Option<Token>,
}

/// Answers the commands of Redis clients by what a limiter decides.
pub struct Door<S, L = NoLocal> {
    limiter: Arc<Limiter<S, L>>,
    ad_hoc: AdHoc,
    token: Option<Token>,
    /// Connections so far, which numbers them.
    connections: AtomicU64,
}

impl<S: Store, L: Store> Door<S, L> {
    /// A door to a limiter.
    #[must_use]
    pub fn new(limiter: Arc<Limiter<S, L>>, settings: Settings) -> Self {
        let Settings { secret, token } = settings;
        Self { limiter, ad_hoc: AdHoc::new(secret), token, connections: AtomicU64::new(0) }
    }
}

/// Answers on `listener` until `stop`, then drains as [`listen::serve`] does: what was read is
/// answered, then each connection is closed.
pub async fn serve<S: Store + 'static, L: Store + 'static>(
    listener: impl Into<Listener> + Send,
    door: Arc<Door<S, L>>,
    settings: listen::Settings,
    status: Arc<Status>,
    stop: impl Future<Output = ()> + Send,
) {
    attend(listener.into(), door, settings, status, stop).await;
}

impl<S, L> fmt::Debug for Door<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
