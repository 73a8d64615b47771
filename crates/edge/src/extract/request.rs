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
    self, FactCarrier, FactIdentity, ForwardedBy, Identity, IpIdentity, JwtIdentity, Trust,
    UserIdentity,
};
use tidegate_rules::{Cost, Facts, Rule};

use super::carrier::Carrier;
use super::client::{self, Client};
use super::jwt::{BadKey, Verifier};
use super::{BadFact, FactError, ReadHeaders};
use crate::{Peer, method};

/// Takes facts from requests. Made once for a rule set.
#[derive(Debug)]
pub struct Extractor {
    ip: IpIdentity,
    wanted: Vec<Wanted>,
    read_headers: Arc<ReadHeaders>,
}

/// A fact that is looked for.
#[derive(Debug)]
struct Wanted {
    name: String,
    carrier: Carrier,
    trust: Trust,
}

/// Why the document's `identity` cannot be put to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadIdentity {
    /// This is not the name of a header.
    Header(String),
    /// Nobody read this key file.
    KeyNotRead(String),
    /// The key file holds no key that can be used.
    Key(BadKey),
}

impl Extractor {
    /// An extractor for a document.
    ///
    /// # Errors
    /// When the key for tokens is missing or of no use.
    pub fn new(identity: &Identity) -> Result<Self, BadIdentity> {
        let mut wanted = Vec::new();
        let mut want = |name: &str, carrier: Carrier, trust: Trust| {
            wanted.push(Wanted { name: name.to_owned(), carrier, trust });
        };
        if let Some(key) = &identity.api_key {
            want("api_key", key_carrier(&key.carrier)?, Trust::Anyone);
        }
        match &identity.user_id {
            Some(UserIdentity::Jwt(jwt)) => want("user_id", token(jwt)?, Trust::Anyone),
            Some(UserIdentity::Header(name)) => want("user_id", header(name)?, Trust::Proxy),
            Some(UserIdentity::Cookie(name)) => {
                want("user_id", Carrier::Cookie(name.clone()), Trust::Anyone);
            }
            None => {}
        }
        if let Some(name) = identity.tier.as_ref().and_then(|tier| tier.header.as_ref()) {
            want("tier", header(name)?, Trust::Proxy);
        }
        for FactIdentity { name, carrier } in &identity.facts {
            match carrier {
                FactCarrier::Header(from, trust) => want(name, header(from)?, *trust),
                FactCarrier::Cookie(from) => {
                    want(name, Carrier::Cookie(from.clone()), Trust::Anyone);
                }
            }
        }
        let mut read_headers: ReadHeaders =
            wanted.iter().filter_map(|wanted| wanted.carrier.header()).collect();
        if let ForwardedBy::Header(name) = &identity.ip.from {
            read_headers.extend([header_name(name)?]);
        }
        Ok(Self { ip: identity.ip.clone(), wanted, read_headers: Arc::new(read_headers) })
    }

    /// The same, which knows also the headers that say what a request costs to these rules.
    pub(crate) fn with_costs<'r>(mut self, rules: impl IntoIterator<Item = &'r Rule>) -> Self {
        let header = |rule: &Rule| match rule.cost() {
            Cost::Header { name, .. } => header_name(name).ok(),
            _ => None,
        };
        Arc::make_mut(&mut self.read_headers).extend(rules.into_iter().filter_map(header));
        self
    }

    /// The headers that the rules read.
    pub(crate) const fn read_headers(&self) -> &Arc<ReadHeaders> {
        &self.read_headers
    }

    /// Whose request it is. The peer is the other end of the connection, or whom the PROXY
    /// protocol named in its place.
    #[must_use]
    pub fn client(&self, head: &Parts, peer: impl Into<Peer>) -> Client {
        client::client(peer.into(), &head.headers, &self.ip)
    }

    /// Whether someone's forwarding headers, or its word in the PROXY protocol, are believed.
    #[must_use]
    pub fn trusts(&self, peer: impl Into<Peer>) -> bool {
        client::trusts(&self.ip, peer.into())
    }

    /// What is known of a request. The path is the canonical one, which is also forwarded.
    ///
    /// # Errors
    /// When a fact that is looked for is told twice, is too long or is not text: a bad request.
    pub fn facts<'a>(
        &'a self,
        head: &'a Parts,
        path: &'a str,
        peer: impl Into<Peer>,
    ) -> Result<Facts<'a>, BadFact> {
        let mut facts = Facts::new();
        self.tell(head, path, self.client(head, peer), &mut facts)?;
        Ok(facts)
    }

    /// The same, added to facts where they stand, for a client that is known already.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn tell<'a>(
        &'a self,
        head: &'a Parts,
        path: &'a str,
        client: Client,
        facts: &mut Facts<'a>,
    ) -> Result<(), BadFact> {
        if let Some(ip) = client.ip {
            facts.push_ip(ip);
        }
        facts.push("method", method::canonical(head.method.as_str()));
        facts.push("path", path);
        if let Some(host) = head.headers.get(HOST).and_then(|host| host.to_str().ok()) {
            facts.push("host", host_name(host));
        }
        for Wanted { name, carrier, trust } in &self.wanted {
            if *trust == Trust::Proxy && !client.peer_is_trusted {
                continue;
            }
            let bad = |why: FactError| BadFact { name: name.clone(), why };
            if let Some(value) = carrier.read(head).map_err(bad)? {
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

fn header(name: &str) -> Result<Carrier, BadIdentity> {
    header_name(name).map(Carrier::Header)
}

fn header_name(name: &str) -> Result<HeaderName, BadIdentity> {
    let bad = |_: InvalidHeaderName| BadIdentity::Header(name.to_owned());
    HeaderName::from_bytes(name.as_bytes()).map_err(bad)
}

fn key_carrier(carrier: &identity::Carrier) -> Result<Carrier, BadIdentity> {
    Ok(match carrier {
        identity::Carrier::Header(name) => header(name)?,
        identity::Carrier::Query(name) => Carrier::Query(name.clone()),
        identity::Carrier::Bearer => Carrier::Bearer,
        identity::Carrier::Cookie(name) => Carrier::Cookie(name.clone()),
    })
}

fn token(jwt: &JwtIdentity) -> Result<Carrier, BadIdentity> {
    let text = jwt.key.as_ref().ok_or_else(|| BadIdentity::KeyNotRead(jwt.key_file.clone()))?;
    let verifier = Verifier::new(jwt, text.as_str()).map_err(BadIdentity::Key)?;
    Ok(Carrier::Token(header_name(&jwt.header)?, Box::new(verifier)))
}

impl fmt::Display for BadIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "{name:?} is not the name of a header"),
            Self::KeyNotRead(file) => write!(f, "the key file {file:?} was not read"),
            Self::Key(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for BadIdentity {}

#[cfg(test)]
mod tests;
