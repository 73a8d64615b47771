//! Turns error responses of the admin API into messages with advice.

use http::StatusCode;
use serde::Deserialize;
use tidegate_admin::CONFIRM_HEADER;
use tidegate_rules::decode::nearest;

use super::api::AdminClient;
use super::pagination;
use crate::http_client::ApiResponse;
use tidegate_server::error::CommandError;
use tidegate_server::output::escape_unprintable;

/// An error response of the API (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProblemResponse {
    pub(super) detail: String,
    pub(super) field: Option<String>,
    errors: Vec<RuleValidationError>,
}

/// One validation error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RuleValidationError {
    kind: Option<String>,
    id: Option<String>,
    field: String,
    found: Option<String>,
    message: String,
    hint: Option<String>,
}

impl ProblemResponse {
    pub(super) fn from_response(response: &ApiResponse) -> Self {
        serde_json::from_str(&response.body).unwrap_or_default()
    }

    /// All errors, one line each.
    fn render(&self) -> String {
        if self.errors.is_empty() {
            let field = self.field.as_deref().filter(|field| !field.is_empty());
            let field = field.map_or_else(String::new, |field| format!("{field}: "));
            return escape_unprintable(&format!("{field}{}", self.detail));
        }
        let lines: Vec<String> = self.errors.iter().map(RuleValidationError::render).collect();
        lines.join("\n  ")
    }
}

impl RuleValidationError {
    /// The error in one line, with what to write instead.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        if let (Some(kind), Some(id)) = (&self.kind, &self.id) {
            text.push_str(&format!("{kind} {id}: "));
        }
        if !self.field.is_empty() {
            text.push_str(&format!("{}: ", self.field));
        }
        text.push_str(&self.message);
        if let Some(found) = &self.found {
            text.push_str(&format!(", found `{found}`"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("; write {hint}"));
        }
        escape_unprintable(&text)
    }
}

/// The command's error for an error response.
pub(super) fn command_error(response: &ApiResponse, url: &str) -> CommandError {
    let problem = ProblemResponse::from_response(response);
    if problem.field.as_deref() == Some(CONFIRM_HEADER.as_str()) {
        return CommandError::Rejected(
            "nothing was changed: no rule would be left, so every request would pass\n  \
             write: --allow-empty to confirm that"
                .to_owned(),
        );
    }
    let message = problem.render();
    match response.status {
        StatusCode::UNAUTHORIZED => CommandError::Failed(format!(
            "{url} requires a token: {message}\n  \
             name the server's token file with --token-file FILE or TIDEGATE_ADMIN_TOKEN_FILE"
        )),
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            CommandError::Failed(format!("{url} denied access: {message}"))
        }
        StatusCode::PRECONDITION_FAILED => {
            CommandError::Rejected(format!("nothing was changed: {message}"))
        }
        StatusCode::BAD_REQUEST
        | StatusCode::NOT_FOUND
        | StatusCode::CONFLICT
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => CommandError::Rejected(message),
        StatusCode::SERVICE_UNAVAILABLE => CommandError::Failed(message),
        _ if message.is_empty() => not_admin_api(url),
        status => CommandError::Failed(format!("{url} responded {status}: {message}")),
    }
}

/// The error for a server that responds but is not the admin API.
pub(super) fn not_admin_api(url: &str) -> CommandError {
    CommandError::Failed(format!(
        "{url} responds, but it is not the admin API of a tidegate server\n  \
         pass the address from the server's `listening admin …` line with --admin URL\n  \
         (the default port is 8084; 8081 is the HTTP API for checks)"
    ))
}

/// The error for an unknown rule, with a suggestion.
pub(super) async fn rule_not_found(api: &AdminClient, id: &str) -> CommandError {
    let mut text = format!("there is no rule `{}`", escape_unprintable(id));
    // If the list cannot be fetched, the message has no suggestion.
    let rules = pagination::fetch_rules(api).await.unwrap_or_default();
    match nearest(id, rules.iter().map(|rule| rule.id.as_str())) {
        Some(near) => text.push_str(&format!("; did you mean `{}`?", escape_unprintable(near))),
        None => text.push_str("\n  `tidegate rules list` lists them"),
    }
    CommandError::Rejected(text)
}

/// The error for an unknown version, with the versions that exist.
pub(super) fn version_not_found(failure: CommandError, version: u64, latest: u64) -> CommandError {
    match failure {
        CommandError::Rejected(_) if latest == 0 => CommandError::Rejected(
            "there are no versions: they are kept only for rules in a database\n  \
             write: tidegate serve --rules-db sqlite:PATH …"
                .to_owned(),
        ),
        CommandError::Rejected(_) => CommandError::Rejected(format!(
            "there is no version {version}; there are 1 to {latest}, see `tidegate rules history`"
        )),
        other => other,
    }
}
