//! The collector: where it is, and one batch on its way to it, over HTTP with protobuf (OTLP/HTTP).
//!
//! A connection for each batch: they are a second apart unless there is much to tell, and nothing is to be looked
//! after in between. Connections and certificates are those of the gateway.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;

use tidegate_net::connect::{OutboundAddress, OutboundTls, connect};

/// How long one batch may take; a collector that takes longer is as good as gone.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where traces are taken below the address of a collector.
const TRACES_PATH: &str = "/v1/traces";

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));

/// Where a collector is, as people write it: `http://127.0.0.1:4318`, perhaps with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorEndpoint {
    address: OutboundAddress,
    path: PathAndQuery,
}

/// Why a text is not where a collector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorEndpointError(String);

/// A collector.
#[derive(Clone, Debug)]
pub struct OtlpCollector {
    /// Where it is.
    pub endpoint: CollectorEndpoint,
    /// Whose certificates are believed.
    pub trust: OutboundTls,
    /// What it wants to be told with each batch, such as a token.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why a batch is not with the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpanExportError {
    pub(super) why: String,
    /// Whether it may be taken later.
    pub(super) is_retryable: bool,
}

impl CollectorEndpoint {
    /// Whether it is reached over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.address.is_tls()
    }
}

impl FromStr for CollectorEndpoint {
    type Err = CollectorEndpointError;

    fn from_str(text: &str) -> Result<Self, CollectorEndpointError> {
        let bad =
            |why: &str| CollectorEndpointError(format!("this is not where a collector is: {why}"));
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        if !matches!(scheme, "http" | "https") {
            return Err(bad("it begins with http:// or https://"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if rest.contains(['?', '#']) {
            return Err(bad("it has no query"));
        }
        let address = format!("{scheme}://{authority}").parse();
        let address = address.map_err(|_| bad("it names a host and a port"))?;
        let path = path.trim_end_matches('/');
        let own = if path.ends_with(TRACES_PATH) { "" } else { TRACES_PATH };
        let path = format!("{path}{own}").parse().map_err(|_| bad("its path is none"))?;
        Ok(Self { address, path })
    }
}

impl fmt::Display for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.address, self.path)
    }
}

impl OtlpCollector {
    /// Sends a batch.
    pub(super) async fn export(&self, batch: Bytes) -> Result<(), SpanExportError> {
        let answered = match tokio::time::timeout(EXPORT_TIMEOUT, self.send(batch)).await {
            Ok(answered) => answered,
            Err(_) => Err(format!("no answer within {} s", EXPORT_TIMEOUT.as_secs())),
        };
        let status = answered.map_err(|why| SpanExportError { why, is_retryable: true })?.status();
        match status {
            _ if status.is_success() => Ok(()),
            // The four that OTLP calls retryable, and the one that means the same.
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Err(SpanExportError { why: format!("it answered {status}"), is_retryable: true })
            }
            _ => Err(SpanExportError { why: format!("it answered {status}"), is_retryable: false }),
        }
    }

    async fn send(&self, batch: Bytes) -> Result<Response<Incoming>, String> {
        let CollectorEndpoint { address, path } = &self.endpoint;
        let (io, is_http2) =
            connect(address, &self.trust).await.map_err(|error| format!("{error}"))?;
        let mut target = http::uri::Parts::default();
        target.path_and_query = Some(path.clone());
        if is_http2 {
            target.scheme = Some(Scheme::HTTPS);
            target.authority = address.authority().parse().ok();
        }
        let target = Uri::from_parts(target).map_err(|error| error.to_string())?;
        let mut request = Request::post(target);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request = request.header(CONTENT_TYPE, PROTOBUF).header(USER_AGENT, USER_AGENT_VALUE);
        if !is_http2 {
            request = request.header(HOST, address.authority());
        }
        let request = request.body(Full::new(batch)).map_err(|error| error.to_string())?;
        let answer = if is_http2 {
            let opened =
                http2::handshake(TokioExecutor::new(), io).await.map_err(describe_error)?;
            let (mut sender, connection) = opened;
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = http1::handshake(io).await.map_err(describe_error)?;
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        answer.map_err(describe_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` takes")]
fn describe_error(error: hyper::Error) -> String {
    format!("{error}; OTLP over HTTP is spoken, which collectors take at port 4318 and not 4317")
}

impl fmt::Display for CollectorEndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CollectorEndpointError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_endpoint_is_parsed_and_displayed() {
        for (text, told) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://otlp.example/api/x", "https://otlp.example:443/api/x/v1/traces"),
            ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
        ] {
            let at = text.parse::<CollectorEndpoint>().map(|at| at.to_string());
            assert_eq!(at.as_deref(), Ok(told));
        }
        for text in [
            "",
            "collector:4318",
            "grpc://a:4317",
            "h2c://a",
            "http://",
            "http://u:p@a",
            "http://a?b",
            "http://a/b?c",
            "http://a/b#c",
        ] {
            assert!(text.parse::<CollectorEndpoint>().is_err(), "{text}");
        }
    }
}
