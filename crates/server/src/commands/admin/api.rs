//! The admin API of a running server, as the commands see it. What refusals mean to people is in
//! [`super::refusal`].

use http::header::{HeaderName, HeaderValue, IF_MATCH};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tidegate_control::admin::{AUTHOR, CONFIRM, EMPTY, REASON};

use crate::cli::{EmptyArgs, OfficeArgs, SignArgs};
use crate::client::{self, Answer, Events, Question, Server};
use crate::commands::ask;
use crate::config;
use crate::failure::Failure;
use crate::output::printable;

/// The admin API of a running server.
pub(super) struct Api {
    server: Server,
    /// Who changes something and why, and what they confirm.
    signed: Vec<(HeaderName, HeaderValue)>,
    pub(super) json: bool,
}

/// What the API said when it did as it was asked.
pub(super) struct Told {
    /// Word for word.
    pub(super) body: String,
    /// The version of what it tells.
    pub(super) tag: Option<HeaderValue>,
}

impl Api {
    /// The API that the command line names, to read.
    ///
    /// # Errors
    /// When that is no URL, or the token cannot be read.
    pub(super) fn new(args: &OfficeArgs) -> Result<Self, Failure> {
        let token = args.token_file.as_deref();
        let token = token.map(|path| config::read_secret(path, "--token-file")).transpose()?;
        let server = Server::new(&client::ADMIN, &args.admin, token)?;
        Ok(Self { server, signed: Vec::new(), json: args.output.json })
    }

    /// The same, to change something that is on record with who and why.
    ///
    /// # Errors
    /// Those of [`Self::new`], and when a name or reason holds what no header can.
    pub(super) fn signed(args: &OfficeArgs, sign: &SignArgs) -> Result<Self, Failure> {
        let author = sign.author.clone().or_else(|| std::env::var("USER").ok());
        let said = [(AUTHOR, author, "--author"), (REASON, sign.reason.clone(), "--reason")];
        let mut signed = Vec::new();
        for (name, text, flag) in said {
            let Some(text) = text else { continue };
            let value = HeaderValue::from_bytes(text.as_bytes());
            let value = value.map_err(|_| Failure::Usage(format!("{flag} is one line of text")))?;
            signed.push((name, value));
        }
        Ok(Self { signed, ..Self::new(args)? })
    }

    /// The same, which confirms a change that leaves no rule, if the command line does.
    pub(super) fn confirming(mut self, empty: &EmptyArgs) -> Self {
        self.signed.extend(empty.allow_empty.then_some((CONFIRM, EMPTY)));
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
    pub(super) async fn get(&self, path: &str) -> Result<Told, Failure> {
        self.change(Method::GET, path, String::new(), None).await
    }

    /// Changes something, all of it or nothing; `seen` is what was looked at before.
    ///
    /// # Errors
    /// When the API does not do it.
    pub(super) async fn change(
        &self,
        method: Method,
        path: &str,
        body: String,
        seen: Option<HeaderValue>,
    ) -> Result<Told, Failure> {
        let answer = self.ask(method, path, body, seen).await?;
        self.understood(answer).await
    }

    /// Puts a question; whatever comes back is an answer.
    ///
    /// # Errors
    /// When nothing comes back.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: String,
        seen: Option<HeaderValue>,
    ) -> Result<Answer, Failure> {
        let seen = seen.map(|seen| (IF_MATCH, seen));
        let headers = self.signed.iter().cloned().chain(seen).collect();
        self.server.ask(Question { method, path: path.to_owned(), headers, body }).await
    }

    /// Refuses where rules are changed elsewhere, before a person is asked to confirm.
    ///
    /// # Errors
    /// Why they cannot be changed here, and what to do instead.
    pub(super) async fn check_editable(&self) -> Result<(), Failure> {
        let mut status = self.get("/v1/status").await?.value()?;
        match status["rules"]["read_only_reason"].take() {
            Json::String(reason) => Err(Failure::No(printable(&reason))),
            _ => Ok(()),
        }
    }

    /// Listens to what goes on at a path.
    ///
    /// # Errors
    /// When the API does not tell.
    pub(super) async fn listen(&self, path: &str) -> Result<Events, Failure> {
        match self.server.listen(path).await? {
            Ok(events) => Ok(events),
            Err(answer) => match self.understood(answer).await {
                Ok(_) => Err(super::refusal::another_door(self.url())),
                Err(failure) => Err(failure),
            },
        }
    }

    /// What an answer tells, if it is what was asked for.
    ///
    /// # Errors
    /// What the refusal means.
    pub(super) async fn understood(&self, answer: Answer) -> Result<Told, Failure> {
        if answer.status.is_success() {
            // A page of a website is no answer of ours; a document in YAML has a version.
            return match answer.tag.is_some() || answer.body.starts_with('{') {
                true => Ok(Told { body: answer.body, tag: answer.tag }),
                false => Err(super::refusal::another_door(self.url())),
            };
        }
        // Also other doors say 404, of paths that only this one has.
        if answer.status == StatusCode::NOT_FOUND && !self.is_admin().await? {
            return Err(super::refusal::another_door(self.url()));
        }
        Err(super::refusal::of(&answer, self.url()))
    }

    async fn is_admin(&self) -> Result<bool, Failure> {
        let answer = self.ask(Method::GET, "/v1/status", String::new(), None).await?;
        Ok(answer.status != StatusCode::NOT_FOUND)
    }
}

impl Told {
    /// Reads what was told.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        ask::read(&self.body)
    }

    /// The same without a form.
    ///
    /// # Errors
    /// When it is no JSON.
    pub(super) fn value(&self) -> Result<Json, Failure> {
        self.read()
    }
}

/// Waits for what is asked.
///
/// # Errors
/// Its own, or that there is no runtime.
pub(super) fn wait<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    ask::wait(asked)
}
