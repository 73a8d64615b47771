//! `gateway:` in a document: where it listens, or a mapping of that and more.

use tidegate_edge::gateway::{BadPassedHeader, PassedHeader};
use tidegate_rules::decode::{Field, Fields};
use tidegate_rules::problem::Remark;
use tidegate_rules::yaml::Value;

use super::super::listen::Listen;
use super::super::section::parsed;

/// What the section says.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) listen: Option<Listen>,
    pub(super) refund_unreachable: Option<bool>,
    pub(super) pass_headers: Option<Vec<PassedHeader>>,
}

impl Section {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let Some(field) = fields.take("gateway") else { return Self::default() };
        if matches!(field.node().value, Value::Scalar { .. }) {
            return Self { listen: parsed(&field), ..Self::default() };
        }
        let Some(mut fields) = field.fields() else { return Self::default() };
        let read = Self {
            listen: fields.take("listen").and_then(|field| parsed(&field)),
            refund_unreachable: fields.take("refund_unreachable").and_then(|field| field.boolean()),
            pass_headers: fields.take("pass_headers").map(|field| read_headers(&field)),
        };
        fields.finish();
        read
    }
}

fn read_headers(field: &Field<'_>) -> Vec<PassedHeader> {
    let read = |item: &Field<'_>| {
        let text = item.word()?;
        item.accept(text.parse().map_err(|why: BadPassedHeader| {
            Remark::new(why.to_string()).found(text).write(match why {
                BadPassedHeader::NotAName => "for instance `[x-http-method-override]`",
                BadPassedHeader::Set => {
                    "the proxy that sets it: `identity: { ip: { trusted_proxies: [10.0.0.1] } }`"
                }
            })
        }))
    };
    field.one_or_more().iter().filter_map(read).collect()
}
