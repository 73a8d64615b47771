//! The RESP API: rate limiting for Redis clients.
//!
//! `CL.THROTTLE` and `THROTTLE` carry their own limits. `TIDEGATE.…` commands are decided by the
//! rules. The other commands are those that client libraries send on connect; this is not a Redis
//! server and stores no data. A pipeline is read, decided and answered as a whole, in order. With
//! an in-process store this never waits.

mod client_command;
mod command_table;
mod connection;
mod connection_timeouts;
mod dispatch;
mod hello;
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

/// Settings of the RESP API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Secret for hashing the keys of `CL.THROTTLE` and `THROTTLE`.
    pub secret: Secret,
    /// Password (`AUTH`) that opens the guarded commands to callers from other machines.
    pub token: Option<BearerToken>,
}

/// The RESP API, backed by a limiter.
pub struct RespApi<S, L = NoFallback> {
    limiter: Arc<Limiter<S, L>>,
    ad_hoc: AdHoc,
    token: Option<BearerToken>,
    /// Number of connections accepted so far; the source of connection IDs.
    connections: AtomicU64,
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Creates the API for a limiter.
    #[must_use]
    pub fn new(limiter: Arc<Limiter<S, L>>, settings: Settings) -> Self {
        let Settings { secret, token } = settings;
        Self { limiter, ad_hoc: AdHoc::new(secret), token, connections: AtomicU64::new(0) }
    }
}

/// Serves `listener` until `stop` completes, then drains as [`listen::serve`] does: answers the
/// commands that were already read, then closes each connection.
pub async fn serve<S: Store + 'static, L: Store + 'static>(
    listener: impl Into<BoundListener> + Send,
    api: Arc<RespApi<S, L>>,
    settings: listen::Settings,
    status: Arc<ProcessStatus>,
    stop: impl Future<Output = ()> + Send,
) {
    serve_protocol(listener.into(), api, settings, status, stop).await;
}

impl<S, L> fmt::Debug for RespApi<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespApi").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
