//! Detects a proxy in front of the gateway that the rules do not trust. All clients behind it count
//! as one client, which is rarely intended.
//!
//! A sample of requests is examined every few seconds. Between samples, a request costs one atomic
//! load.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::HeaderMap;

use tidegate_web::{Peer, ProcessStatus};

/// The number of requests in a sample.
const SAMPLE_SIZE: u32 = 20;

/// The headers in which proxies report the client.
const FORWARDING_HEADERS: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

/// Examines samples of requests.
#[derive(Debug)]
pub(super) struct UntrustedProxyDetector {
    status: Arc<ProcessStatus>,
    /// Whether a sample is being taken.
    sampling: AtomicBool,
    sample: Mutex<ProxySample>,
    /// The serial number of the rule set under which a proxy was reported; 0 for none.
    reported: AtomicU64,
}

/// The current sample.
#[derive(Debug, Default)]
struct ProxySample {
    requests: u32,
    /// The first untrusted peer in a private network that sends forwarding headers.
    proxy: Option<Peer>,
    /// The number of requests that this peer forwarded.
    forwarded: u32,
}

impl UntrustedProxyDetector {
    pub(super) fn new(status: Arc<ProcessStatus>) -> Self {
        let (sampling, reported) = (AtomicBool::new(true), AtomicU64::new(0));
        Self { status, sampling, sample: Mutex::default(), reported }
    }

    /// Examines a request from a peer, under the rule set with this serial number.
    pub(super) fn observe(&self, peer: Peer, trusted: bool, headers: &HeaderMap, rules: u64) {
        if !self.sampling.load(Ordering::Relaxed) {
            return;
        }
        // A request that finds the sample locked is not counted.
        let Ok(mut sample) = self.sample.try_lock() else { return };
        sample.requests += 1;
        let forwards = || FORWARDING_HEADERS.iter().any(|name| headers.contains_key(*name));
        if !trusted && is_private_peer(peer) && forwards() {
            let proxy = *sample.proxy.get_or_insert(peer);
            sample.forwarded += u32::from(proxy == peer);
        }
        if sample.requests < SAMPLE_SIZE {
            return;
        }
        self.sampling.store(false, Ordering::Relaxed);
        let ProxySample { proxy, forwarded, requests } = std::mem::take(&mut *sample);
        if let Some(proxy) = proxy.filter(|_| forwarded * 2 > requests)
            && self.reported.swap(rules, Ordering::Relaxed) != rules
        {
            self.report(proxy);
        }
    }

    fn report(&self, proxy: Peer) {
        let (from, trust) = match proxy.ip() {
            Some(ip) => (ip.to_string(), format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 })),
            None => ("a Unix socket".to_owned(), "unix".to_owned()),
        };
        let warning = format!(
            "most requests come from {from} with forwarding headers, but it is not a trusted proxy: \
             all clients behind it count as one client; add \
             `identity: {{ ip: {{ trusted_proxies: [{trust}] }} }}`"
        );
        tracing::warn!("{warning}");
        self.status.set_proxy_warning(Some(warning));
    }

    /// Starts another sample. Clears the report if the rules have changed, because the new rules
    /// may trust the proxy.
    pub(super) fn start_sample(&self, rules: u64) {
        let reported = self.reported.load(Ordering::Relaxed);
        if reported == rules {
            return;
        }
        if reported != 0 {
            self.reported.store(0, Ordering::Relaxed);
            self.status.set_proxy_warning(None);
        }
        self.sampling.store(true, Ordering::Relaxed);
    }
}

/// Whether a peer is in a private network, as proxies usually are.
fn is_private_peer(peer: Peer) -> bool {
    match peer.ip() {
        None => true,
        Some(IpAddr::V4(ip)) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        Some(IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(forwards: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if forwards {
            headers.insert("x-forwarded-for", "203.0.113.7".parse().unwrap());
        }
        headers
    }

    /// The report after requests from these peers in turn: address, trusted, forwards.
    fn report_for(peers: &[(&str, bool, bool)]) -> Option<String> {
        let status = Arc::new(ProcessStatus::new());
        let detector = UntrustedProxyDetector::new(Arc::clone(&status));
        for (peer, trusted, forwards) in peers.iter().cycle().take(SAMPLE_SIZE as usize) {
            let peer: IpAddr = peer.parse().unwrap();
            detector.observe(peer.into(), *trusted, &headers(*forwards), 1);
        }
        status.warnings().first().cloned()
    }

    #[test]
    fn dominant_untrusted_proxy_is_reported() {
        let report = report_for(&[("10.0.0.5", false, true)]).unwrap();
        assert!(report.contains("trusted_proxies: [10.0.0.5/32]"), "{report}");
        let proxy = ("fd00::1", false, true);
        let report = report_for(&[proxy, proxy, ("::1", false, false)]).unwrap();
        assert!(report.contains("[fd00::1/128]"), "{report}");
        for peers in [
            &[("10.0.0.5", true, true)][..],
            &[("10.0.0.5", false, false)],
            &[("198.51.100.7", false, true)],
            &[("10.0.0.5", false, true), ("10.0.0.6", false, true)],
        ] {
            assert_eq!(report_for(peers), None, "{peers:?}");
        }
    }

    #[test]
    fn report_is_cleared_on_rule_change() {
        let status = Arc::new(ProcessStatus::new());
        let detector = UntrustedProxyDetector::new(Arc::clone(&status));
        let sample = |trusted: bool, rules: u64| {
            (0..SAMPLE_SIZE)
                .for_each(|_| detector.observe(Peer::Unix, trusted, &headers(true), rules));
            status.warnings().len()
        };
        assert_eq!(sample(false, 1), 1);
        assert!(status.warnings()[0].contains("trusted_proxies: [unix]"));
        detector.start_sample(1);
        assert!(!detector.sampling.load(Ordering::Relaxed), "already reported under these rules");
        detector.start_sample(2);
        assert_eq!(status.warnings().len(), 0);
        assert_eq!(sample(true, 2), 0);
        detector.start_sample(2);
        assert_eq!(sample(false, 2), 1);
    }
}
