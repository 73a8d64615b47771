//! The OpenTelemetry collector: its endpoint, and the export of one batch over OTLP/HTTP with
//! protobuf.
//!
//! Each batch uses a new connection. Batches are a second apart except under load, so a connection
//! pool is not worth its maintenance. TCP and TLS are those of the gateway (`tidegate_net`).

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

/// Timeout of the export of one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The path for traces, below the collector's URL.
const TRACES_PATH: &str = "/v1/traces";

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));

/// The URL of a collector, such as `http://127.0.0.1:4318`, optionally with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorEndpoint {
    address: OutboundAddress,
    path: PathAndQuery,
}

/// Why a text is not a valid collector URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorEndpointError(String);

/// A collector and how to connect to it.
#[derive(Clone, Debug)]
pub struct OtlpCollector {
    /// Its URL.
    pub endpoint: CollectorEndpoint,
    /// The trusted certificates.
    pub trust: OutboundTls,
    /// Headers sent with each batch, such as an access token.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why a batch could not be exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpanExportError {
    pub(super) why: String,
    /// Whether a retry may succeed.
    pub(super) is_retryable: bool,
}

impl CollectorEndpoint {
    /// Whether connections use TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.address.is_tls()
    }
}

impl FromStr for CollectorEndpoint {
    type Err = CollectorEndpointError;

    fn from_str(text: &str) -> Result<Self, CollectorEndpointError> {
        let bad = |why: &str| CollectorEndpointError(format!("invalid collector URL: {why}"));
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        if !matches!(scheme, "http" | "https") {
            return Err(bad("it must start with http:// or https://"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if rest.contains(['?', '#']) {
            return Err(bad("it must not have a query or a fragment"));
        }
        let address = format!("{scheme}://{authority}").parse();
        let address = address.map_err(|_| bad("expected a host and an optional port"))?;
        let path = path.trim_end_matches('/');
        let suffix = if path.ends_with(TRACES_PATH) { "" } else { TRACES_PATH };
        let path = format!("{path}{suffix}").parse().map_err(|_| bad("the path is invalid"))?;
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
        let response = match tokio::time::timeout(EXPORT_TIMEOUT, self.send(batch)).await {
            Ok(response) => response,
            Err(_) => Err(format!("no response within {} s", EXPORT_TIMEOUT.as_secs())),
        };
        let status = response.map_err(|why| SpanExportError { why, is_retryable: true })?.status();
        match status {
            _ if status.is_success() => Ok(()),
            // The four statuses that OTLP defines as retryable, and 408, which means the same.
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Err(SpanExportError { why: format!("status {status}"), is_retryable: true })
            }
            _ => Err(SpanExportError { why: format!("status {status}"), is_retryable: false }),
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
        let response = if is_http2 {
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
        response.map_err(describe_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` needs")]
fn describe_error(error: hyper::Error) -> String {
    format!("{error}; the collector must accept OTLP over HTTP (port 4318), not gRPC (port 4317)")
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
        for (text, displayed) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://otlp.example/api/x", "https://otlp.example:443/api/x/v1/traces"),
            ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
        ] {
            let endpoint = text.parse::<CollectorEndpoint>().map(|endpoint| endpoint.to_string());
            assert_eq!(endpoint.as_deref(), Ok(displayed));
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
