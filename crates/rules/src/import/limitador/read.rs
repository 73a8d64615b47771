//! Decodes a limits file.

use crate::decode::{Diagnostics, Field};
use crate::diagnostic::FieldError;
use crate::import::unsupported::{UnsupportedCollector, quote_text};
use crate::yaml::{self, SourceSpan, YamlValue};

/// One limit.
#[derive(Debug)]
pub(super) struct LimitadorLimit {
    pub(super) span: SourceSpan,
    pub(super) path: String,
    /// The `id` and the `name`, if given.
    pub(super) names: Vec<String>,
    pub(super) namespace: String,
    pub(super) max_value: u64,
    pub(super) seconds: u64,
    pub(super) conditions: Vec<CelExpression>,
    pub(super) variables: Vec<CelExpression>,
}

/// A CEL expression and its location.
#[derive(Debug)]
pub(super) struct CelExpression {
    pub(super) text: String,
    pub(super) span: SourceSpan,
    pub(super) path: String,
}

const FIELDS: [&str; 7] =
    ["id", "name", "namespace", "max_value", "seconds", "conditions", "variables"];

/// Decodes the list of limits and reports its errors to `diagnostics`.
pub(super) fn read_limits(
    text: &str,
    diagnostics: &Diagnostics<'_>,
    gaps: &mut UnsupportedCollector<'_>,
) -> Vec<LimitadorLimit> {
    let Some(root) = yaml::parse(text, diagnostics).filter(|root| !root.is_null()) else {
        return Vec::new();
    };
    let field = Field::new(&root, "", diagnostics);
    if !matches!(root.value, YamlValue::List(_)) {
        let error = FieldError::new("a limits file is a list");
        field.report(error.with_hint("`- namespace: …` for each limit"));
        return Vec::new();
    }
    let items = field.list().unwrap_or_default();
    items.iter().filter_map(|item| read_limit(item, gaps)).collect()
}

fn read_limit(field: &Field<'_>, gaps: &mut UnsupportedCollector<'_>) -> Option<LimitadorLimit> {
    let mut fields = field.fields()?;
    let names = [fields.take("id"), fields.take("name")];
    let namespace = fields.require("namespace", "`namespace:` and the domain of Envoy's filter");
    let max_value = fields.require("max_value", "`max_value: 100`");
    let seconds = fields.require("seconds", "`seconds: 60`");
    let [conditions, variables] = ["conditions", "variables"].map(|name| fields.take(name));
    for (name, _, other) in fields.all_fields().filter(|(name, _, _)| !FIELDS.contains(name)) {
        let why = format!("{} is not a known field of a limit", quote_text(name));
        gaps.note_field(&other, &why, "leave it out if the limit is correct without it");
    }
    let names = names.into_iter().flatten().filter_map(|name| Some(name.text()?.to_owned()));
    let names = names.collect();
    let namespace = namespace.and_then(|field| field.non_empty_text());
    let max_value = max_value.and_then(|field| field.integer(0, u64::MAX));
    let seconds = seconds.and_then(|field| field.integer(1, u64::MAX));
    let (conditions, variables) = (read_expressions(conditions), read_expressions(variables));
    Some(LimitadorLimit {
        span: field.span(),
        path: field.path().to_owned(),
        names,
        namespace: namespace?.to_owned(),
        max_value: max_value?,
        seconds: seconds?,
        conditions: conditions?,
        variables: variables?,
    })
}

fn read_expressions(field: Option<Field<'_>>) -> Option<Vec<CelExpression>> {
    let Some(field) = field else {
        return Some(Vec::new());
    };
    let items: Vec<_> = field.list()?.iter().map(read_expression).collect();
    items.into_iter().collect()
}

fn read_expression(field: &Field<'_>) -> Option<CelExpression> {
    let text = field.non_empty_text()?.to_owned();
    Some(CelExpression { text, span: field.span(), path: field.path().to_owned() })
}
