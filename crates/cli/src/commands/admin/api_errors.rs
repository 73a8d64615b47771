//! What it means to the person at the terminal that the admin API refuses.

use http::StatusCode;
use serde::Deserialize;
use tidegate_admin::CONFIRM_HEADER;
use tidegate_rules::decode::nearest;

use super::api::AdminClient;
use super::pagination;
use crate::http_client::ApiResponse;
use tidegate_server::error::CommandError;
use tidegate_server::output::escape_unprintable;

/// A problem as the API tells it (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProblemResponse {
    pub(super) detail: String,
    pub(super) field: Option<String>,
    errors: Vec<RuleValidationError>,
}

/// One thing that is wrong with rules.
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
    pub(super) fn from_response(answer: &ApiResponse) -> Self {
        serde_json::from_str(&answer.body).unwrap_or_default()
    }

    /// What is wrong: all of it, a line each.
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
    /// It in a line, with what to write instead.
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

/// Why the API did not do as it was asked.
pub(super) fn command_error(answer: &ApiResponse, url: &str) -> CommandError {
    let problem = ProblemResponse::from_response(answer);
    if problem.field.as_deref() == Some(CONFIRM_HEADER.as_str()) {
        return CommandError::Rejected(
            "nothing was changed: no rule would be left, so every request would pass\n  \
             write: --allow-empty, if that is what you want"
                .to_owned(),
        );
    }
    let told = problem.render();
    match answer.status {
        StatusCode::UNAUTHORIZED => CommandError::Failed(format!(
            "{url} asks for a token: {told}\n  \
             name the file that it was started with: --token-file FILE or TIDEGATE_ADMIN_TOKEN_FILE"
        )),
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            CommandError::Failed(format!("{url} does not let you: {told}"))
        }
        StatusCode::PRECONDITION_FAILED => {
            CommandError::Rejected(format!("nothing was changed: {told}"))
        }
        StatusCode::BAD_REQUEST
        | StatusCode::NOT_FOUND
        | StatusCode::CONFLICT
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => CommandError::Rejected(told),
        StatusCode::SERVICE_UNAVAILABLE => CommandError::Failed(told),
        _ if told.is_empty() => not_admin_api(url),
        status => CommandError::Failed(format!("{url} says {status}: {told}")),
    }
}

/// Somebody answers, and it is not the admin API.
pub(super) fn not_admin_api(url: &str) -> CommandError {
    CommandError::Failed(format!(
        "{url} answers, but it is not the admin API of a tidegate\n  \
         its address is in the line `listening admin …` that the server prints (8084 unless it is said\n  \
         otherwise; 8081 is the door for checks): --admin URL"
    ))
}

/// That there is no such rule, with the one that was probably meant.
pub(super) async fn rule_not_found(api: &AdminClient, id: &str) -> CommandError {
    let mut text = format!("there is no rule `{}`", escape_unprintable(id));
    // Whether or not its name is found: the rule is missing.
    let rules = pagination::fetch_rules(api).await.unwrap_or_default();
    match nearest(id, rules.iter().map(|rule| rule.id.as_str())) {
        Some(near) => text.push_str(&format!("; did you mean `{}`?", escape_unprintable(near))),
        None => text.push_str("\n  `tidegate rules list` lists them"),
    }
    CommandError::Rejected(text)
}

/// That there is no such version, with those that there are.
pub(super) fn version_not_found(failure: CommandError, version: u64, latest: u64) -> CommandError {
    match failure {
        CommandError::Rejected(_) if latest == 0 => CommandError::Rejected(
            "there are no versions: only rules in a database have them, one for each change\n  \
             write: tidegate serve --rules-db sqlite:PATH …"
                .to_owned(),
        ),
        CommandError::Rejected(_) => CommandError::Rejected(format!(
            "there is no version {version}; there are 1 to {latest}, see `tidegate rules history`"
        )),
        other => other,
    }
}
