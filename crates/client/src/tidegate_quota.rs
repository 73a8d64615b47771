//! A shared quota that is counted by a Tidegate server (`POST /v1/check`).

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::time::timeout;
use tower_service::Service;

use crate::client_service::call_when_ready;
use crate::shared_quota::{QuotaAnswer, QuotaFuture, SharedQuota, SharedQuotaError};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// Responses are much shorter.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Counts calls in a Tidegate server, so that several processes share one quota.
///
/// The server needs a rule by the fact that holds the key: `host`, unless
/// [`fact_name`](Self::fact_name) says otherwise.
///
/// ```yaml
/// rules:
///   - { id: partner-api, match: { host: api.partner.example }, key_by: host, limit: 3000/min }
/// ```
///
/// ```no_run
/// use std::sync::Arc;
///
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
/// use tidegate_client::{ClientLayer, TidegateQuota};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
/// let quota = TidegateQuota::new(http, "http://127.0.0.1:8081")?;
/// let layer = ClientLayer::new().shared_quota(Arc::new(quota));
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TidegateQuota<S, B = Full<Bytes>> {
    service: S,
    uri: Uri,
    fact_name: String,
    timeout: Duration,
    body: PhantomData<fn() -> B>,
}

/// The URL of a Tidegate server is not one.
///
/// ```
/// use http_body_util::Full;
/// use tidegate_client::TidegateQuota;
///
/// let quota = TidegateQuota::<_, Full<bytes::Bytes>>::new((), "127.0.0.1");
/// let message = "`127.0.0.1` is not the URL of a Tidegate server: write `http://HOST:PORT`";
/// assert_eq!(quota.unwrap_err().to_string(), message);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUrlError(String);

impl<S, B> TidegateQuota<S, B> {
    /// Counts in the server at `base_url`, and calls it with `service`.
    ///
    /// # Errors
    /// If `base_url` is not a URL such as `http://127.0.0.1:8081`.
    pub fn new(service: S, base_url: &str) -> Result<Self, QuotaUrlError> {
        let uri = format!("{}/v1/check", base_url.trim_end_matches('/')).parse::<Uri>().ok();
        let uri = uri.filter(|uri| uri.scheme().is_some() && uri.host().is_some());
        Ok(Self {
            service,
            uri: uri.ok_or_else(|| QuotaUrlError(base_url.to_owned()))?,
            fact_name: "host".to_owned(),
            timeout: DEFAULT_TIMEOUT,
            body: PhantomData,
        })
    }

    /// The fact that holds the key: `host` by default.
    #[must_use]
    pub fn fact_name(mut self, name: impl Into<String>) -> Self {
        self.fact_name = name.into();
        self
    }

    /// How long a check may take: 1 s by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl<S, B: From<Bytes>> TidegateQuota<S, B> {
    fn request(&self, key: &str, cost: u32) -> Result<Request<B>, http::Error> {
        let (name, key) = (quote_json(&self.fact_name), quote_json(key));
        let body = format!(r#"{{"facts":{{{name}:{key}}},"cost":{cost}}}"#);
        Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Bytes::from(body).into())
    }

    async fn check<R>(&self, key: &str, cost: u32) -> Result<QuotaAnswer, SharedQuotaError>
    where
        R: Body<Data: Send, Error: Display> + Send,
        S: Service<Request<B>, Response = Response<R>, Error: Display> + Clone,
    {
        let request = self.request(key, cost).map_err(unavailable)?;
        let response = call_when_ready(&mut self.service.clone(), request).await;
        let (parts, body) = response.map_err(unavailable)?.into_parts();
        let body = Limited::new(body.map_err(|error| error.to_string()), MAX_RESPONSE_BYTES);
        let bytes = body.collect().await.map_err(unavailable)?.to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        match parts.status {
            StatusCode::OK if text.contains(r#""rule":null"#) => Err(unavailable(format!(
                "no rule with a limit applies to the fact `{}`; add one to the rules of the server",
                self.fact_name
            ))),
            StatusCode::OK => Ok(QuotaAnswer::Granted { delay: read_delay(&text) }),
            StatusCode::TOO_MANY_REQUESTS => {
                let wait = parts.headers.get(RETRY_AFTER_MS).and_then(|value| value.to_str().ok());
                let wait = wait.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
                Ok(wait.map_or(QuotaAnswer::NeverFits, QuotaAnswer::RetryAfter))
            }
            status => Err(unavailable(format!("{} answered {status}: {text}", self.uri))),
        }
    }
}

impl<S, B, R> SharedQuota for TidegateQuota<S, B>
where
    S: Service<Request<B>, Response = Response<R>, Error: Display, Future: Send>,
    S: Clone + Send + Sync,
    B: From<Bytes> + Send,
    R: Body<Data: Send, Error: Display> + Send,
{
    fn acquire<'a>(&'a self, key: &'a str, cost: u32) -> QuotaFuture<'a> {
        Box::pin(async move {
            let late = |_| unavailable(format!("{} did not answer in time", self.uri));
            timeout(self.timeout, self.check(key, cost)).await.map_err(late)?
        })
    }
}

/// Finds the time for which a rule with a queue delays the call. No text in the response contains
/// an unescaped quote, and the outer number comes before those of the rules.
fn read_delay(json: &str) -> Duration {
    let digits = json.split_once(r#""delay_ms":"#).map_or("", |(_, rest)| rest);
    let digits = digits.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    Duration::from_millis(digits.parse().unwrap_or_default())
}

/// A JSON string.
fn quote_json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn unavailable(reason: impl Display) -> SharedQuotaError {
    SharedQuotaError::Unavailable(reason.to_string())
}

impl<S: Clone, B> Clone for TidegateQuota<S, B> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            uri: self.uri.clone(),
            fact_name: self.fact_name.clone(),
            timeout: self.timeout,
            body: PhantomData,
        }
    }
}

impl fmt::Display for QuotaUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(url) = self;
        write!(f, "`{url}` is not the URL of a Tidegate server: write `http://HOST:PORT`")
    }
}

impl std::error::Error for QuotaUrlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_quoted_as_json() {
        assert_eq!(quote_json("a\"b\\c\nd\u{e9}"), "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
    }

    #[test]
    fn outer_delay_of_a_response_is_read() {
        let json = r#"{"allowed":true,"rule":"x","delay_ms":250,"rules":[{"delay_ms":9}]}"#;
        assert_eq!(read_delay(json), Duration::from_millis(250));
        for json in ["", "{}", r#"{"delay_ms":null}"#, r#"{"delay_ms":"#] {
            assert_eq!(read_delay(json), Duration::ZERO, "{json}");
        }
    }
}
