//! The RESP door: limits for whoever has a Redis client.
//!
//! `CL.THROTTLE` and `THROTTLE` bring their own numbers, `TIDEGATE.…` asks the rules, and the rest is
//! what clients say on connect. A pipeline is read, decided and answered as a whole, in order, and on a
//! store in this process without waiting for anything. Nothing is stored here: it is no Redis.

mod client_command;
mod command_table;
mod connection;
mod dispatch;
mod hello;
mod idle_watchdog;
mod inline;
mod limiter_query;
mod pipeline;
mod reply_writer;
mod request_parser;
mod rule_commands;
mod server_commands;
mod session;
mod throttle;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_limiter::{AdHoc, Limiter, NoFallback};

use tidegate_net::listen::{self, BoundListener, serve_protocol};
use tidegate_web::{BearerToken, ProcessStatus};

/// How the door behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The secret under which the keys of `CL.THROTTLE` are hashed.
    pub secret: Secret,
    /// The password (`AUTH`) that opens the guarded commands to callers from elsewhere.
    pub token: Option<BearerToken>,
}

/// Answers the commands of Redis clients by what a limiter decides.
pub struct RespApi<S, L = NoFallback> {
    limiter: Arc<Limiter<S, L>>,
    ad_hoc: AdHoc,
    token: Option<BearerToken>,
    /// Connections so far, which numbers them.
    connections: AtomicU64,
}

impl<S: Store, L: Store> RespApi<S, L> {
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
    listener: impl Into<BoundListener> + Send,
    door: Arc<RespApi<S, L>>,
    settings: listen::Settings,
    status: Arc<ProcessStatus>,
    stop: impl Future<Output = ()> + Send,
) {
    serve_protocol(listener.into(), door, settings, status, stop).await;
}

impl<S, L> fmt::Debug for RespApi<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespApi").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
