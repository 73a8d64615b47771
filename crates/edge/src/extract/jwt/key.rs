//! The keys that signatures are checked with: a public key (PEM), a key set (JWKS), or a shared
//! secret if the document says so. A key that could never check anything is refused here, not
//! found out request by request.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    VerificationAlgorithm,
};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use tidegate_rules::identity::JwtAlgorithm;

/// A key, its id in a set, and what may be signed with it.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) id: Option<String>,
    pub(super) secret: DecodingKey,
    pub(super) algorithms: Vec<Algorithm>,
}

/// Why the text of a key file is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// It is no kind of key that is known.
    Unknown,
    /// It looks like a key but cannot be read as one.
    Malformed,
    /// It is a private key.
    Private,
    /// It is a certificate.
    Certificate,
    /// It is on a curve, or of a length, that is not supported.
    Unsupported,
    /// It is not a key for the algorithm that the document names.
    Misfit,
    /// It is a public key where a shared secret should be.
    NoSecret,
    /// The shared secret is shorter than this many bytes.
    Short(usize),
    /// No key of the set can check signatures.
    EmptySet,
}

/// Reads the keys of a file.
pub(super) fn read(text: &str, algorithm: Option<JwtAlgorithm>) -> Result<Vec<Key>, BadKey> {
    let text = text.trim();
    let named = algorithm.map(native);
    let is_set = text.starts_with('{') && serde_json::from_str::<serde_json::Value>(text).is_ok();
    let is_pem = text.contains("-----BEGIN ");
    match named.filter(|named| named.family() == AlgorithmFamily::Hmac) {
        Some(_) if is_set || is_pem => Err(BadKey::NoSecret),
        Some(named) => secret(text, named).map(|key| vec![key]),
        None if is_set => set(text, named),
        None if is_pem => pem(text, named).map(|key| vec![key]),
        None if text.starts_with('{') => Err(BadKey::Malformed),
        None => Err(BadKey::Unknown),
    }
}

/// RFC 7518 section 3.2: a key as long as the hash, or it can be guessed from one token.
fn secret(text: &str, named: Algorithm) -> Result<Key, BadKey> {
    let least = match named {
        Algorithm::HS512 => 64,
        Algorithm::HS384 => 48,
        _ => 32,
    };
    if text.len() < least {
        return Err(BadKey::Short(least));
    }
    let secret = DecodingKey::from_secret(text.as_bytes());
    Ok(Key { id: None, secret, algorithms: vec![named] })
}

fn pem(text: &str, named: Option<Algorithm>) -> Result<Key, BadKey> {
    let label = text.split("-----BEGIN ").nth(1).and_then(|rest| rest.split("-----").next());
    match label {
        Some("PUBLIC KEY" | "RSA PUBLIC KEY") => {}
        Some("CERTIFICATE") => return Err(BadKey::Certificate),
        Some(label) if label.ends_with("PRIVATE KEY") => return Err(BadKey::Private),
        _ => return Err(BadKey::Unknown),
    }
    let bytes = text.as_bytes();
    let secret = DecodingKey::from_rsa_pem(bytes)
        .or_else(|_| DecodingKey::from_ec_pem(bytes))
        .or_else(|_| DecodingKey::from_ed_pem(bytes))
        .map_err(|_| BadKey::Malformed)?;
    checked(None, secret, named)
}

/// A set may hold keys for other purposes; those that are for us are kept.
fn set(text: &str, named: Option<Algorithm>) -> Result<Vec<Key>, BadKey> {
    let parsed: Result<JwkSet, _> = serde_json::from_str(text);
    let set = parsed
        .or_else(|_| serde_json::from_str(text).map(|key: Jwk| JwkSet { keys: vec![key] }))
        .map_err(|_| BadKey::Malformed)?;
    let usable: Vec<Key> = set.keys.iter().filter_map(|jwk| from_set(jwk, named)).collect();
    if usable.is_empty() { Err(BadKey::EmptySet) } else { Ok(usable) }
}

fn from_set(jwk: &Jwk, named: Option<Algorithm>) -> Option<Key> {
    let is_public = !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
    let is_for_us = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let own = match jwk.common.key_algorithm {
        Some(algorithm) => Some(Algorithm::try_from(algorithm).ok()?),
        None => None,
    };
    if !is_public || !is_for_us || own.is_some_and(|own| named.is_some_and(|named| named != own)) {
        return None;
    }
    let secret = DecodingKey::from_jwk(jwk).ok()?;
    checked(jwk.common.key_id.clone(), secret, own.or(named)).ok()
}

/// A public key with the algorithms that fit it, all of which are good: those of its kind and
/// length, or the one that is named.
fn checked(
    id: Option<String>,
    secret: DecodingKey,
    named: Option<Algorithm>,
) -> Result<Key, BadKey> {
    let fitting: &[Algorithm] = match secret.family() {
        AlgorithmFamily::Rsa => rsa(&secret)?,
        AlgorithmFamily::Ec => match point(&secret)?.len() {
            65 => parsed(&ECDSA_P256_SHA256_FIXED, &secret).map(|()| &[Algorithm::ES256][..])?,
            97 => parsed(&ECDSA_P384_SHA384_FIXED, &secret).map(|()| &[Algorithm::ES384][..])?,
            _ => return Err(BadKey::Unsupported),
        },
        AlgorithmFamily::Ed => parsed(&ED25519, &secret).map(|()| &[Algorithm::EdDSA][..])?,
        AlgorithmFamily::Hmac => return Err(BadKey::Misfit),
    };
    let algorithms = match named {
        Some(named) if fitting.contains(&named) => vec![named],
        Some(_) => return Err(BadKey::Misfit),
        None => fitting.to_vec(),
    };
    Ok(Key { id, secret, algorithms })
}

/// Signatures are checked with keys of 2048 to 8192 bits only, here in characters of base64.
fn rsa(secret: &DecodingKey) -> Result<&'static [Algorithm], BadKey> {
    let jwk = Jwk::from_decoding_key(secret, None).map_err(|_| BadKey::Malformed)?;
    match jwk.algorithm {
        AlgorithmParameters::RSA(key) if (342..=1366).contains(&key.n.len()) => Ok(&[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ]),
        _ => Err(BadKey::Unsupported),
    }
}

fn point(secret: &DecodingKey) -> Result<&[u8], BadKey> {
    secret.try_get_as_bytes().map_err(|_| BadKey::Malformed)
}

fn parsed(
    algorithm: &'static dyn VerificationAlgorithm,
    secret: &DecodingKey,
) -> Result<(), BadKey> {
    let parsed = ParsedPublicKey::new(algorithm, point(secret)?);
    parsed.map(drop).map_err(|_| BadKey::Malformed)
}

const fn native(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Hs384 => Algorithm::HS384,
        JwtAlgorithm::Hs512 => Algorithm::HS512,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "this file holds neither a public key (PEM) nor a key set (JWKS)",
            Self::Malformed => "the key in this file is damaged",
            Self::Private => "this file holds a private key; only its public half belongs here",
            Self::Certificate => "this file holds a certificate, not the public key in it",
            Self::Unsupported => {
                "only RSA of 2048 to 8192 bits, P-256, P-384 and Ed25519 can be checked"
            }
            Self::Misfit => "the key in this file is not one for the `algorithm`",
            Self::NoSecret => "a key that others may know is no shared secret",
            Self::Short(least) => {
                return write!(
                    f,
                    "a shared secret for this `algorithm` has at least {least} bytes"
                );
            }
            Self::EmptySet => "no key in this set can check the signatures of tokens",
        })
    }
}
