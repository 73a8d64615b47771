//! How this process and its store are, for whoever watches the dashboard.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_control::live::Tells;
use tidegate_edge::Status;
use tidegate_engine::Limiter;
use tidegate_memory::Usage;

use crate::store::Tended;

/// The process and its store.
pub(crate) struct Vitals<S: Tended> {
    pub(crate) limiter: Arc<Limiter<S, S::Local>>,
    pub(crate) status: Arc<Status>,
    /// Where the counters are, in words.
    pub(crate) store: String,
    pub(crate) memory_limit: u64,
}

impl<S: Tended> Tells for Vitals<S> {
    fn tell(&self) -> (&'static str, Json) {
        let memory = S::usage(&self.limiter).map(|Usage { keys, overflow, bytes }| {
            json!({"keys": keys, "overflow": overflow, "bytes": bytes, "limit": self.memory_limit})
        });
        let told = json!({
            "status": self.status.told(),
            "store": self.store,
            "memory": memory,
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
        });
        ("process", told)
    }
}
