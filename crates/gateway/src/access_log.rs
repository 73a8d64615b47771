//! The access log: one record per request, written when the response has been sent.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use tidegate_rules::{Facts, RuleSet};
use tokio::time::Instant;

use super::request_id::X_REQUEST_ID;
use tidegate_web::LogPaths;

/// The outcome of a request.
#[derive(Debug)]
#[non_exhaustive]
pub struct AccessRecord {
    /// The request id, once assigned.
    pub id: Option<String>,
    /// The client as rules count it: its address, or the network of an IPv6 address. `None` for a
    /// Unix-socket peer when no trusted proxy supplied an address.
    pub client: Option<String>,
    /// The request method.
    pub method: Method,
    /// The endpoint pattern or the path ([`LogPaths`]), without the query, which may contain
    /// secrets.
    pub path: String,
    /// The response status.
    pub status: u16,
    /// Bytes of the response body that were sent.
    pub bytes: u64,
    /// The time from the start of the request until the response was sent.
    pub elapsed: Duration,
}

/// Receives a record for each request.
#[derive(Clone)]
pub struct AccessLog {
    paths: LogPaths,
    write: Arc<dyn Fn(&AccessRecord) + Send + Sync>,
}

impl AccessLog {
    /// Creates a log that passes each record to `write`.
    pub fn new(paths: LogPaths, write: impl Fn(&AccessRecord) + Send + Sync + 'static) -> Self {
        Self { paths, write: Arc::new(write) }
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLog(..)")
    }
}

/// A record that is written on drop.
pub(super) struct AccessLogEntry {
    record: AccessRecord,
    started: Instant,
    log: AccessLog,
}

impl AccessLogEntry {
    /// Starts a record; only the request head and the peer are known yet.
    pub(super) fn start<B>(log: &AccessLog, request: &Request<B>, peer: Option<String>) -> Self {
        let path = match log.paths {
            LogPaths::Patterns => "*",
            LogPaths::Raw => request.uri().path(),
        };
        let record = AccessRecord {
            id: None,
            client: peer,
            method: request.method().clone(),
            path: path.to_owned(),
            // Stays if the client disconnects before it gets a response.
            status: 499,
            bytes: 0,
            elapsed: Duration::ZERO,
        };
        Self { record, started: Instant::now(), log: log.clone() }
    }

    /// Sets the client, once the forwarding headers have been read.
    pub(super) fn set_client(&mut self, rules: &RuleSet, ip: Option<IpAddr>) {
        self.record.client = ip.map(|ip| rules.client_name(ip));
    }

    /// Sets the endpoint, once the facts of the request are known.
    pub(super) fn set_endpoint(&mut self, rules: &RuleSet, facts: &Facts<'_>) {
        if let (LogPaths::Patterns, Some(pattern)) = (self.log.paths, rules.path_pattern(facts)) {
            self.record.path = pattern.to_owned();
        }
    }

    /// Records the head of the response.
    pub(super) fn record_response<B>(&mut self, response: &Response<B>) {
        let id = response.headers().get(X_REQUEST_ID).and_then(|id| id.to_str().ok());
        self.record.id = id.map(str::to_owned);
        self.record.status = response.status().as_u16();
    }

    /// Counts bytes of the response body.
    pub(super) const fn add_sent_bytes(&mut self, bytes: u64) {
        self.record.bytes += bytes;
    }
}

impl Drop for AccessLogEntry {
    fn drop(&mut self) {
        self.record.elapsed = self.started.elapsed();
        (self.log.write)(&self.record);
    }
}
