//! What the process tells of itself to those who probe it. Set by the server's wiring, read by the
//! doors; it checks nothing by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use serde::Serialize;
use tokio::sync::Notify;

/// Whether the process is ready, degraded or on its way out.
#[derive(Debug, Default)]
pub struct Status {
    ready: AtomicBool,
    draining: AtomicBool,
    drained: Notify,
    rules_version: AtomicU64,
    reload_error: ArcSwapOption<String>,
    store_error: ArcSwapOption<String>,
    facts_error: ArcSwapOption<String>,
    proxy_warning: ArcSwapOption<String>,
    rules_warning: ArcSwapOption<String>,
    installed: AtomicU64,
    refused: AtomicU64,
}

/// What became of rules that were to come into force since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloads {
    /// Rules came into force that were not before, the first ones included.
    pub ok: u64,
    /// Rules could not be read, or were wrong; the last good ones stayed.
    pub failed: u64,
}

/// What `/readyz` tells, at one instant.
#[derive(Debug, Serialize)]
pub struct Told {
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
    /// What to look at although the process works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Status {
    /// A process that is still starting.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Rules of this version are in force: the process is ready, and an earlier reload error is past.
    pub fn rules_in_force(&self, version: u64) {
        let before = self.rules_version.swap(version, Ordering::Relaxed);
        self.reload_error.store(None);
        if !self.ready.swap(true, Ordering::AcqRel) || before != version {
            self.installed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A reload failed; the rules in force stay, and the process is degraded until one succeeds. `why` is
    /// public: it says where the mistake is, and quotes nothing.
    pub fn reload_failed(&self, why: impl Into<String>) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.rules_unknown(why);
    }

    /// Nobody knows whether there are newer rules; the process is degraded until somebody does.
    pub fn rules_unknown(&self, why: impl Into<String>) {
        self.reload_error.store(Some(Arc::new(why.into())));
    }

    /// Something about the source of rules that a person should look at: the process is degraded
    /// until it is said that there is nothing.
    pub fn warn_of_rules(&self, what: Option<String>) {
        self.rules_warning.store(what.map(Arc::new));
    }

    /// What became of rules that were to come into force.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Reloads { ok: count(&self.installed), failed: count(&self.refused) }
    }

    /// The store does not answer; rules follow their `on_fail`.
    pub fn store_lost(&self, why: impl Into<String>) {
        self.store_error.store(Some(Arc::new(why.into())));
    }

    /// The store answers again.
    pub fn store_back(&self) {
        self.store_error.store(None);
    }

    /// Rules in force name facts that requests at a listener do not have, and limit nothing there;
    /// the process is degraded until other rules come. `None` when all facts are there.
    pub fn facts_missing(&self, why: Option<String>) {
        self.facts_error.store(why.map(Arc::new));
    }

    /// Most requests come through a proxy that the rules do not trust. `None` when they do not.
    pub fn warn_of_proxy(&self, warning: Option<String>) {
        self.proxy_warning.store(warning.map(Arc::new));
    }

    /// What to look at although the process works.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.proxy_warning.load().as_deref().cloned().into_iter().collect()
    }

    /// Whether the last good rules are in force because newer ones cannot be.
    #[must_use]
    pub fn has_reload_error(&self) -> bool {
        self.reload_error.load().is_some()
    }

    /// Whether the store does not answer.
    #[must_use]
    pub fn has_store_error(&self) -> bool {
        self.store_error.load().is_some()
    }

    /// The process is on its way out: not ready any more, and every answer closes its connection.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drained.notify_waiters();
    }

    /// Waits until the process is on its way out.
    pub async fn until_draining(&self) {
        while !self.is_draining() {
            let drained = self.drained.notified();
            // It may have begun before there was somebody to notify.
            if !self.is_draining() {
                drained.await;
            }
        }
    }

    /// Whether the process is on its way out.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether requests should be sent here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.is_draining()
    }

    /// What `/readyz` tells, at this instant.
    pub fn told(&self) -> Told {
        let told = |error: &ArcSwapOption<String>| error.load().as_deref().cloned();
        let (reload_error, store_error) = (told(&self.reload_error), told(&self.store_error));
        let (facts_error, rules_warning) = (told(&self.facts_error), told(&self.rules_warning));
        let errors = [&reload_error, &store_error, &facts_error, &rules_warning];
        let status = match (self.is_draining(), self.is_ready()) {
            (true, _) => "draining",
            (false, false) => "starting",
            (false, true) if errors.iter().any(|error| error.is_some()) => "degraded",
            (false, true) => "ready",
        };
        let rules_version = format!("{:016x}", self.rules_version.load(Ordering::Relaxed));
        let warnings = self.warnings();
        Told {
            status,
            rules_version,
            reload_error,
            store_error,
            facts_error,
            rules_warning,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: &Status) -> String {
        serde_json::to_string(&status.told()).unwrap()
    }

    #[test]
    fn a_process_starts_is_ready_is_degraded_recovers_and_drains() {
        let status = Status::new();
        assert!(!status.is_ready());
        assert_eq!(told(&status), r#"{"status":"starting","rules_version":"0000000000000000"}"#);
        status.rules_in_force(7);
        assert_eq!(told(&status), r#"{"status":"ready","rules_version":"0000000000000007"}"#);
        status.reload_failed("line 3");
        assert!(status.is_ready(), "degraded, but the last good rules are in force");
        assert_eq!(
            told(&status),
            r#"{"status":"degraded","rules_version":"0000000000000007","reload_error":"line 3"}"#
        );
        assert_eq!(status.reloads(), Reloads { ok: 1, failed: 1 });
        status.rules_in_force(7);
        status.rules_in_force(8);
        status.rules_unknown("the database is gone");
        status.rules_in_force(8);
        assert_eq!(status.reloads(), Reloads { ok: 2, failed: 1 });
        status.store_lost("timeout");
        assert!(told(&status).contains(r#""degraded""#));
        status.store_back();
        status.warn_of_rules(Some("the file differs".to_owned()));
        status.rules_in_force(8);
        assert!(
            status.is_ready() && told(&status).contains(r#""rules_warning":"the file differs""#)
        );
        assert!(told(&status).contains(r#""degraded""#));
        status.warn_of_rules(None);
        assert!(told(&status).contains(r#""ready""#));
        status.facts_missing(Some("no tier".to_owned()));
        assert!(told(&status).contains(r#""degraded""#));
        assert!(told(&status).contains(r#""facts_error":"no tier""#));
        status.facts_missing(None);
        assert!(told(&status).contains(r#""ready""#));
        status.drain();
        assert!(!status.is_ready());
        assert!(told(&status).contains(r#""draining""#));
    }
}
