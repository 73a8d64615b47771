//! The `identity` section: how facts are extracted from a request. Nothing is trusted unless the
//! section says so.
//!
//! The APIs read the headers and tokens; this module only describes which ones.

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
    /// How the client's address is determined.
    pub ip: IpIdentity,
    /// Where the API key comes from.
    pub api_key: Option<ApiKeyIdentity>,
    /// Where the user id comes from.
    pub user_id: Option<UserIdentity>,
    /// Where the tier comes from.
    pub tier: Option<TierIdentity>,
    /// Where other facts come from.
    pub facts: Vec<FactIdentity>,
}

/// How the client's address is determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpIdentity {
    /// Networks of the proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether Unix-socket peers are trusted proxies. They have no address to check.
    pub trusts_unix: bool,
    /// Prefix length in bits that identifies an IPv6 client.
    pub ipv6_prefix: u8,
    /// The header in which trusted proxies pass the client's address.
    pub forwarding_header: ForwardingHeader,
}

impl IpIdentity {
    /// Whether the forwarding headers of this peer are trusted.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        // A dual-stack listener reports IPv4 peers as IPv4-mapped IPv6 addresses.
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

/// The header in which a trusted proxy passes the client's address. Other headers are ignored,
/// because a client can send headers that its proxy does not overwrite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ForwardingHeader {
    /// `X-Forwarded-For`, a list to which each proxy appends.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239), likewise.
    Forwarded,
    /// A header with one address, its name in lower case.
    Header(String),
}

/// Where the API key comes from, and how unknown keys are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyIdentity {
    /// Where the key is in the request.
    pub source: ApiKeySource,
    /// How to count a key that is not in `subjects`.
    pub unknown: UnknownKeyPolicy,
}

/// The part of a request that contains the API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKeySource {
    /// A header, its name in lower case.
    Header(String),
    /// A query parameter.
    Query(String),
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// A cookie.
    Cookie(String),
}

/// How to count an API key that is not in `subjects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKeyPolicy {
    /// By the key itself.
    Itself,
    /// By the client's address.
    Ip,
}

/// Where the user id comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserIdentity {
    /// A signed token.
    Jwt(JwtIdentity),
    /// A header that a trusted proxy sets, its name in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
}

/// A token, the claim with the user id, and how to verify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtIdentity {
    /// The header, its name in lower case.
    pub header: String,
    /// The claim that contains the user id.
    pub claim: String,
    /// Path of the file with the verification key, as written.
    pub key_file: String,
    /// Content of the key file, once the caller has read it.
    pub key: Option<KeyText>,
    /// The only accepted algorithm; if `None`, all algorithms that fit the key.
    pub algorithm: Option<JwtAlgorithm>,
    /// Accepted issuers; empty accepts any.
    pub issuer: Vec<String>,
    /// Accepted audiences; empty accepts any.
    pub audience: Vec<String>,
    /// Tolerated clock difference.
    pub leeway: Micros,
}

/// Content of a key file. It may be a secret, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(Arc<str>);

impl KeyText {
    /// Wraps the content of a key file.
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

/// Signature algorithm of a token (RFC 7518 section 3.1, RFC 8037).
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
    /// The header in which a trusted proxy passes the tier, its name in lower case.
    pub header: Option<String>,
    /// The tier of all other clients.
    pub default: Option<String>,
}

/// Where a custom fact comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactIdentity {
    /// The name of the fact.
    pub name: String,
    /// Where the value is in the request.
    pub source: CustomFactSource,
}

/// The part of a request that contains a custom fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomFactSource {
    /// A header, its name in lower case, and who may set it.
    Header(String, FactTrust),
    /// A cookie, which clients can always set.
    Cookie(String),
}

/// Whose value of a header is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactTrust {
    /// Only trusted proxies.
    Proxy,
    /// Any peer: clients can set any value.
    Anyone,
}
