//! Extracts facts from an HTTP request as configured in the `identity` section of the rules.
//!
//! Only configured sources are read. Headers that claim another method or path
//! (`X-HTTP-Method-Override`, `X-Original-URL`) and forwarding headers from untrusted peers are
//! ignored. The rules add derived facts, such as the tier of a subject and the endpoint pattern.

use std::fmt;
use std::sync::Arc;

use http::header::{HOST, HeaderName, InvalidHeaderName};
use http::request::Parts;
use tidegate_rules::identity::{
    self, CustomFactSource, FactIdentity, FactTrust, ForwardingHeader, IdentityConfig, IpIdentity,
    JwtIdentity, UserIdentity,
};
use tidegate_rules::{CostSource, Facts, Rule};

use super::client_address::{self, ResolvedClient};
use super::fact_source::FactSource;
use super::jwt::{JwtKeyError, JwtVerifier};
use super::{FactError, InvalidFactError, RuleInputHeaders, trusted_proxies};
use crate::{host, method};
use tidegate_web::Peer;

/// Extracts facts from requests. Built once per rule set.
#[derive(Debug)]
pub struct Extractor {
    ip: IpIdentity,
    configured_facts: Vec<ConfiguredFact>,
    input_headers: Arc<RuleInputHeaders>,
}

/// A fact that the rules configure, and where to read it.
#[derive(Debug)]
struct ConfiguredFact {
    name: String,
    source: FactSource,
    trust: FactTrust,
}

/// Why the `identity` section cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityConfigError {
    /// Not a valid header name.
    InvalidHeader(String),
    /// The key file was not loaded.
    KeyFileNotRead(String),
    /// The key file contains no usable key.
    Key(JwtKeyError),
}

impl Extractor {
    /// Builds an extractor from the `identity` section.
    ///
    /// # Errors
    /// If a header name is invalid, or the JWT key is missing or unusable.
    pub fn new(identity: &IdentityConfig) -> Result<Self, IdentityConfigError> {
        let mut wanted = Vec::new();
        let mut want = |name: &str, source: FactSource, trust: FactTrust| {
            wanted.push(ConfiguredFact { name: name.to_owned(), source, trust });
        };
        if let Some(key) = &identity.api_key {
            want("api_key", api_key_source(&key.source)?, FactTrust::Anyone);
        }
        match &identity.user_id {
            Some(UserIdentity::Jwt(jwt)) => want("user_id", jwt_source(jwt)?, FactTrust::Anyone),
            Some(UserIdentity::Header(name)) => {
                want("user_id", header_source(name)?, FactTrust::Proxy);
            }
            Some(UserIdentity::Cookie(name)) => {
                want("user_id", FactSource::Cookie(name.clone()), FactTrust::Anyone);
            }
            None => {}
        }
        if let Some(name) = identity.tier.as_ref().and_then(|tier| tier.header.as_ref()) {
            want("tier", header_source(name)?, FactTrust::Proxy);
        }
        for FactIdentity { name, source } in &identity.facts {
            match source {
                CustomFactSource::Header(from, trust) => want(name, header_source(from)?, *trust),
                CustomFactSource::Cookie(from) => {
                    want(name, FactSource::Cookie(from.clone()), FactTrust::Anyone);
                }
            }
        }
        let headers_from = |trusted: FactTrust| {
            let facts = wanted.iter().filter(move |fact| fact.trust == trusted);
            facts.filter_map(|fact| fact.source.header_name())
        };
        let forwarding_header = match &identity.ip.forwarding_header {
            ForwardingHeader::Header(name) => Some(header_name(name)?),
            _ => None,
        };
        let input_headers = headers_from(FactTrust::Anyone)
            .collect::<RuleInputHeaders>()
            .with_proxy_headers(headers_from(FactTrust::Proxy).chain(forwarding_header));
        Ok(Self {
            ip: identity.ip.clone(),
            configured_facts: wanted,
            input_headers: Arc::new(input_headers),
        })
    }

