//! Selects a client by its facts, and optionally one rule.

use http::{Method, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::api::{AdminClient, AdminResponse};
use super::api_errors;
use crate::cli::ApiKeyArgs;
use crate::facts;
use tidegate_server::error::CommandError;

/// The facts of a client, and optionally one rule.
pub(super) struct ClientSelector {
    pub(super) rule: Option<String>,
    pub(super) facts: Map<String, Json>,
}

impl ClientSelector {
    /// Parses `[RULE] FACT=VALUE …`; a flag may name the rule instead.
    ///
    /// # Errors
    /// If an argument is not a fact, or the API key cannot be read.
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

    /// Posts the selection to a path of the admin API.
    ///
    /// # Errors
    /// If there is no such rule, or the facts do not contain its key.
    pub(super) async fn query(
        &self,
        api: &AdminClient,
        path: &str,
    ) -> Result<AdminResponse, CommandError> {
        let mut body = json!({"facts": self.facts});
        if let Some(rule) = &self.rule {
            body["rule"] = rule.as_str().into();
        }
        let response = api.send_request(Method::POST, path, body.to_string(), None).await?;
        let field = api_errors::ProblemResponse::from_response(&response).field;
        match (&self.rule, response.status, field.as_deref()) {
            (Some(rule), StatusCode::NOT_FOUND, Some("rule")) => {
                Err(api_errors::rule_not_found(api, rule).await)
            }
            (Some(rule), StatusCode::UNPROCESSABLE_ENTITY, Some("facts")) => {
                let why = api_errors::ProblemResponse::from_response(&response).detail;
                Err(CommandError::Usage(format!("{why}\n  write: {rule} FACT=VALUE …")))
            }
            _ => api.check_response(response).await,
        }
    }
}
