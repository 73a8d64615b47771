//! A descriptor as facts: the call's `domain`, then the entries in order, repetitions included, and the
//! client's address under its own name too. Rules that ask for the descriptor itself see it as it was told.

use std::borrow::Cow;
use std::net::IpAddr;

use tidegate_rules::{Door, Entry, Facts};

use super::call::Descriptor;
use crate::{method, path};

pub(super) fn facts<'a>(domain: &'a str, descriptor: &'a Descriptor<'_>, door: Door) -> Facts<'a> {
    let mut facts = Facts::new();
    facts.set_door(door);
    // First, because rules look at the first of a name: no entry can speak for another domain.
    facts.push("domain", domain);
    facts.set_descriptor(&descriptor.entries);
    for Entry { key, value } in &descriptor.entries {
        facts.push(&**key, told(key, value));
    }
    let address = facts.get("remote_address").and_then(|text| text.parse::<IpAddr>().ok());
    if let (None, Some(ip)) = (facts.get("ip"), address) {
        facts.push_ip(ip);
    }
    facts
}

/// The value of an entry, a method in upper case. Envoy's `:path` has the query with it; a path
/// without a canonical form stays as it is, because to refuse it here would let it pass there.
fn told<'a>(key: &str, value: &'a str) -> Cow<'a, str> {
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