    /// Adds the headers from which these rules read the cost of a request.
    pub(crate) fn with_cost_headers<'r>(
        mut self,
        rules: impl IntoIterator<Item = &'r Rule>,
    ) -> Self {
        let header = |rule: &Rule| match rule.cost() {
            CostSource::Header { name, .. } => header_name(name).ok(),
            _ => None,
        };
        Arc::make_mut(&mut self.input_headers).extend(rules.into_iter().filter_map(header));
        self
    }

    /// The headers that the rules read: identity and costs.
    pub const fn input_headers(&self) -> &Arc<RuleInputHeaders> {
        &self.input_headers
    }

    /// Resolves the client. `peer` is the other end of the connection, or the address that the
    /// PROXY protocol reports.
    #[must_use]
    pub fn resolve_client(&self, head: &Parts, peer: impl Into<Peer>) -> ResolvedClient {
        client_address::resolve_client(peer.into(), &head.headers, &self.ip)
    }

    /// Whether this peer's forwarding headers and PROXY protocol header are trusted.
    #[must_use]
    pub fn trusts(&self, peer: impl Into<Peer>) -> bool {
        trusted_proxies::trusts_peer(&self.ip, peer.into())
    }

    /// Extracts the facts of a request. `path` is the canonical path, which is also forwarded.
    ///
    /// # Errors
    /// If a configured fact is given more than once, too long or not text: a bad request.
    pub fn extract_facts<'a>(
        &'a self,
        head: &'a Parts,
        path: &'a str,
        peer: impl Into<Peer>,
    ) -> Result<Facts<'a>, InvalidFactError> {
        let mut facts = Facts::new();
        self.extract_into(head, path, self.resolve_client(head, peer), &mut facts)?;
        Ok(facts)
    }

    /// Like [`extract_facts`](Self::extract_facts), for a client that is already resolved. Appends
    /// to `facts`.
    ///
    /// # Errors
    /// The same as for [`extract_facts`](Self::extract_facts).
    pub fn extract_into<'a>(
        &'a self,
        head: &'a Parts,
        path: &'a str,
        client: ResolvedClient,
        facts: &mut Facts<'a>,
    ) -> Result<(), InvalidFactError> {
        if let Some(ip) = client.ip {
            facts.push_ip(ip);
        }
        facts.push("method", method::canonical(head.method.as_str()));
        facts.push("path", path);
        if let Some(host) = head.headers.get(HOST).and_then(|host| host.to_str().ok()) {
            facts.push("host", host::canonical(host));
        }
        for ConfiguredFact { name, source, trust } in &self.configured_facts {
            if *trust == FactTrust::Proxy && !client.peer_is_trusted {
                continue;
            }
            let bad = |why: FactError| InvalidFactError { name: name.clone(), why };
            if let Some(value) = source.read_fact(head).map_err(bad)? {
                facts.push(name.as_str(), value);
            }
        }
        Ok(())
    }
}

fn header_source(name: &str) -> Result<FactSource, IdentityConfigError> {
    header_name(name).map(FactSource::Header)
}

fn header_name(name: &str) -> Result<HeaderName, IdentityConfigError> {
    let bad = |_: InvalidHeaderName| IdentityConfigError::InvalidHeader(name.to_owned());
    HeaderName::from_bytes(name.as_bytes()).map_err(bad)
}

fn api_key_source(source: &identity::ApiKeySource) -> Result<FactSource, IdentityConfigError> {
    Ok(match source {
        identity::ApiKeySource::Header(name) => header_source(name)?,
        identity::ApiKeySource::Query(name) => FactSource::Query(name.clone()),
        identity::ApiKeySource::Bearer => FactSource::Bearer,
        identity::ApiKeySource::Cookie(name) => FactSource::Cookie(name.clone()),
    })
}

fn jwt_source(jwt: &JwtIdentity) -> Result<FactSource, IdentityConfigError> {
    let text = jwt
        .key
        .as_ref()
        .ok_or_else(|| IdentityConfigError::KeyFileNotRead(jwt.key_file.clone()))?;
    let verifier = JwtVerifier::new(jwt, text.as_str()).map_err(IdentityConfigError::Key)?;
    Ok(FactSource::Jwt(header_name(&jwt.header)?, Box::new(verifier)))
}

impl fmt::Display for IdentityConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidHeader(name) => write!(f, "{name:?} is not a valid header name"),
            Self::KeyFileNotRead(file) => write!(f, "the key file {file:?} was not loaded"),
            Self::Key(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for IdentityConfigError {}

#[cfg(test)]
mod tests;
