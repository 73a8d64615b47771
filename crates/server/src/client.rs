//! A plain HTTP client for the command line: one question, one answer, within a time.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::failure::Failure;

/// A server that takes longer is as good as none.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer that is read.
const MOST_BYTES: usize = 4 << 20;

/// A server to ask.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    base: String,
    token: Option<String>,
}

/// What a server said.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

impl Server {
    /// The server at a URL such as `http://127.0.0.1:8081`; the scheme may be left out.
    ///
    /// # Errors
    /// When it is no URL of a plain HTTP server.
    pub(crate) fn new(url: &str, token: Option<String>) -> Result<Self, Failure> {
        let base = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let base = base.trim_end_matches('/').to_owned();
        let parsed = base.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        match parsed.as_ref().and_then(Uri::scheme_str) {
            Some("http") => Ok(Self { base, token }),
            _ => Err(Failure::Usage(format!(
                "--server takes the URL of a plain HTTP server, found `{url}`\n  \
                 write: --server http://127.0.0.1:8081"
            ))),
        }
    }

    /// Posts JSON to a path.
    ///
    /// # Errors
    /// When no whole answer comes in time.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<Answer, Failure> {
        let url = format!("{}{path}", self.base);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&url)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let value = value.map_err(|_| {
                Failure::CouldNot("the token holds characters that no header can".to_owned())
            })?;
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| Failure::Usage(format!("{url}: {error}")))?;
        match tokio::time::timeout(PATIENCE, exchange(request)).await {
            Ok(answer) => answer.map_err(|why| self.silent(&why)),
            Err(_) => Err(self.silent(&format!("it took longer than {} s", PATIENCE.as_secs()))),
        }
    }

    fn silent(&self, why: &str) -> Failure {
        Failure::CouldNot(format!(
            "no answer from {}: {why}\n  start a server with `tidegate serve`, name another with \
             --server,\n  or decide in this process with --config FILE or --limit LIMIT",
            self.base
        ))
    }
}

async fn exchange(request: Request<Full<Bytes>>) -> Result<Answer, String> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.map_err(|error| root_cause(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let body = String::from_utf8(body.to_vec()).map_err(|_| "the answer is not text".to_owned())?;
    Ok(Answer { status, body })
}

/// The innermost error: the layers around it only say that there was one.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
