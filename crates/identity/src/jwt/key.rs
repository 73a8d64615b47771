//! Parses the keys that verify signatures: a public key (PEM), a key set (JWKS), or a shared secret
//! if the rules configure one. An unusable key is refused here, at load, not at each request.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    VerificationAlgorithm,
};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use tidegate_rules::identity::JwtAlgorithm;

/// A key, its id in the key set, and the algorithms it may verify.
#[derive(Debug)]
pub(super) struct VerificationKey {
    pub(super) id: Option<String>,
    pub(super) secret: DecodingKey,
    pub(super) algorithms: Vec<Algorithm>,
}

/// Why a key file is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtKeyError {
    /// The format is not recognized.
    Unknown,
    /// It looks like a key but cannot be parsed.
    Malformed,
    /// It is a private key.
    PrivateKey,
    /// It is a certificate.
    Certificate,
    /// The curve or the key length is not supported.
    Unsupported,
    /// The key does not fit the configured algorithm.
    AlgorithmMismatch,
    /// It is a public key, but the configured algorithm needs a shared secret.
    PublicKeyAsSecret,
    /// The shared secret is shorter than this many bytes.
    SecretTooShort(usize),
    /// No key of the set can verify signatures.
    NoUsableKey,
}

/// Parses the keys of a file.
pub(super) fn parse_keys(
    text: &str,
    algorithm: Option<JwtAlgorithm>,
) -> Result<Vec<VerificationKey>, JwtKeyError> {
    let text = text.trim();
    let named = algorithm.map(to_jsonwebtoken);
    let is_set = text.starts_with('{') && serde_json::from_str::<serde_json::Value>(text).is_ok();
    let is_pem = text.contains("-----BEGIN ");
    match named.filter(|named| named.family() == AlgorithmFamily::Hmac) {
        Some(_) if is_set || is_pem => Err(JwtKeyError::PublicKeyAsSecret),
        Some(named) => parse_secret(text, named).map(|key| vec![key]),
        None if is_set => parse_key_set(text, named),
        None if is_pem => parse_pem(text, named).map(|key| vec![key]),
        None if text.starts_with('{') => Err(JwtKeyError::Malformed),
        None => Err(JwtKeyError::Unknown),
    }
}

/// RFC 7518 section 3.2: the key must be as long as the hash, or it can be guessed from one token.
fn parse_secret(text: &str, named: Algorithm) -> Result<VerificationKey, JwtKeyError> {
    let least = match named {
        Algorithm::HS512 => 64,
        Algorithm::HS384 => 48,
        _ => 32,
    };
    if text.len() < least {
        return Err(JwtKeyError::SecretTooShort(least));
    }
    let secret = DecodingKey::from_secret(text.as_bytes());
    Ok(VerificationKey { id: None, secret, algorithms: vec![named] })
}

fn parse_pem(text: &str, named: Option<Algorithm>) -> Result<VerificationKey, JwtKeyError> {
    let label = text.split("-----BEGIN ").nth(1).and_then(|rest| rest.split("-----").next());
    match label {
        Some("PUBLIC KEY" | "RSA PUBLIC KEY") => {}
        Some("CERTIFICATE") => return Err(JwtKeyError::Certificate),
        Some(label) if label.ends_with("PRIVATE KEY") => return Err(JwtKeyError::PrivateKey),
        _ => return Err(JwtKeyError::Unknown),
    }
    let bytes = text.as_bytes();
    let secret = DecodingKey::from_rsa_pem(bytes)
        .or_else(|_| DecodingKey::from_ec_pem(bytes))
        .or_else(|_| DecodingKey::from_ed_pem(bytes))
        .map_err(|_| JwtKeyError::Malformed)?;
    validate_public_key(None, secret, named)
}

