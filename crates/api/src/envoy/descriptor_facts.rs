//! Converts a descriptor to facts: the request's `domain`, then the entries in order, including
//! repeated keys. The client's address is added as `ip` too. Rules that match on the descriptor
//! itself see its entries unchanged.

use std::borrow::Cow;
use std::net::IpAddr;

use tidegate_rules::{ApiKind, DescriptorPair, Facts};

use super::request::EnvoyDescriptor;
use tidegate_identity::{method, path};

pub(super) fn facts_from_descriptor<'a>(
    domain: &'a str,
    descriptor: &'a EnvoyDescriptor<'_>,
    api: ApiKind,
) -> Facts<'a> {
    let mut facts = Facts::new();
    facts.set_api(api);
    // `domain` comes first because rules read the first fact of a name: an entry called `domain`
    // cannot impersonate another domain.
    facts.push("domain", domain);
    facts.set_descriptor(&descriptor.entries);
    for DescriptorPair { key, value } in &descriptor.entries {
        facts.push(&**key, canonical_value(key, value));
    }
    let address = facts.get("remote_address").and_then(|text| text.parse::<IpAddr>().ok());
    if let (None, Some(ip)) = (facts.get("ip"), address) {
        facts.push_ip(ip);
    }
    facts
}

/// Returns an entry's value in canonical form: methods in upper case, paths without the query that
/// Envoy's `:path` includes. A path without a canonical form is kept unchanged, because rejecting
/// the request here would make a fail-open Envoy let it pass.
fn canonical_value<'a>(key: &str, value: &'a str) -> Cow<'a, str> {
    match key {
        "path" => {
            let path = value.split('?').next().unwrap_or(value);
            path::canonical(path).unwrap_or(Cow::Borrowed(path))
        }
        "method" => method::canonical(value),
        "endpoint" => method::canonical_endpoint(value.into()),
        _ => Cow::Borrowed(value),
    }
}
