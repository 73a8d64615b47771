//! The document's `gateway:` field: a listen address, or a mapping with `listen` and other
//! settings.

use tidegate_gateway::{PassthroughHeader, PassthroughHeaderError};
use tidegate_rules::decode::{Field, FieldMap};
use tidegate_rules::diagnostic::FieldError;
use tidegate_rules::yaml::YamlValue;

use super::super::listen::ListenSpec;
use super::super::section::read_parsed;

/// Settings read from the `gateway:` field.
#[derive(Debug, Default)]
pub(super) struct GatewaySection {
    pub(super) listen: Option<ListenSpec>,
    pub(super) refund_unreachable: Option<bool>,
    pub(super) pass_headers: Option<Vec<PassthroughHeader>>,
}

impl GatewaySection {
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let Some(field) = fields.take("gateway") else { return Self::default() };
        if matches!(field.node().value, YamlValue::Scalar { .. }) {
            return Self { listen: read_parsed(&field), ..Self::default() };
        }
        let Some(mut fields) = field.fields() else { return Self::default() };
        let read = Self {
            listen: fields.take("listen").and_then(|field| read_parsed(&field)),
            refund_unreachable: fields.take("refund_unreachable").and_then(|field| field.boolean()),
            pass_headers: fields.take("pass_headers").map(|field| read_headers(&field)),
        };
        fields.finish();
        read
    }
}

fn read_headers(field: &Field<'_>) -> Vec<PassthroughHeader> {
    let read = |item: &Field<'_>| {
        let text = item.non_empty_text()?;
        item.ok_or_report(text.parse().map_err(|why: PassthroughHeaderError| {
            FieldError::new(why.to_string()).with_found(text).with_hint(match why {
                PassthroughHeaderError::InvalidName => "for instance `[x-http-method-override]`",
                PassthroughHeaderError::Reserved => {
                    "the proxy that sets it: `identity: { ip: { trusted_proxies: [10.0.0.1] } }`"
                }
            })
        }))
    };
    field.non_empty_items().iter().filter_map(read).collect()
}
