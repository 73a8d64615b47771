//! Decodes `cost`: a number, or the source of the number.

use crate::cost::CostSource;
use crate::decode::{Field, FieldMap};
use crate::diagnostic::FieldError;
use crate::value_syntax::size;
use crate::yaml::YamlValue;

/// Maximum cost of one request.
const MAX_COST: u64 = u32::MAX as u64;

const SOURCES: &str = "one of `header: x-cost`, `body: 1KiB`, `response_header: x-tokens-used` and \
                       `response: 64KiB`, or a number alone";

/// Decodes `cost`.
pub(super) fn read(field: &Field<'_>) -> Option<CostSource> {
    if matches!(field.node().value, YamlValue::Map(_)) {
        return field.fields().and_then(read_source);
    }
    field.integer(1, MAX_COST).map(CostSource::Fixed)
}

/// Takes all fields before checking any, so that every error is reported.
fn read_source(mut fields: FieldMap<'_>) -> Option<CostSource> {
    let (header, body) = (fields.take("header"), fields.take("body"));
    let (response_header, response) = (fields.take("response_header"), fields.take("response"));
    let (max, estimate) = (fields.take("max"), fields.take("estimate"));
    check_sources(&fields, [&header, &body, &response_header, &response]);
    if header.is_some() || response_header.is_some() {
        if max.is_none() {
            fields.report_missing("max", "`max: 1000`, the largest value accepted from the header");
        }
    } else if let Some(max) = &max {
        let error =
            FieldError::new("`max` limits the value of a header, but the cost has no header");
        max.report(error.with_hint("a `header`, or leave it out"));
    }
    if let Some(field) = estimate.as_ref().filter(|_| header.is_some() || body.is_some()) {
        let error = FieldError::new("`estimate` is only for costs that the response determines");
        field.report(error.with_hint("`response_header` or `response`, or leave it out"));
    }
    fields.finish();
    let number = |field: &Field<'_>| field.integer(1, MAX_COST);
    let name = |field: &Field<'_>| field.header_name().map(Into::into);
    let part = |field: &Field<'_>| field.ok_or_report(size::parse(field.text()?));
    let (header, response_header) =
        (header.map(|it| name(&it)), response_header.map(|it| name(&it)));
    let (body, response) = (body.map(|it| part(&it)), response.map(|it| part(&it)));
    let max = max.as_ref().map(number);
    let estimated = estimate.as_ref().map_or(Some(1), number);
    if let (Some(field), Some(Some(max)), Some(estimated)) = (&estimate, max, estimated)
        && estimated > max
    {
        let error = FieldError::new("the estimate is more than `max`");
        field.report(error.with_hint(format!("at most {max}")));
    }
    match (header, body, response_header, response) {
        (Some(name), None, None, None) => Some(CostSource::Header { name: name?, max: max?? }),
        (None, Some(part), None, None) => Some(CostSource::Body { part: part? }),
        (None, None, Some(name), None) => {
            Some(CostSource::ResponseHeader { name: name?, max: max??, estimate: estimated? })
        }
        (None, None, None, Some(part)) => {
            Some(CostSource::Response { part: part?, estimate: estimated? })
        }
        _ => None,
    }
}

/// Reports a cost without a source, or with more than one.
fn check_sources(fields: &FieldMap<'_>, sources: [&Option<Field<'_>>; 4]) {
    let mut given = sources.into_iter().flatten();
    match (given.next(), given.next()) {
        (None, _) => {
            fields.report(FieldError::new("the source of the cost is missing").with_hint(SOURCES));
        }
        (Some(_), Some(twice)) => {
            twice.report(FieldError::new("the cost has more than one source").with_hint(SOURCES));
        }
        (Some(_), None) => {}
    }
}
