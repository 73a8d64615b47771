//! The admin API of a running server, as the commands see it. What refusals mean to people is in
//! [`super::api_errors`].

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

/// The admin API of a running server.
pub(super) struct AdminClient {
    server: ApiClient,
    /// Who changes something and why, and what they confirm.
    change_headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) json: bool,
}

/// What the API said when it did as it was asked.
pub(super) struct AdminResponse {
    /// Word for word.
    pub(super) body: String,
    /// The version of what it tells.
    pub(super) etag: Option<HeaderValue>,
}

impl AdminClient {
    /// The API that the command line names, to read.
    ///
    /// # Errors
    /// When that is no URL, or the token cannot be read.
    pub(super) fn new(args: &AdminApiArgs) -> Result<Self, CommandError> {
        let token = args.token_file.as_deref();
        let token = token.map(|path| config::read_secret(path, "--token-file")).transpose()?;
        let server = ApiClient::new(&http_client::ADMIN_API, &args.admin, token)?;
        Ok(Self { server, change_headers: Vec::new(), json: args.output.json })
    }

    /// The same, to change something that is on record with who and why.
    ///
    /// # Errors
    /// Those of [`Self::new`], and when a name or reason holds what no header can.
    pub(super) fn with_author(
        args: &AdminApiArgs,
        sign: &ChangeAuthorArgs,
    ) -> Result<Self, CommandError> {
        let author = sign.author.clone().or_else(|| std::env::var("USER").ok());
        let said =
            [(AUTHOR_HEADER, author, "--author"), (REASON_HEADER, sign.reason.clone(), "--reason")];
        let mut signed = Vec::new();
        for (name, text, flag) in said {
            let Some(text) = text else { continue };
            let value = HeaderValue::from_bytes(text.as_bytes());
            let value =
                value.map_err(|_| CommandError::Usage(format!("{flag} is one line of text")))?;
            signed.push((name, value));
        }
        Ok(Self { change_headers: signed, ..Self::new(args)? })
    }

    /// The same, which confirms a change that leaves no rule, if the command line does.
    pub(super) fn allow_empty(mut self, empty: &AllowEmptyArgs) -> Self {
        self.change_headers.extend(empty.allow_empty.then_some((CONFIRM_HEADER, CONFIRM_EMPTY)));
        self
    }

    /// Where it is.
    pub(super) fn url(&self) -> &str {
        self.server.url()
    }

    /// Reads what is at a path.
    ///
    /// # Errors
    /// When the API does not tell.
    pub(super) async fn get(&self, path: &str) -> Result<AdminResponse, CommandError> {
        self.send_change(Method::GET, path, String::new(), None).await
    }

    /// Changes something, all of it or nothing; `seen` is what was looked at before.
    ///
    /// # Errors
    /// When the API does not do it.
    pub(super) async fn send_change(
        &self,
        method: Method,
        path: &str,
        body: String,
        seen: Option<HeaderValue>,
    ) -> Result<AdminResponse, CommandError> {
        let answer = self.send_request(method, path, body, seen).await?;
        self.check_response(answer).await
    }

    /// Puts a question; whatever comes back is an answer.
    ///
    /// # Errors
    /// When nothing comes back.
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

    /// Refuses where rules are changed elsewhere, before a person is asked to confirm.
    ///
    /// # Errors
    /// Why they cannot be changed here, and what to do instead.
    pub(super) async fn check_editable(&self) -> Result<(), CommandError> {
        let mut status = self.get("/v1/status").await?.parse_json()?;
        match status["rules"]["read_only_reason"].take() {
            Json::String(reason) => Err(CommandError::Rejected(escape_unprintable(&reason))),
            _ => Ok(()),
        }
    }

    /// Listens to what goes on at a path.
    ///
    /// # Errors
    /// When the API does not tell.
    pub(super) async fn subscribe(&self, path: &str) -> Result<SseStream, CommandError> {
        match self.server.subscribe(path).await? {
            Ok(events) => Ok(events),
            Err(answer) => match self.check_response(answer).await {
                Ok(_) => Err(super::api_errors::not_admin_api(self.url())),
                Err(failure) => Err(failure),
            },
        }
    }

    /// What an answer tells, if it is what was asked for.
    ///
    /// # Errors
    /// What the refusal means.
    pub(super) async fn check_response(
        &self,
        answer: ApiResponse,
    ) -> Result<AdminResponse, CommandError> {
        if answer.status.is_success() {
            // A page of a website is no answer of ours; a document in YAML has a version.
            return match answer.etag.is_some() || answer.body.starts_with('{') {
                true => Ok(AdminResponse { body: answer.body, etag: answer.etag }),
                false => Err(super::api_errors::not_admin_api(self.url())),
            };
        }
        // Also other doors say 404, of paths that only this one has.
        if answer.status == StatusCode::NOT_FOUND && !self.is_admin_api().await? {
            return Err(super::api_errors::not_admin_api(self.url()));
        }
        Err(super::api_errors::command_error(&answer, self.url()))
    }

    async fn is_admin_api(&self) -> Result<bool, CommandError> {
        let answer = self.send_request(Method::GET, "/v1/status", String::new(), None).await?;
        Ok(answer.status != StatusCode::NOT_FOUND)
    }
}

impl AdminResponse {
    /// Reads what was told.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, CommandError> {
        decision_query::parse_response(&self.body)
    }

    /// The same without a form.
    ///
    /// # Errors
    /// When it is no JSON.
    pub(super) fn parse_json(&self) -> Result<Json, CommandError> {
        self.parse()
    }
}

/// Waits for what is asked.
///
/// # Errors
/// Its own, or that there is no runtime.
pub(super) fn block_on<T>(
    asked: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    decision_query::block_on(asked)
}
