//! What is told of the servers, and to whom.

use std::fmt;
use std::sync::Arc;

/// Hears what becomes of the servers.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Event) + Send + Sync>);

/// What becomes of a server; told once for each change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It does not answer; rules follow their `on_fail`.
    Lost {
        /// Which server.
        server: String,
        /// Why.
        why: String,
    },
    /// It answers again; or, in a cluster, it is not asked any more because others have its slots.
    Back {
        /// Which server.
        server: String,
    },
}

impl Observer {
    /// An observer that calls a function.
    pub fn new(hear: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(crate) fn hear(&self, event: &Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer(..)")
    }
}
