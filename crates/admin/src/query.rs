//! Parses query strings.

use std::collections::BTreeMap;

use http::{StatusCode, Uri};
use tidegate_web::percent::percent_decode;
use tidegate_web::problem::HttpError;

/// The page size if the query has no `limit`.
const DEFAULT_LIMIT: u32 = 100;

/// The maximum page size.
const MAX_LIMIT: u32 = 1_000;

/// Query parameters; each name occurs at most once.
pub(super) struct AdminQuery(BTreeMap<String, String>);

impl AdminQuery {
    /// Parses a query that may have the `known` parameters and `limit`.
    pub(super) fn parse(uri: &Uri, known: &[&str]) -> Result<Self, HttpError> {
        let mut values = BTreeMap::new();
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| percent_decode(&text.replace('+', " "));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(invalid_param("the query is not percent-encoded UTF-8", "query"));
            };
            if !known.contains(&name.as_str()) && name != "limit" {
                let detail = format!("unknown parameter; allowed: {} and limit", known.join(", "));
                return Err(invalid_param(&detail, "query"));
            }
            if values.insert(name, value).is_some() {
                return Err(invalid_param("a parameter occurs twice", "query"));
            }
        }
        Ok(Self(values))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, HttpError> {
        let number =
            |text: &str| text.parse().map_err(|_| invalid_param("must be a whole number", name));
        self.text(name).map(number).transpose()
    }

    /// The page size.
    pub(super) fn limit(&self) -> Result<u32, HttpError> {
        match self.text("limit").map(str::parse) {
            None => Ok(DEFAULT_LIMIT),
            Some(Ok(limit @ 1..=MAX_LIMIT)) => Ok(limit),
            Some(_) => {
                Err(invalid_param(&format!("must be a number from 1 to {MAX_LIMIT}"), "limit"))
            }
        }
    }
}

pub(super) fn invalid_param(detail: &str, field: &str) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, detail).with_field(field)
}
