//! How a request becomes facts, as the document says it. Nothing is trusted unless it says so.
//!
//! Reading headers and tokens is the business of the doors; this only says which.

mod read;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use tidegate_core::time::Micros;

pub(super) use read::{IdentitySpans, read};

/// The `identity` section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityConfig {
    /// Whose address counts.
    pub ip: IpIdentity,
    /// Where the API key is.
    pub api_key: Option<ApiKeyIdentity>,
    /// Where the user is.
    pub user_id: Option<UserIdentity>,
    /// Where the tier comes from.
    pub tier: Option<TierIdentity>,
    /// Where further facts come from.
    pub facts: Vec<FactIdentity>,
}

/// Whose address counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpIdentity {
    /// Those whose forwarding headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether whoever comes over a unix socket is one of them: there is no address to go by.
    pub trusts_unix: bool,
    /// How much of an IPv6 address is one client.
    pub ipv6_prefix: u8,
    /// What those who are believed say it with.
    pub forwarding_header: ForwardingHeader,
}

impl IpIdentity {
    /// Whether someone's forwarding headers are believed.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        // A listener for both families shows IPv4 peers inside IPv6 addresses.
        let peer = peer.to_canonical();
        self.trusted_proxies.iter().any(|net| net.contains(&peer))
    }
}

impl Default for IpIdentity {
    fn default() -> Self {
        let from = ForwardingHeader::default();
        Self {
            trusted_proxies: Vec::new(),
            trusts_unix: false,
            ipv6_prefix: 64,
            forwarding_header: from,
        }
    }
}

/// What a trusted proxy tells the client's address with. Only this is read: a client can send
/// the headers that its proxy does not overwrite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ForwardingHeader {
    /// `X-Forwarded-For`, a list to which each proxy adds.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239), likewise.
    Forwarded,
    /// A header with one address, its name in lower case.
    Header(String),
}

/// Where the API key is, and what becomes of one that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyIdentity {
    /// Where it is.
    pub source: ApiKeySource,
    /// What a key counts as that is in no `subjects` list.
    pub unknown: UnknownKeyPolicy,
}

/// What carries an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKeySource {
    /// A header, its name in lower case.
    Header(String),
    /// A parameter of the query.
    Query(String),
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// A cookie.
    Cookie(String),
}

/// What an API key counts as that is in no `subjects` list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKeyPolicy {
    /// Itself.
    Itself,
    /// The client's address.
    Ip,
}

/// Where the user is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserIdentity {
    /// In a signed token.
    Jwt(JwtIdentity),
    /// In a header that a trusted proxy sets, its name in lower case.
    Header(String),
    /// In a cookie.
    Cookie(String),
}

/// Which token, which claim of it, and whose signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtIdentity {
    /// The header, its name in lower case.
    pub header: String,
    /// The claim that names the user.
    pub claim: String,
    /// The file with the key that the signature is checked with, as typed.
    pub key_file: String,
    /// What is in that file, once somebody has read it.
    pub key: Option<KeyText>,
    /// The only algorithm that is accepted; without one, those that fit the key.
    pub algorithm: Option<JwtAlgorithm>,
    /// Those who may have issued the token; anyone if there are none.
    pub issuer: Vec<String>,
    /// Those whom the token may be meant for; anyone if there are none.
    pub audience: Vec<String>,
    /// By how much clocks may differ.
    pub leeway: Micros,
}

/// The text of a key file. It may be a secret, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(Arc<str>);

impl KeyText {
    /// The text as it is in the file.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(…)")
    }
}

/// How a token is signed (RFC 7518 section 3.1, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA, PKCS #1, with SHA-256.
    Rs256,
    /// RSA, PKCS #1, with SHA-384.
    Rs384,
    /// RSA, PKCS #1, with SHA-512.
    Rs512,
    /// RSA, PSS, with SHA-256.
    Ps256,
    /// RSA, PSS, with SHA-384.
    Ps384,
    /// RSA, PSS, with SHA-512.
    Ps512,
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

/// Where the tier comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierIdentity {
    /// The fact by which it is looked up in `subjects`.
    pub subject: Option<String>,
    /// The header that a trusted proxy says it in, its name in lower case.
    pub header: Option<String>,
    /// The tier of everyone else.
    pub default: Option<String>,
}

/// Where a fact of any other name comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactIdentity {
    /// The name of the fact.
    pub name: String,
    /// Where it is.
    pub source: CustomFactSource,
}

/// What carries a further fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomFactSource {
    /// A header, its name in lower case, and whose word it is.
    Header(String, FactTrust),
    /// A cookie, which is always the client's word.
    Cookie(String),
}

/// Whose word is taken for a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactTrust {
    /// That of trusted proxies.
    Proxy,
    /// Anyone's: a client can write what it likes.
    Anyone,
}
