//! Keeps this node in sync: activates the latest configuration, expires overrides and sends
//! heartbeats.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::time::{Micros, Timestamp};

use super::{RuleManager, SyncEvent};
use crate::compile::{FileAccess, next_expiry};
use crate::node::NodeRoster;
use crate::rule_config::RuleConfig;

/// Longest wait before checking for expired overrides again.
const MAX_EXPIRY_WAIT: Duration = Duration::from_secs(3_600);

/// Delay before retrying to remove an expired override.
const EXPIRY_RETRY: Micros = Micros::from_secs(1);

/// State of the synchronisation.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    is_unreachable: bool,
    /// The latest version that could not be activated.
    rejected_version: Option<u64>,
}

impl RuleManager {
    /// Activates the latest configuration on this node.
    pub async fn sync(&self) {
        let mut state = self.sync_state.lock().await;
        let latest = match self.latest_config().await {
            Ok(latest) => latest,
            Err(why) => {
                if !std::mem::replace(&mut state.is_unreachable, true) {
                    self.sink.on_event(&SyncEvent::RepositoryLost { why: &why });
                }
                return;
            }
        };
        if std::mem::take(&mut state.is_unreachable) {
            self.sink.on_event(&SyncEvent::RepositoryRestored);
        }
        let version = latest.version();
        if version == self.config.load().version() || state.rejected_version == Some(version) {
            return;
        }
        match self.install_config(&latest).await {
            Ok(()) => {
                state.rejected_version = None;
                self.record_propagation(version).await;
            }
            Err(why) => {
                state.rejected_version = Some(version);
                self.sink.on_event(&SyncEvent::InstallFailed { version, why: &why });
            }
        }
    }

    /// Records how long the active version took since it was written, by two wall clocks.
    async fn record_propagation(&self, version: u64) {
        let activated_at = self.now();
        // The metric is skipped if the history cannot be read.
        let Ok(history) = self.repository.history(version + 1, 1).await else { return };
        if let Some(info) = history.first().filter(|info| info.version == version) {
            self.propagation.observe(activated_at.since(info.at).get());
        }
    }

    /// Follows changes, sends heartbeats and expires overrides, until dropped.
    pub async fn run(&self) {
        let (mut last_heartbeat, mut roster) = (None, NodeRoster::default());
        loop {
            if self.send_heartbeat(&mut last_heartbeat).await {
                self.report_nodes(&mut roster).await;
            }
            let left = Duration::from(self.next_expiry().since(self.now()));
            tokio::select! {
                _ = self.repository.wait_for_change() => self.sync().await,
                () = tokio::time::sleep(left.min(MAX_EXPIRY_WAIT)) => self.expire_overrides().await,
            }
        }
    }

    /// Reports nodes that joined or left since the last call.
    async fn report_nodes(&self, roster: &mut NodeRoster) {
        let Ok(nodes) = self.repository.nodes().await else { return };
        for change in roster.update(&nodes, self.node(), self.now()) {
            let name = change.name.as_str();
            self.sink.on_event(&match change.left_silently {
                None => SyncEvent::NodeJoined { name },
                Some(silent) => SyncEvent::NodeLeft { name, silent },
            });
        }
    }

    fn next_expiry(&self) -> Timestamp {
        Timestamp::from_micros(self.next_expiry.load(Ordering::Relaxed))
    }

    /// Recompiles the active configuration if an override has expired.
    async fn expire_overrides(&self) {
        let _guard = self.sync_state.lock().await;
        let now = self.now();
        // The configuration was valid with more overrides, so only the store can cause a failure.
        if self.next_expiry() <= now && self.install_config(&self.config()).await.is_err() {
            self.next_expiry.store(now.plus(EXPIRY_RETRY).as_micros(), Ordering::Relaxed);
        }
    }

    async fn install_config(&self, config: &Arc<RuleConfig>) -> Result<(), String> {
        let now = self.now();
        let rules =
            self.compile_at(Arc::clone(config), FileAccess::All, now).await.map_err(|errors| {
                errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            })?;
        self.sink.install(rules).await?;
        self.config.store(Arc::clone(config));
        self.next_expiry.store(next_expiry_micros(config, now), Ordering::Relaxed);
        self.sink.on_event(&SyncEvent::Installed { version: config.version() });
        if let Some(cache) = &self.local_cache
            && let Err(why) = cache.write(config).await
        {
            self.sink.on_event(&SyncEvent::CacheWriteFailed { why: &why });
        }
        Ok(())
    }
}

/// Expiry of the next override after `now`; `u64::MAX` if none expires.
pub(super) fn next_expiry_micros(config: &RuleConfig, now: Timestamp) -> u64 {
    next_expiry(config, now).map_or(u64::MAX, Timestamp::as_micros)
}
