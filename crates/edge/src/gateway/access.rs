//! The access log: what became of each request, told when its answer has gone out.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use tokio::time::Instant;

use super::request_id::X_REQUEST_ID;

/// What became of a request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Access {
    /// The request's name, if it got as far as to have one.
    pub id: Option<String>,
    /// Who asked, as far as it is known.
    pub client: Option<IpAddr>,
    /// What was asked for.
    pub method: Method,
    /// Of what; without the query, which may hold secrets.
    pub path: String,
    /// How it was answered.
    pub status: u16,
    /// Bytes of the answer's body that went out.
    pub bytes: u64,
    /// How long it took until they had.
    pub took: Duration,
}

/// Hears what became of each request.
#[derive(Clone)]
pub struct AccessLog(Arc<dyn Fn(&Access) + Send + Sync>);

impl AccessLog {
    /// A log that somebody keeps.
    pub fn new(hear: impl Fn(&Access) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLog(..)")
    }
}

/// A line of the log that is told when it is dropped.
pub(super) struct Line {
    access: Access,
    begun: Instant,
    log: AccessLog,
}

impl Line {
    pub(super) fn begin<B>(log: &AccessLog, request: &Request<B>, client: Option<IpAddr>) -> Self {
        let access = Access {
            id: None,
            client,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            // What is told of a client that went away before there was an answer.
            status: 499,
            bytes: 0,
            took: Duration::ZERO,
        };
        Self { access, begun: Instant::now(), log: log.clone() }
    }

    /// Who asked, once that is known better.
    pub(super) const fn client(&mut self, client: Option<IpAddr>) {
        self.access.client = client;
    }

    /// Notes the head of the answer.
    pub(super) fn answered<B>(&mut self, response: &Response<B>) {
        let id = response.headers().get(X_REQUEST_ID).and_then(|id| id.to_str().ok());
        self.access.id = id.map(str::to_owned);
        self.access.status = response.status().as_u16();
    }

    /// Counts bytes of the answer's body.
    pub(super) const fn sent(&mut self, bytes: u64) {
        self.access.bytes += bytes;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.access.took = self.begun.elapsed();
        (self.log.0)(&self.access);
    }
}
