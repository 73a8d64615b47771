//! The query of a request.

use std::collections::BTreeMap;

use http::{StatusCode, Uri};
use tidegate_edge::path::percent_decoded;
use tidegate_edge::problem::Problem;

/// How many there are on a page, when nobody says.
const USUAL: u32 = 100;

/// The most on a page.
const MOST: u32 = 1_000;

/// Names and values, each name once.
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a query that may have these names, and `limit`.
    pub(super) fn of(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let mut values = BTreeMap::new();
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| percent_decoded(&text.replace('+', " "));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(wrong("the query is not percent-encoded UTF-8", "query"));
            };
            if !known.contains(&name.as_str()) && name != "limit" {
                let detail = format!("this takes {} and limit", known.join(", "));
                return Err(wrong(&detail, "query"));
            }
            if values.insert(name, value).is_some() {
                return Err(wrong("a name is there twice", "query"));
            }
        }
        Ok(Self(values))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let number =
            |text: &str| text.parse().map_err(|_| wrong("this is not a whole number", name));
        self.text(name).map(number).transpose()
    }

    /// How many are wanted.
    pub(super) fn limit(&self) -> Result<u32, Problem> {
        match self.text("limit").map(str::parse) {
            None => Ok(USUAL),
            Some(Ok(limit @ 1..=MOST)) => Ok(limit),
            Some(_) => Err(wrong(&format!("this is a number from 1 to {MOST}"), "limit")),
        }
    }
}

pub(super) fn wrong(detail: &str, field: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail).with_field(field)
}
