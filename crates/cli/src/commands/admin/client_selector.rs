//! Whom a command is about: the facts that are known of a client, and a rule's id if one is typed.

use http::{Method, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::api::{AdminClient, AdminResponse};
use super::api_errors;
use crate::cli::ApiKeyArgs;
use crate::facts;
use tidegate_server::error::CommandError;

/// A client and perhaps one rule.
pub(super) struct ClientSelector {
    pub(super) rule: Option<String>,
    pub(super) facts: Map<String, Json>,
}

impl ClientSelector {
    /// What was typed: `[RULE] FACT=VALUE …`, or the rule by a flag.
    ///
    /// # Errors
    /// When a word is neither, or the API key cannot be read.
    pub(super) fn parse(
        words: &[String],
        rule: Option<&str>,
        api_key: &ApiKeyArgs,
    ) -> Result<Self, CommandError> {
        let (first, words) = match words.split_first() {
            Some((first, rest)) if rule.is_none() && !first.contains('=') => (Some(first), rest),
            _ => (None, words),
        };
        let facts: Result<Vec<_>, _> = words.iter().map(|word| facts::parse(word)).collect();
        let facts = api_key.merge_with_facts(&facts.map_err(CommandError::Usage)?)?;
        let rule = rule.or(first.map(String::as_str)).map(str::to_owned);
        Ok(Self { rule, facts })
    }

    /// Asks the admin API about it.
    ///
    /// # Errors
    /// When there is no such rule, or the facts do not say its key.
    pub(super) async fn query(
        &self,
        api: &AdminClient,
        path: &str,
    ) -> Result<AdminResponse, CommandError> {
        let mut question = json!({"facts": self.facts});
        if let Some(rule) = &self.rule {
            question["rule"] = rule.as_str().into();
        }
        let answer = api.send_request(Method::POST, path, question.to_string(), None).await?;
        let field = api_errors::ProblemResponse::from_response(&answer).field;
        match (&self.rule, answer.status, field.as_deref()) {
            (Some(rule), StatusCode::NOT_FOUND, Some("rule")) => {
                Err(api_errors::rule_not_found(api, rule).await)
            }
            (Some(rule), StatusCode::UNPROCESSABLE_ENTITY, Some("facts")) => {
                let why = api_errors::ProblemResponse::from_response(&answer).detail;
                Err(CommandError::Usage(format!("{why}\n  write: {rule} FACT=VALUE …")))
            }
            _ => api.check_response(answer).await,
        }
    }
}
