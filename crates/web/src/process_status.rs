//! Readiness state of the process, as reported by `/readyz`. The server's wiring sets it and the
//! APIs read it; it checks nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use serde::Serialize;
use tokio::sync::Notify;

/// Whether the process is ready, degraded or draining.
#[derive(Debug, Default)]
pub struct ProcessStatus {
    ready: AtomicBool,
    draining: AtomicBool,
    drain_started: Notify,
    rules_version: AtomicU64,
    reload_error: ArcSwapOption<String>,
    store_error: ArcSwapOption<String>,
    facts_error: ArcSwapOption<String>,
    proxy_warning: ArcSwapOption<String>,
    rules_warning: ArcSwapOption<String>,
    sharing_warning: ArcSwapOption<String>,
    region_error: ArcSwapOption<String>,
    region_warnings: ArcSwap<Vec<String>>,
    reloads_ok: AtomicU64,
    reloads_failed: AtomicU64,
}

/// Counts of rule reloads since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Reloads that changed the active rules, including the first load.
    pub ok: u64,
    /// Reloads that failed because the rules could not be read or were invalid; the last valid
    /// rules stayed active.
    pub failed: u64,
}

/// Response of `/readyz` at one instant.
#[derive(Debug, Serialize)]
pub struct ReadyView {
    status: &'static str,
    /// In hexadecimal: JSON numbers are exact only below 2^53.
    rules_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reload_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules_warning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region_error: Option<String>,
    /// Conditions that need attention although the process works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl ProcessStatus {
    /// The state of a process that is still starting.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Rules of this version are active: the process is ready, and an earlier reload error is
    /// cleared.
    pub fn mark_rules_active(&self, version: u64) {
        let before = self.rules_version.swap(version, Ordering::Relaxed);
        self.reload_error.store(None);
        if !self.ready.swap(true, Ordering::AcqRel) || before != version {
            self.reloads_ok.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A reload failed. The active rules stay, and the process is degraded until a reload succeeds.
    /// `why` is public: it says where the error is and quotes nothing.
    pub fn record_reload_failure(&self, why: impl Into<String>) {
        self.reloads_failed.fetch_add(1, Ordering::Relaxed);
        self.set_reload_error(why);
    }

    /// Newer rules cannot be checked for; the process is degraded until they can.
    pub fn set_reload_error(&self, why: impl Into<String>) {
        self.reload_error.store(Some(Arc::new(why.into())));
    }

    /// Reports a problem with the rule source that an operator should look at. The process is
    /// degraded until it is cleared with `None`.
    pub fn set_rules_warning(&self, what: Option<String>) {
        self.rules_warning.store(what.map(Arc::new));
    }

    /// Counts of rule reloads since the start.
    #[must_use]
    pub fn reload_counts(&self) -> ReloadCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReloadCounts { ok: count(&self.reloads_ok), failed: count(&self.reloads_failed) }
    }

    /// The store is down; rules follow their `on_fail`.
    pub fn set_store_error(&self, why: impl Into<String>) {
        self.store_error.store(Some(Arc::new(why.into())));
    }

    /// The store is healthy again.
    pub fn clear_store_error(&self) {
        self.store_error.store(None);
    }

    /// Active rules use facts that requests on a listener do not have, so they limit nothing there.
    /// The process is degraded until the rules change. `None` if all facts are available.
    pub fn set_facts_error(&self, why: Option<String>) {
        self.facts_error.store(why.map(Arc::new));
    }

    /// Most requests arrive through a proxy that the rules do not trust. `None` otherwise.
    pub fn set_proxy_warning(&self, warning: Option<String>) {
        self.proxy_warning.store(warning.map(Arc::new));
    }

    /// Nodes cannot share limits as the rules ask for. `None` if they can.
    pub fn set_sharing_warning(&self, warning: Option<String>) {
        self.sharing_warning.store(warning.map(Arc::new));
    }

    /// A store has the marker of another region or key secret, so nothing is borrowed from it. The
    /// process is degraded until that is corrected. `None` otherwise.
    pub fn set_region_error(&self, why: Option<String>) {
        self.region_error.store(why.map(Arc::new));
    }

    /// From which regions nothing is borrowed at present, and why.
    pub fn set_region_warnings(&self, warnings: Vec<String>) {
        self.region_warnings.store(Arc::new(warnings));
    }

    /// Conditions that need attention although the process works.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warnings = [&self.proxy_warning, &self.sharing_warning];
        let warnings = warnings.iter().filter_map(|it| it.load().as_deref().cloned());
        warnings.chain(self.region_warnings.load().iter().cloned()).collect()
    }

