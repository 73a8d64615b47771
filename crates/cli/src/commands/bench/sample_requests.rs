//! Generates requests of many clients, so that each rule governs some of them.
//!
//! The facts that a rule requires are derived from the text of its conditions. A rule for which
//! this yields no matching request is left out; the report shows how many rules were hit.

use std::net::Ipv4Addr;

use tidegate_rules::{Facts, MatchedRules, Rule, RuleSet};

/// Maximum number of addresses to generate for one network.
const MAX_ADDRESSES: u32 = 4_096;

/// The generated requests.
#[derive(Debug)]
pub(super) struct SampleRequests {
    templates: Vec<RequestTemplate>,
    names: Vec<String>,
    addresses: Vec<String>,
}

/// A template for requests that one rule governs.
#[derive(Debug, Default)]
struct RequestTemplate {
    /// The facts that the rule requires.
    fixed: Vec<(String, String)>,
    /// The facts that differ between clients.
    varying: Vec<String>,
    /// The addresses that the rule requires; empty if any address will do.
    addresses: Vec<String>,
}

impl SampleRequests {
    /// Generates the templates, names and addresses for `clients` clients.
    pub(super) fn new(rules: &RuleSet, clients: u32) -> Self {
        let mut requests = Self {
            templates: Vec::new(),
            names: (0..clients).map(|client| format!("client-{client}")).collect(),
            addresses: (0..clients).map(|client| nth_address(10 << 24, client)).collect(),
        };
        for (at, rule) in (0_u32..).zip(rules.rules()).filter(|(_, rule)| rule.is_active()) {
            let template = RequestTemplate::for_rule(rule, clients);
            if rule_governs(rules, at, requests.fill_facts(&template, 0)) {
                requests.templates.push(template);
            }
        }
        requests
    }

    /// The number of rules that the requests hit.
    pub(super) fn rules_hit(&self) -> usize {
        self.templates.len()
    }

    /// The facts of a request, picked by a random number.
    pub(super) fn facts(&self, random: u64) -> Facts<'_> {
        let template = &self.templates[pick_index(random >> 32, self.templates.len())];
        self.fill_facts(template, random & 0xFFFF_FFFF)
    }

    fn fill_facts<'a>(&'a self, template: &'a RequestTemplate, client: u64) -> Facts<'a> {
        let mut facts = Facts::new();
        for (name, value) in &template.fixed {
            facts.push(name.as_str(), value.as_str());
        }
        let name = &self.names[pick_index(client, self.names.len())];
        for varying in &template.varying {
            facts.push(varying.as_str(), name.as_str());
        }
        let required = template.addresses.as_slice();
        let addresses = if required.is_empty() { &self.addresses } else { required };
        facts.push("ip", addresses[pick_index(client, addresses.len())].as_str());
        facts
    }
}

fn rule_governs<'a>(rules: &'a RuleSet, rule: u32, mut facts: Facts<'a>) -> bool {
    let mut found = MatchedRules::new();
    rules.enrich(&mut facts);
    rules.match_rules(&facts, &mut found);
    found.contains(&rule)
}

fn pick_index(random: u64, from: usize) -> usize {
    let from = u64::try_from(from).unwrap_or(u64::MAX).max(1);
    usize::try_from(random % from).unwrap_or(0)
}

impl RequestTemplate {
    fn for_rule(rule: &Rule, clients: u32) -> Self {
        let mut template = Self::default();
        for condition in rule.conditions() {
            template.satisfy_condition(&condition, clients);
        }
        for part in rule.key_by().filter(|part| *part != "ip") {
            if !template.has_fact(part) {
                template.varying.push(part.to_owned());
            }
        }
        template
    }

    /// Adds facts that satisfy a condition such as `tier=free,trial` or `ip!=10.0.0.0/8`.
    fn satisfy_condition(&mut self, condition: &str, clients: u32) {
        let Some((name, values)) = condition.split_once('=') else {
            return;
        };
        let first = values.split(',').next().unwrap_or_default();
        match name.strip_suffix('!') {
            Some("ip") => {
                self.addresses = network_addresses(Ipv4Addr::new(198, 18, 0, 0), 15, clients);
            }
            Some("endpoint") => self.set_fact("path", "/somewhere-else"),
            Some(name) => self.set_fact(name, "something-else"),
            None if name == "ip" => {
                let (net, bits) = first.split_once('/').unwrap_or((first, "32"));
                match (net.parse(), bits.parse()) {
                    (Ok(net), Ok(bits)) => self.addresses = network_addresses(net, bits, clients),
                    _ => self.addresses = vec![net.to_owned()],
                }
            }
            None if name == "endpoint" => self.satisfy_endpoint(first),
            None => self.set_fact(name, &fill_glob(first)),
        }
    }

    fn satisfy_endpoint(&mut self, pattern: &str) {
        let (methods, path) = pattern.split_once(' ').unwrap_or(("", pattern));
        if let Some(method) = methods.split('|').next().filter(|method| !method.is_empty()) {
            self.set_fact("method", method);
        }
        let segments = path.split('/').map(|name| if name.starts_with('{') { "1" } else { name });
        let path = fill_glob(&segments.collect::<Vec<_>>().join("/"));
        self.set_fact("path", if path.starts_with('/') { &path } else { "/somewhere" });
    }

    fn set_fact(&mut self, name: &str, value: &str) {
        if !self.has_fact(name) {
            self.fixed.push((name.to_owned(), value.to_owned()));
        }
    }

    fn has_fact(&self, name: &str) -> bool {
        let known = |known: &str| self.fixed.iter().any(|(fixed, _)| fixed == known);
        // The endpoint is derived from the path.
        known(name) || (name == "endpoint" && known("path"))
    }
}

/// Returns a text that matches a glob.
fn fill_glob(glob: &str) -> String {
    glob.replace(['*', '?'], "x")
}

fn network_addresses(net: Ipv4Addr, bits: u32, clients: u32) -> Vec<String> {
    let room = 1_u32.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(u32::MAX);
    let count = room.min(clients).clamp(1, MAX_ADDRESSES);
    (0..count).map(|client| nth_address(net.to_bits(), client)).collect()
}

fn nth_address(net: u32, client: u32) -> String {
    Ipv4Addr::from_bits(net.wrapping_add(client)).to_string()
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_rules::Document;

    use super::*;

    #[test]
    fn every_condition_kind_gets_request() {
        let source = r#"
facts: [tenant]
rules:
  - { id: all, limit: 1/s }
  - { id: tier, match: { tier: [free, trial] }, key_by: user_id, limit: 1/s }
  - { id: glob, match: { tenant: "acme-*" }, limit: 1/s }
  - { id: path, match: { endpoint: "GET|HEAD /users/{id}/*" }, key_by: endpoint, limit: 1/s }
  - { id: any, match: { endpoint: "*" }, key_by: "user_id:endpoint", limit: 1/s }
  - { id: net, match: { ip: 192.0.2.0/24 }, limit: 1/s }
  - { id: net6, match: { ip: "2001:db8::/32" }, limit: 1/s }
  - { id: inactive, is_active: false, limit: 1/s }
"#;
        let document = Document::parse("t", source).unwrap();
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let requests = SampleRequests::new(&rules, 1_000);
        assert_eq!(requests.rules_hit(), 7);
        let clients: std::collections::HashSet<_> =
            (0..1_000).map(|client| requests.facts(client).get("ip").unwrap().to_owned()).collect();
        assert_eq!(clients.len(), 1_000, "each client has a different address");
    }
}
