//! Decodes the `match` of a rule: facts and the values that they must have.

use super::facts::FactReference;
use super::{Spanned, descriptor};
use crate::condition::{
    Condition, EndpointPattern, FactMatcher, IpNetworks, MatchPolarity, PathMatcher, TextMatcher,
    parse_network, require_canonical_host, require_canonical_path, to_brace_placeholders,
};
use crate::decode::Field;
use crate::diagnostic::FieldError;
use crate::yaml::YamlValue;

/// The canonical name of a fact. Rule tables (`--rules-table`) call the tier `plan`.
pub(crate) fn canonical_fact_name(typed: &str) -> &str {
    match typed {
        "plan" => "tier",
        name => name,
    }
}

/// Maximum number of conditions. No request has more facts, and conditions are compared pairwise.
const MAX_CONDITIONS: usize = 64;

/// Facts whose values errors may quote.
const PUBLIC_FACTS: [&str; 9] =
    ["ip", "method", "path", "endpoint", "host", "tier", "plan", "domain", "descriptor"];

/// Decodes all conditions of a `match`, and the facts that they name.
pub(super) fn read(field: &Field<'_>) -> (Vec<Spanned<Condition>>, Vec<FactReference>) {
    let Some(fields) = field.fields() else {
        return Default::default();
    };
    if fields.all_fields().count() > MAX_CONDITIONS {
        let message = format!("a rule can match at most {MAX_CONDITIONS} facts");
        field.report(FieldError::new(message).with_hint("fewer"));
        return Default::default();
    }
    // Another name may be a misspelled `api_key`.
    let others = fields.all_fields().filter(|(name, _, _)| !PUBLIC_FACTS.contains(name));
    others.for_each(|(_, _, field)| field.hide_value());
    let is_for_envoy = |(name, _, _): (&str, _, _)| matches!(name, "domain" | "descriptor");
    let spelling = match fields.all_fields().any(is_for_envoy) {
        true => ValueSpelling::Any,
        false => ValueSpelling::Canonical,
    };
    let named = |(name, span, field): (&str, _, Field<'_>)| {
        FactReference::new(canonical_fact_name(name), span, field.path())
    };
    let read = |(name, _, field): (&str, _, Field<'_>)| match name {
        "descriptor" => descriptor::read(&field).into_iter().collect(),
        name => read_conditions(canonical_fact_name(name), spelling, &field),
    };
    (fields.all_fields().flat_map(read).collect(), fields.all_fields().map(named).collect())
}

/// How paths and hosts in a `match` must be spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueSpelling {
    /// As in requests; otherwise the rule would limit none.
    Canonical,
    /// Envoy's configuration defines the values.
    Any,
}

/// Decodes the conditions on one fact: accepted values, excluded values, or both.
pub(super) fn read_conditions(
    fact: &str,
    spelling: ValueSpelling,
    field: &Field<'_>,
) -> Vec<Spanned<Condition>> {
    let read = |sense, values: &Field<'_>| read_condition(fact, sense, spelling, values);
    if !matches!(field.node().value, YamlValue::Map(_)) {
        return read(MatchPolarity::Is, field).into_iter().collect();
    }
    let Some(mut fields) = field.fields() else {
        return Vec::new();
    };
    let (is, not) = (fields.take("is"), fields.take("not"));
    if is.is_none() && not.is_none() {
        fields.report_missing("not", "`not:` and the values that are excluded");
    }
    fields.finish();
    let both = [(MatchPolarity::Is, is), (MatchPolarity::IsNot, not)];
    both.into_iter().filter_map(|(sense, values)| read(sense, &values?)).collect()
}

/// Decodes one condition; returns `None` also if every request satisfies it.
fn read_condition(
    fact: &str,
    sense: MatchPolarity,
    spelling: ValueSpelling,
    field: &Field<'_>,
) -> Option<Spanned<Condition>> {
    let condition = Condition { polarity: sense, matcher: read_matcher(fact, spelling, field)? };
    if condition.constant_result() == Some(false) {
        let error = FieldError::new("this excludes every request");
        field.report(error.with_hint("the endpoints that are meant, or leave it out"));
    }
    condition
        .constant_result()
        .is_none()
        .then_some(Spanned { value: condition, span: field.span() })
}

fn read_matcher(fact: &str, spelling: ValueSpelling, field: &Field<'_>) -> Option<FactMatcher> {
    let items = field.non_empty_items();
    let checked = |text: &str, check: fn(&str) -> Result<(), FieldError>| match spelling {
        ValueSpelling::Canonical => check(text).map(|()| text.to_owned()),
        ValueSpelling::Any => Ok(text.to_owned()),
    };
    let test = match fact {
        "ip" => FactMatcher::Ip(IpNetworks::new(&read_all(&items, parse_network)?)),
        "endpoint" => FactMatcher::Endpoint(read_all(&items, EndpointPattern::parse)?.into()),
        "method" => FactMatcher::Text(TextMatcher::new(fact, read_all(&items, parse_method)?)),
        "path" => FactMatcher::Path(PathMatcher::new(read_all(&items, |text| {
            checked(parse_path(text)?, require_canonical_path)
        })?)),
        "host" => FactMatcher::Text(TextMatcher::new(
            fact,
            read_all(&items, |text| checked(text, require_canonical_host))?,
        )),
        _ => {
            FactMatcher::Text(TextMatcher::new(fact, read_all(&items, |text| Ok(text.to_owned()))?))
        }
    };
    (!items.is_empty()).then_some(test)
}

/// All items, or `None` after reporting the errors of all invalid ones.
fn read_all<T>(
    items: &[Field<'_>],
    read: impl Fn(&str) -> Result<T, FieldError>,
) -> Option<Vec<T>> {
    let values: Vec<_> = items.iter().map(|item| item.ok_or_report(read(item.text()?))).collect();
    values.into_iter().collect()
}

/// Checks a path or a glob of paths. Rejects text that no path matches, because the rule would have
/// no effect.
fn parse_path(text: &str) -> Result<&str, FieldError> {
    let wrong = |message: &str| FieldError::new(message).with_found(text);
    if let Some(pattern) = to_brace_placeholders(text) {
        let message = "placeholders are for `endpoint`";
        return Err(wrong(message).with_hint(format!("`endpoint: {pattern}`")));
    }
    if text.contains(['{', '}']) {
        let message = "placeholders are for `endpoint`";
        return Err(wrong(message).with_hint(format!("`endpoint: {text}`")));
    }
    if !text.starts_with(['/', '*']) {
        let message = "a path begins with `/`";
        return Err(wrong(message).with_hint(format!("`/{text}`")));
    }
    Ok(text)
}

fn parse_method(text: &str) -> Result<String, FieldError> {
    let upper = text.to_ascii_uppercase();
    let error = if !upper.bytes().all(|byte| byte.is_ascii_uppercase() || b"-*".contains(&byte)) {
        FieldError::new("this is not an HTTP method")
            .with_hint("`POST`, or `[GET, HEAD]` for several")
    } else if text != upper {
        FieldError::new("methods are written in upper case").with_hint(format!("`{upper}`"))
    } else {
        return Ok(upper);
    };
    Err(error.with_found(text))
}
