//! HTTP client of the command line. Sends one request with a timeout, or subscribes to a stream of
//! server-sent events. No TLS.

mod sse;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

pub(crate) use sse::SseStream;
use tidegate_server::error::CommandError;

/// Maximum size of a response: the largest document, or a page of a list.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// One of the server's APIs: its default address, its timeout, and advice for when it is
/// unreachable.
#[derive(Debug)]
pub(crate) struct ApiEndpoint {
    flag: &'static str,
    pub(crate) url: &'static str,
    timeout: Duration,
    /// What the user can do if the server does not respond.
    advice: &'static str,
}

/// The HTTP API for decisions.
pub(crate) const HTTP_API: ApiEndpoint = ApiEndpoint {
    flag: "--server",
    url: "http://127.0.0.1:8081",
    timeout: Duration::from_secs(5),
    advice: "start a server with `tidegate serve`, name another with --server,\n  \
             or decide in this process with --config FILE or --limit LIMIT",
};

/// The admin API. The timeout is longer because its database may take some seconds.
pub(crate) const ADMIN_API: ApiEndpoint = ApiEndpoint {
    flag: "--admin",
    url: "http://127.0.0.1:8084",
    timeout: Duration::from_secs(30),
    advice: "start a server with `tidegate serve --config rules.yaml`, or pass the address from its\n  \
             `listening admin …` line with --admin URL or TIDEGATE_ADMIN_URL",
};

/// A client of one API of a server.
#[derive(Clone, Debug)]
pub(crate) struct ApiClient {
    endpoint: &'static ApiEndpoint,
    base: String,
    /// The path of its Unix socket; `None` for TCP.
    socket: Option<PathBuf>,
    token: Option<String>,
}

/// A request to the server.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: String,
}

/// A response of the server.
#[derive(Clone, Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    /// The version of the resource, for `If-Match` in a later change.
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) body: String,
}

impl ApiClient {
    /// Creates a client for a URL such as `http://127.0.0.1:8081` (the scheme is optional), or for
    /// a Unix socket such as `unix:/run/tidegate/http.sock`.
    ///
    /// # Errors
    /// If `url` is neither a plain HTTP URL nor a Unix socket.
    pub(crate) fn new(
        endpoint: &'static ApiEndpoint,
        url: &str,
        token: Option<String>,
    ) -> Result<Self, CommandError> {
        if let Some(path) = url.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            let (base, socket) = (url.to_owned(), Some(PathBuf::from(path)));
            return Ok(Self { endpoint, base, socket, token });
        }
        let base = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let base = base.trim_end_matches('/').to_owned();
        let parsed = base.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        match parsed.as_ref().and_then(Uri::scheme_str).filter(|_| !url.starts_with("unix:")) {
            Some("http") => Ok(Self { endpoint, base, socket: None, token }),
            _ => Err(CommandError::Usage(format!(
                "{flag} takes the URL of a plain HTTP server, or a Unix socket, found `{url}`\n  \
                 write: {flag} {}, or {flag} unix:/run/tidegate/http.sock",
                endpoint.url,
                flag = endpoint.flag,
            ))),
        }
    }

    /// The server's address, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// Posts JSON to a path.
    ///
    /// # Errors
    /// If no complete response arrives before the timeout.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<ApiResponse, CommandError> {
        let (method, path) = (Method::POST, path.to_owned());
        self.execute(ApiRequest { method, path, headers: Vec::new(), body }).await
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// If no complete response arrives before the timeout.
    pub(crate) async fn execute(&self, request: ApiRequest) -> Result<ApiResponse, CommandError> {
        let request = self.build_request(request)?;
        self.with_timeout(async { read_response(self.send(request).await?).await }).await
    }

    /// Subscribes to the events of a path. Returns the inner `Err` with the response if the server
    /// responds with anything but an event stream.
    ///
    /// # Errors
    /// If no response arrives before the timeout.
    pub(crate) async fn subscribe(
        &self,
        path: &str,
    ) -> Result<Result<SseStream, ApiResponse>, CommandError> {
        let (method, path) = (Method::GET, path.to_owned());
        let request = self.build_request(ApiRequest {
            method,
            path,
            headers: Vec::new(),
            body: String::new(),
        })?;
        self.with_timeout(async {
            let response = self.send(request).await?;
            match SseStream::is_event_stream(&response) {
                true => Ok(Ok(SseStream::new(response.into_body()))),
                false => read_response(response).await.map(Err),
            }
        })
        .await
    }

    fn build_request(&self, request: ApiRequest) -> Result<Request<Full<Bytes>>, CommandError> {
        let ApiRequest { method, path, headers, body } = request;
        let base = if self.socket.is_some() { "http://localhost" } else { &self.base };
        let url = format!("{base}{path}");
        let mut request = Request::builder().method(method).uri(&url);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let value = value.map_err(|_| {
                CommandError::Failed(
                    "the token contains characters that are not allowed in a header".to_owned(),
                )
            })?;
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        request.map_err(|error| CommandError::Usage(format!("{url}: {error}")))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        let Some(socket) = &self.socket else {
            let client = Client::builder(TokioExecutor::new()).build_http();
            return client.request(request).await.map_err(|error| root_cause(&error));
        };
        let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| root_cause(&error))?;
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| root_cause(&error))
    }

    async fn with_timeout<T>(
        &self,
        response: impl Future<Output = Result<T, String>>,
    ) -> Result<T, CommandError> {
        let timeout = self.endpoint.timeout;
        match tokio::time::timeout(timeout, response).await {
            Ok(response) => response.map_err(|why| self.no_answer_error(&why)),
            Err(_) => {
                Err(self.no_answer_error(&format!("timed out after {} s", timeout.as_secs())))
            }
        }
    }

    fn no_answer_error(&self, why: &str) -> CommandError {
        CommandError::Failed(format!(
            "no answer from {}: {why}\n  {}",
            self.base, self.endpoint.advice
        ))
    }
}

async fn read_response(response: Response<Incoming>) -> Result<ApiResponse, String> {
    let (status, etag) = (response.status(), response.headers().get(ETAG).cloned());
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let body =
        String::from_utf8(body.to_vec()).map_err(|_| "the response is not UTF-8".to_owned())?;
    Ok(ApiResponse { status, etag, body })
}

/// The innermost error; the errors that wrap it add no information.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
