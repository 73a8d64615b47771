//! What it means to the person at the terminal that the admin API refuses.

use http::StatusCode;
use serde::Deserialize;
use tidegate_control::admin::CONFIRM;
use tidegate_rules::decode::nearest;

use super::api::Api;
use super::pages;
use crate::client::Answer;
use crate::failure::Failure;
use crate::output::printable;

/// A problem as the API tells it (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    pub(super) detail: String,
    pub(super) field: Option<String>,
    errors: Vec<Flaw>,
}

/// One thing that is wrong with rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Flaw {
    kind: Option<String>,
    id: Option<String>,
    field: String,
    found: Option<String>,
    message: String,
    hint: Option<String>,
}

impl Problem {
    pub(super) fn of(answer: &Answer) -> Self {
        serde_json::from_str(&answer.body).unwrap_or_default()
    }

    /// What is wrong: all of it, a line each.
    fn told(&self) -> String {
        if self.errors.is_empty() {
            let field = self.field.as_deref().filter(|field| !field.is_empty());
            let field = field.map_or_else(String::new, |field| format!("{field}: "));
            return printable(&format!("{field}{}", self.detail));
        }
        let lines: Vec<String> = self.errors.iter().map(Flaw::told).collect();
        lines.join("\n  ")
    }
}

impl Flaw {
    /// It in a line, with what to write instead.
    pub(super) fn told(&self) -> String {
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
        printable(&text)
    }
}

/// Why the API did not do as it was asked.
pub(super) fn of(answer: &Answer, url: &str) -> Failure {
    let problem = Problem::of(answer);
    if problem.field.as_deref() == Some(CONFIRM.as_str()) {
        return Failure::No(
            "nothing was changed: no rule would be left, so every request would pass\n  \
             write: --allow-empty, if that is what you want"
                .to_owned(),
        );
    }
    let told = problem.told();
    match answer.status {
        StatusCode::UNAUTHORIZED => Failure::CouldNot(format!(
            "{url} asks for a token: {told}\n  \
             name the file that it was started with: --token-file FILE or TIDEGATE_ADMIN_TOKEN_FILE"
        )),
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            Failure::CouldNot(format!("{url} does not let you: {told}"))
        }
        StatusCode::PRECONDITION_FAILED => Failure::No(format!("nothing was changed: {told}")),
        StatusCode::BAD_REQUEST
        | StatusCode::NOT_FOUND
        | StatusCode::CONFLICT
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => Failure::No(told),
        StatusCode::SERVICE_UNAVAILABLE => Failure::CouldNot(told),
        _ if told.is_empty() => another_door(url),
        status => Failure::CouldNot(format!("{url} says {status}: {told}")),
    }
}

/// Somebody answers, and it is not the admin API.
pub(super) fn another_door(url: &str) -> Failure {
    Failure::CouldNot(format!(
        "{url} answers, but it is not the admin API of a tidegate\n  \
         its address is in the line `listening admin …` that the server prints (8084 unless it is said\n  \
         otherwise; 8081 is the door for checks): --admin URL"
    ))
}

/// That there is no such rule, with the one that was probably meant.
pub(super) async fn no_rule(api: &Api, id: &str) -> Failure {
    let mut text = format!("there is no rule `{}`", printable(id));
    // Whether or not its name is found: the rule is missing.
    let rules = pages::rules(api).await.unwrap_or_default();
    match nearest(id, rules.iter().map(|rule| rule.id.as_str())) {
        Some(near) => text.push_str(&format!("; did you mean `{}`?", printable(near))),
        None => text.push_str("\n  `tidegate rules list` lists them"),
    }
    Failure::No(text)
}

/// That there is no such version, with those that there are.
pub(super) fn no_version(failure: Failure, version: u64, latest: u64) -> Failure {
    match failure {
        Failure::No(_) if latest == 0 => Failure::No(
            "there are no versions: only rules in a database have them, one for each change\n  \
             write: tidegate serve --rules-db sqlite:PATH …"
                .to_owned(),
        ),
        Failure::No(_) => Failure::No(format!(
            "there is no version {version}; there are 1 to {latest}, see `tidegate rules history`"
        )),
        other => other,
    }
}
