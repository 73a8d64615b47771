//! Client of the admin API. [`super::api_errors`] turns its error responses into messages.

use http::header::{HeaderName, HeaderValue, IF_MATCH};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tidegate_admin::{AUTHOR_HEADER, CONFIRM_EMPTY, CONFIRM_HEADER, REASON_HEADER};

use crate::cli::{AdminApiArgs, AllowEmptyArgs, ChangeAuthorArgs};
use crate::commands::decision_query;
use crate::http_client::{self, ApiClient, ApiRequest, ApiResponse, SseStream};
use tidegate_server::config;
use tidegate_server::error::CommandError;
use tidegate_server::output::escape_unprintable;

/// A client of the admin API of a running server.
pub(super) struct AdminClient {
    server: ApiClient,
    /// Headers of changes: author, reason and confirmation.
    change_headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) json: bool,
}

/// A successful response of the API.
pub(super) struct AdminResponse {
    /// The unchanged body.
    pub(super) body: String,
    /// The version of the resource.
    pub(super) etag: Option<HeaderValue>,
}

impl AdminClient {
    /// Creates a client for read requests, from the command line.
    ///
    /// # Errors
    /// If the URL is invalid or the token cannot be read.
    pub(super) fn new(args: &AdminApiArgs) -> Result<Self, CommandError> {
        let token = args.token_file.as_deref();
        let token = token.map(|path| config::read_secret(path, "--token-file")).transpose()?;
        let server = ApiClient::new(&http_client::ADMIN_API, &args.admin, token)?;
        Ok(Self { server, change_headers: Vec::new(), json: args.output.json })
    }

    /// Creates a client for changes, which the server records with author and reason.
    ///
    /// # Errors
    /// Those of [`Self::new`], and if author or reason are not valid in a header.
    pub(super) fn with_author(
        args: &AdminApiArgs,
        authorship: &ChangeAuthorArgs,
    ) -> Result<Self, CommandError> {
        let author = authorship.author.clone().or_else(|| std::env::var("USER").ok());
        let reason = authorship.reason.clone();
        let headers = [(AUTHOR_HEADER, author, "--author"), (REASON_HEADER, reason, "--reason")];
        let mut change_headers = Vec::new();
        for (name, text, flag) in headers {
            let Some(text) = text else { continue };
            let value = HeaderValue::from_bytes(text.as_bytes());
            let value = value
                .map_err(|_| CommandError::Usage(format!("{flag} must be one line of text")))?;
            change_headers.push((name, value));
        }
        Ok(Self { change_headers, ..Self::new(args)? })
    }

    /// Confirms changes that leave no rules, if `--allow-empty` was given.
    pub(super) fn allow_empty(mut self, empty: &AllowEmptyArgs) -> Self {
        self.change_headers.extend(empty.allow_empty.then_some((CONFIRM_HEADER, CONFIRM_EMPTY)));
        self
    }

    /// The address of the API, for messages.
    pub(super) fn url(&self) -> &str {
        self.server.url()
    }

    /// Gets a resource.
    ///
    /// # Errors
    /// If the request fails or the API returns an error.
    pub(super) async fn get(&self, path: &str) -> Result<AdminResponse, CommandError> {
        self.send_change(Method::GET, path, String::new(), None).await
    }

    /// Makes a change, which is applied completely or not at all. With `seen`, the change fails if
    /// the resource no longer has that version.
    ///
    /// # Errors
    /// If the request fails or the API returns an error.
    pub(super) async fn send_change(
        &self,
        method: Method,
        path: &str,
        body: String,
        seen: Option<HeaderValue>,
    ) -> Result<AdminResponse, CommandError> {
        let response = self.send_request(method, path, body, seen).await?;
        self.check_response(response).await
    }

    /// Sends a request and returns the response, whatever its status.
    ///
    /// # Errors
    /// If there is no response.
    pub(super) async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: String,
        seen: Option<HeaderValue>,
    ) -> Result<ApiResponse, CommandError> {
        let seen = seen.map(|seen| (IF_MATCH, seen));
        let headers = self.change_headers.iter().cloned().chain(seen).collect();
        self.server.execute(ApiRequest { method, path: path.to_owned(), headers, body }).await
    }

    /// Checks that the rules can be changed through the API. Called before asking for confirmation.
    ///
    /// # Errors
    /// If the rules are read-only: the reason, and what to do instead.
    pub(super) async fn check_editable(&self) -> Result<(), CommandError> {
        let mut status = self.get("/v1/status").await?.parse_json()?;
        match status["rules"]["read_only_reason"].take() {
            Json::String(reason) => Err(CommandError::Rejected(escape_unprintable(&reason))),
            _ => Ok(()),
        }
    }

    /// Subscribes to the events of a path.
    ///
    /// # Errors
    /// If the request fails or the API returns an error.
    pub(super) async fn subscribe(&self, path: &str) -> Result<SseStream, CommandError> {
        match self.server.subscribe(path).await? {
            Ok(events) => Ok(events),
            Err(response) => match self.check_response(response).await {
                Ok(_) => Err(super::api_errors::not_admin_api(self.url())),
                Err(failure) => Err(failure),
            },
        }
    }

    /// Turns an error response into an error.
    ///
    /// # Errors
    /// The API's error, or that the server is not the admin API.
    pub(super) async fn check_response(
        &self,
        response: ApiResponse,
    ) -> Result<AdminResponse, CommandError> {
        if response.status.is_success() {
            // The admin API returns JSON, or a YAML document with an ETag. Anything else, such as
            // an HTML page, is from another server.
            return match response.etag.is_some() || response.body.starts_with('{') {
                true => Ok(AdminResponse { body: response.body, etag: response.etag }),
                false => Err(super::api_errors::not_admin_api(self.url())),
            };
        }
        // The server's other listeners also return 404, for paths that only the admin API has.
        if response.status == StatusCode::NOT_FOUND && !self.is_admin_api().await? {
            return Err(super::api_errors::not_admin_api(self.url()));
        }
        Err(super::api_errors::command_error(&response, self.url()))
    }

    async fn is_admin_api(&self) -> Result<bool, CommandError> {
        let response = self.send_request(Method::GET, "/v1/status", String::new(), None).await?;
        Ok(response.status != StatusCode::NOT_FOUND)
    }
}

impl AdminResponse {
    /// Parses the body.
    ///
    /// # Errors
    /// If the body does not have the expected form.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, CommandError> {
        decision_query::parse_response(&self.body)
    }

    /// Parses the body as generic JSON.
    ///
    /// # Errors
    /// If the body is not JSON.
    pub(super) fn parse_json(&self) -> Result<Json, CommandError> {
        self.parse()
    }
}

/// Runs a future to completion.
///
/// # Errors
/// If the runtime cannot be started, or the future's error.
pub(super) fn block_on<T>(
    future: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    decision_query::block_on(future)
}
