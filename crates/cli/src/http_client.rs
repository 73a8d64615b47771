//! A plain HTTP client for the command line: one question, one answer, within a time; or events, for as long as somebody
//! listens.

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

/// The longest answer that is read: a document as long as there may be, or a page of a list.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// A door that is asked, and what to say when nobody is there.
#[derive(Debug)]
pub(crate) struct ApiEndpoint {
    flag: &'static str,
    pub(crate) url: &'static str,
    /// A server that takes longer is as good as none.
    timeout: Duration,
    /// What somebody who gets no answer can do.
    advice: &'static str,
}

/// The door that decides.
pub(crate) const HTTP_API: ApiEndpoint = ApiEndpoint {
    flag: "--server",
    url: "http://127.0.0.1:8081",
    timeout: Duration::from_secs(5),
    advice: "start a server with `tidegate serve`, name another with --server,\n  \
             or decide in this process with --config FILE or --limit LIMIT",
};

/// The door of the rule office. Its database may take some seconds.
pub(crate) const ADMIN_API: ApiEndpoint = ApiEndpoint {
    flag: "--admin",
    url: "http://127.0.0.1:8084",
    timeout: Duration::from_secs(30),
    advice: "start a server with `tidegate serve --config rules.yaml`, or name the address that it prints\n  \
             as `listening admin …` with --admin URL or TIDEGATE_ADMIN_URL",
};

/// A server to ask.
#[derive(Clone, Debug)]
pub(crate) struct ApiClient {
    endpoint: &'static ApiEndpoint,
    base: String,
    /// The file that it listens in, if it is no port.
    socket: Option<PathBuf>,
    token: Option<String>,
}

/// What is asked of it.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: String,
}

/// What a server said.
#[derive(Clone, Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    /// The version of what it tells, to be sent back with `If-Match`.
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) body: String,
}

impl ApiClient {
    /// The server whose door is at a URL such as `http://127.0.0.1:8081`, where the scheme may be left out, or in
    /// a file, such as `unix:/run/tidegate/http.sock`.
    ///
    /// # Errors
    /// When it is no URL of a plain HTTP server, and no file.
    pub(crate) fn new(
        door: &'static ApiEndpoint,
        url: &str,
        token: Option<String>,
    ) -> Result<Self, CommandError> {
        if let Some(path) = url.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            let (base, socket) = (url.to_owned(), Some(PathBuf::from(path)));
            return Ok(Self { endpoint: door, base, socket, token });
        }
        let base = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let base = base.trim_end_matches('/').to_owned();
        let parsed = base.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        match parsed.as_ref().and_then(Uri::scheme_str).filter(|_| !url.starts_with("unix:")) {
            Some("http") => Ok(Self { endpoint: door, base, socket: None, token }),
            _ => Err(CommandError::Usage(format!(
                "{flag} takes the URL of a plain HTTP server, or its file, found `{url}`\n  \
                 write: {flag} {}, or {flag} unix:/run/tidegate/http.sock",
                door.url,
                flag = door.flag,
            ))),
        }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// Posts JSON to a path.
    ///
    /// # Errors
    /// When no whole answer comes in time.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<ApiResponse, CommandError> {
        let (method, path) = (Method::POST, path.to_owned());
        self.execute(ApiRequest { method, path, headers: Vec::new(), body }).await
    }

    /// Asks a question.
    ///
    /// # Errors
    /// When no whole answer comes in time.
    pub(crate) async fn execute(&self, question: ApiRequest) -> Result<ApiResponse, CommandError> {
        let request = self.build_request(question)?;
        self.with_timeout(async { read_response(self.send(request).await?).await }).await
    }

    /// Asks for what goes on at a path. Whoever has other things to say answers with them instead.
    ///
    /// # Errors
    /// When no answer comes in time.
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

    fn build_request(&self, question: ApiRequest) -> Result<Request<Full<Bytes>>, CommandError> {
        let ApiRequest { method, path, headers, body } = question;
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
                CommandError::Failed("the token holds characters that no header can".to_owned())
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
        asked: impl Future<Output = Result<T, String>>,
    ) -> Result<T, CommandError> {
        let patience = self.endpoint.timeout;
        match tokio::time::timeout(patience, asked).await {
            Ok(answer) => answer.map_err(|why| self.no_answer_error(&why)),
            Err(_) => {
                Err(self.no_answer_error(&format!("it took longer than {} s", patience.as_secs())))
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
    let (status, tag) = (response.status(), response.headers().get(ETAG).cloned());
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let body = String::from_utf8(body.to_vec()).map_err(|_| "the answer is not text".to_owned())?;
    Ok(ApiResponse { status, etag: tag, body })
}

/// The innermost error: the layers around it only say that there was one.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