/// Keeps the keys that can verify signatures; a set may contain keys for other purposes.
fn parse_key_set(
    text: &str,
    named: Option<Algorithm>,
) -> Result<Vec<VerificationKey>, JwtKeyError> {
    let parsed: Result<JwkSet, _> = serde_json::from_str(text);
    let set = parsed
        .or_else(|_| serde_json::from_str(text).map(|key: Jwk| JwkSet { keys: vec![key] }))
        .map_err(|_| JwtKeyError::Malformed)?;
    let usable: Vec<VerificationKey> =
        set.keys.iter().filter_map(|jwk| parse_jwk(jwk, named)).collect();
    if usable.is_empty() { Err(JwtKeyError::NoUsableKey) } else { Ok(usable) }
}

fn parse_jwk(jwk: &Jwk, named: Option<Algorithm>) -> Option<VerificationKey> {
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
    validate_public_key(jwk.common.key_id.clone(), secret, own.or(named)).ok()
}

/// Validates a public key and determines its algorithms: the named one, or all that fit its type
/// and length.
fn validate_public_key(
    id: Option<String>,
    secret: DecodingKey,
    named: Option<Algorithm>,
) -> Result<VerificationKey, JwtKeyError> {
    let fitting: &[Algorithm] = match secret.family() {
        AlgorithmFamily::Rsa => rsa_algorithms(&secret)?,
        AlgorithmFamily::Ec => match key_bytes(&secret)?.len() {
            65 => check_public_key(&ECDSA_P256_SHA256_FIXED, &secret)
                .map(|()| &[Algorithm::ES256][..])?,
            97 => check_public_key(&ECDSA_P384_SHA384_FIXED, &secret)
                .map(|()| &[Algorithm::ES384][..])?,
            _ => return Err(JwtKeyError::Unsupported),
        },
        AlgorithmFamily::Ed => {
            check_public_key(&ED25519, &secret).map(|()| &[Algorithm::EdDSA][..])?
        }
        AlgorithmFamily::Hmac => return Err(JwtKeyError::AlgorithmMismatch),
    };
    let algorithms = match named {
        Some(named) if fitting.contains(&named) => vec![named],
        Some(_) => return Err(JwtKeyError::AlgorithmMismatch),
        None => fitting.to_vec(),
    };
    Ok(VerificationKey { id, secret, algorithms })
}

/// aws-lc supports RSA signatures of 2048 to 8192 bits; the bounds are in base64 characters.
fn rsa_algorithms(secret: &DecodingKey) -> Result<&'static [Algorithm], JwtKeyError> {
    let jwk = Jwk::from_decoding_key(secret, None).map_err(|_| JwtKeyError::Malformed)?;
    match jwk.algorithm {
        AlgorithmParameters::RSA(key) if (342..=1366).contains(&key.n.len()) => Ok(&[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ]),
        _ => Err(JwtKeyError::Unsupported),
    }
}

fn key_bytes(secret: &DecodingKey) -> Result<&[u8], JwtKeyError> {
    secret.try_get_as_bytes().map_err(|_| JwtKeyError::Malformed)
}

fn check_public_key(
    algorithm: &'static dyn VerificationAlgorithm,
    secret: &DecodingKey,
) -> Result<(), JwtKeyError> {
    let parsed = ParsedPublicKey::new(algorithm, key_bytes(secret)?);
    parsed.map(drop).map_err(|_| JwtKeyError::Malformed)
}

const fn to_jsonwebtoken(algorithm: JwtAlgorithm) -> Algorithm {
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

impl fmt::Display for JwtKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "this file contains neither a public key (PEM) nor a key set (JWKS)",
            Self::Malformed => "the key in this file is malformed",
            Self::PrivateKey => "this file contains a private key; use its public key instead",
            Self::Certificate => "this file contains a certificate; extract its public key",
            Self::Unsupported => {
                "unsupported key: use RSA (2048 to 8192 bits), P-256, P-384 or Ed25519"
            }
            Self::AlgorithmMismatch => {
                "the key in this file does not fit the configured `algorithm`"
            }
            Self::PublicKeyAsSecret => "a public key cannot be used as a shared secret",
            Self::SecretTooShort(least) => {
                return write!(
                    f,
                    "a shared secret for this `algorithm` needs at least {least} bytes"
                );
            }
            Self::NoUsableKey => "no key in this set can verify token signatures",
        })
    }
}