    /// Whether a newer rule version could not be loaded.
    #[must_use]
    pub fn has_reload_error(&self) -> bool {
        self.reload_error.load().is_some()
    }

    /// Whether the store is down.
    #[must_use]
    pub fn has_store_error(&self) -> bool {
        self.store_error.load().is_some()
    }

    /// Starts draining: the process is no longer ready, and each response closes its connection.
    pub fn start_drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drain_started.notify_waiters();
    }

    /// Waits until the process is draining.
    pub async fn wait_for_drain(&self) {
        while !self.is_draining() {
            let drained = self.drain_started.notified();
            // Draining may have begun before this task was registered for the notification.
            if !self.is_draining() {
                drained.await;
            }
        }
    }

    /// Whether the process is draining.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether the process should receive requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.is_draining()
    }

    /// Response of `/readyz` at this instant.
    pub fn ready_view(&self) -> ReadyView {
        let message = |error: &ArcSwapOption<String>| error.load().as_deref().cloned();
        let (reload_error, store_error) = (message(&self.reload_error), message(&self.store_error));
        let (facts_error, rules_warning) =
            (message(&self.facts_error), message(&self.rules_warning));
        let region_error = message(&self.region_error);
        let errors = [&reload_error, &store_error, &facts_error, &rules_warning, &region_error];
        let status = match (self.is_draining(), self.is_ready()) {
            (true, _) => "draining",
            (false, false) => "starting",
            (false, true) if errors.iter().any(|error| error.is_some()) => "degraded",
            (false, true) => "ready",
        };
        let rules_version = format!("{:016x}", self.rules_version.load(Ordering::Relaxed));
        let warnings = self.warnings();
        ReadyView {
            status,
            rules_version,
            reload_error,
            store_error,
            facts_error,
            rules_warning,
            region_error,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_json(status: &ProcessStatus) -> String {
        serde_json::to_string(&status.ready_view()).unwrap()
    }

    #[test]
    fn readiness_follows_process_lifecycle() {
        let status = ProcessStatus::new();
        assert!(!status.is_ready());
        assert_eq!(
            ready_json(&status),
            r#"{"status":"starting","rules_version":"0000000000000000"}"#
        );
        status.mark_rules_active(7);
        assert_eq!(ready_json(&status), r#"{"status":"ready","rules_version":"0000000000000007"}"#);
        status.record_reload_failure("line 3");
        assert!(status.is_ready(), "degraded, but the last valid rules are active");
        assert_eq!(
            ready_json(&status),
            r#"{"status":"degraded","rules_version":"0000000000000007","reload_error":"line 3"}"#
        );
        assert_eq!(status.reload_counts(), ReloadCounts { ok: 1, failed: 1 });
        status.mark_rules_active(7);
        status.mark_rules_active(8);
        status.set_reload_error("the database is unavailable");
        status.mark_rules_active(8);
        assert_eq!(status.reload_counts(), ReloadCounts { ok: 2, failed: 1 });
        status.set_store_error("timeout");
        assert!(ready_json(&status).contains(r#""degraded""#));
        status.clear_store_error();
        status.set_rules_warning(Some("the file differs".to_owned()));
        status.mark_rules_active(8);
        assert!(
            status.is_ready()
                && ready_json(&status).contains(r#""rules_warning":"the file differs""#)
        );
        assert!(ready_json(&status).contains(r#""degraded""#));
        status.set_rules_warning(None);
        assert!(ready_json(&status).contains(r#""ready""#));
        status.set_facts_error(Some("no tier".to_owned()));
        assert!(ready_json(&status).contains(r#""degraded""#));
        assert!(ready_json(&status).contains(r#""facts_error":"no tier""#));
        status.set_facts_error(None);
        status.set_sharing_warning(Some("too many nodes".to_owned()));
        assert!(ready_json(&status).contains(r#""warnings":["too many nodes"]"#));
        assert!(ready_json(&status).contains(r#""ready""#));
        status.set_sharing_warning(None);
        assert!(!ready_json(&status).contains("warnings"));
        status.start_drain();
        assert!(!status.is_ready());
        assert!(ready_json(&status).contains(r#""draining""#));
    }
}
