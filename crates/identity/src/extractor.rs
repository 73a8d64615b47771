//! From a request as it arrived to Facts, as the document's `identity` says it.
//!
//! Looks at nothing that the document does not name: neither at headers that claim another method
//! or path (`X-HTTP-Method-Override`, `X-Original-URL`) nor at forwarding headers of strangers.
//! What follows from facts (the tier of a subject, the endpoint's pattern) the rules add.

use std::borrow::Cow;
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
use super::{FactError, InvalidFactError, RuleInputHeaders};
use crate::method;
use tidegate_web::Peer;

/// Takes facts from requests. Made once for a rule set.
#[derive(Debug)]
pub struct Extractor {
    ip: IpIdentity,
    configured_facts: Vec<ConfiguredFact>,
    input_headers: Arc<RuleInputHeaders>,
}

/// A fact that is looked for.
#[derive(Debug)]
struct ConfiguredFact {
    name: String,
    source: FactSource,
    trust: FactTrust,
}

/// Why the document's `identity` cannot be put to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityConfigError {
    /// This is not the name of a header.
    InvalidHeader(String),
    /// Nobody read this key file.
    KeyFileNotRead(String),
    /// The key file holds no key that can be used.
    Key(JwtKeyError),
}

impl Extractor {
    /// An extractor for a document.
    ///
    /// # Errors
    /// When the key for tokens is missing or of no use.
    pub fn new(identity: &IdentityConfig) -> Result<Self, IdentityConfigError> {
        let mut wanted = Vec::new();
        let mut want = |name: &str, carrier: FactSource, trust: FactTrust| {
            wanted.push(ConfiguredFact { name: name.to_owned(), source: carrier, trust });
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
        for FactIdentity { name, source: carrier } in &identity.facts {
            match carrier {
                CustomFactSource::Header(from, trust) => want(name, header_source(from)?, *trust),
                CustomFactSource::Cookie(from) => {
                    want(name, FactSource::Cookie(from.clone()), FactTrust::Anyone);
                }
            }
        }
        let mut read_headers: RuleInputHeaders =
            wanted.iter().filter_map(|wanted| wanted.source.header_name()).collect();
        if let ForwardingHeader::Header(name) = &identity.ip.forwarding_header {
            read_headers.extend([header_name(name)?]);
        }
        Ok(Self {
            ip: identity.ip.clone(),
            configured_facts: wanted,
            input_headers: Arc::new(read_headers),
        })
    }

    /// The same, which knows also the headers that say what a request costs to these rules.
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

    /// The headers that the rules read.
    pub const fn input_headers(&self) -> &Arc<RuleInputHeaders> {
        &self.input_headers
    }

    /// Whose request it is. The peer is the other end of the connection, or whom the PROXY
    /// protocol named in its place.
    #[must_use]
    pub fn resolve_client(&self, head: &Parts, peer: impl Into<Peer>) -> ResolvedClient {
        client_address::resolve_client(peer.into(), &head.headers, &self.ip)
    }

    /// Whether someone's forwarding headers, or its word in the PROXY protocol, are believed.
    #[must_use]
    pub fn trusts(&self, peer: impl Into<Peer>) -> bool {
        client_address::trusts_peer(&self.ip, peer.into())
    }

    /// What is known of a request. The path is the canonical one, which is also forwarded.
    ///
    /// # Errors
    /// When a fact that is looked for is told twice, is too long or is not text: a bad request.
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

    /// The same, added to facts where they stand, for a client that is known already.
    ///
    /// # Errors
    /// The same.
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
            facts.push("host", host_name(host));
        }
        for ConfiguredFact { name, source: carrier, trust } in &self.configured_facts {
            if *trust == FactTrust::Proxy && !client.peer_is_trusted {
                continue;
            }
            let bad = |why: FactError| InvalidFactError { name: name.clone(), why };
            if let Some(value) = carrier.read_fact(head).map_err(bad)? {
                facts.push(name.as_str(), value);
            }
        }
        Ok(())
    }
}

/// The host that a request is for: in lower case, without a port and the dot that ends a full name.
fn host_name(host: &str) -> Cow<'_, str> {
    // The colons of an IPv6 address are inside its brackets.
    let end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    let name = host[end..].find(':').map_or(host, |colon| &host[..end + colon]);
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

fn header_source(name: &str) -> Result<FactSource, IdentityConfigError> {
    header_name(name).map(FactSource::Header)
}

fn header_name(name: &str) -> Result<HeaderName, IdentityConfigError> {
    let bad = |_: InvalidHeaderName| IdentityConfigError::InvalidHeader(name.to_owned());
    HeaderName::from_bytes(name.as_bytes()).map_err(bad)
}

fn api_key_source(carrier: &identity::ApiKeySource) -> Result<FactSource, IdentityConfigError> {
    Ok(match carrier {
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
            Self::InvalidHeader(name) => write!(f, "{name:?} is not the name of a header"),
            Self::KeyFileNotRead(file) => write!(f, "the key file {file:?} was not read"),
            Self::Key(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for IdentityConfigError {}

#[cfg(test)]
mod tests;
