//! Reads a claim from a signed token (RFC 7519) after verifying its signature.
//!
//! The key determines the allowed algorithms, never the token: `none`, and a public key used as a
//! shared secret, are the classic forgeries. A token that fails verification counts as absent;
//! whether the request may pass is the upstream's decision. Keys that a token carries or points to
//! (`jwk`, `jku`, `x5u`) are ignored.
//!
//! `exp` and `nbf` are wall time, and `jsonwebtoken` reads the wall clock itself. The clock that
//! counts requests can deviate from it, for example after a suspended machine resumes.

mod key;

use jsonwebtoken::{Algorithm, Header};
use serde_json::{Map, Value};
use tidegate_rules::identity::JwtIdentity;

pub use key::JwtKeyError;
use key::VerificationKey;

/// Verifies tokens and returns the configured claim.
#[derive(Debug)]
pub(super) struct JwtVerifier {
    keys: Vec<KeyValidation>,
    claim: String,
}

/// A key, and the validation of tokens that are signed with it.
#[derive(Debug)]
struct KeyValidation {
    key: VerificationKey,
    validation: jsonwebtoken::Validation,
}

impl JwtVerifier {
    /// Parses the keys.
    pub(super) fn new(jwt: &JwtIdentity, text: &str) -> Result<Self, JwtKeyError> {
        let keys = key::parse_keys(text, jwt.algorithm)?;
        let with_validation = |key: VerificationKey| KeyValidation {
            validation: build_validation(jwt, &key.algorithms),
            key,
        };
        Ok(Self { keys: keys.into_iter().map(with_validation).collect(), claim: jwt.claim.clone() })
    }

    /// Returns the claim if the signature, the validity period, the issuer and the audience are
    /// valid.
    pub(super) fn verify_claim(&self, token: &[u8]) -> Option<String> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        // RFC 7515 section 4.1.11: an unsupported critical extension makes the token invalid.
        if header.crit.is_some() {
            return None;
        }
        let KeyValidation { key, validation } = self.select_key(&header)?;
        let decoded = jsonwebtoken::decode::<Map<String, Value>>(token, &key.secret, validation);
        claim_text(decoded.ok()?.claims.get(&self.claim)?)
    }

    /// Selects the key by id and algorithm; without an id, the only key for that algorithm.
    fn select_key(&self, header: &Header) -> Option<&KeyValidation> {
        let kid = header.kid.as_deref();
        let mut fitting = self.keys.iter().filter(|KeyValidation { key, .. }| {
            let is_it = kid.zip(key.id.as_deref()).is_none_or(|(kid, id)| kid == id);
            is_it && key.algorithms.contains(&header.alg)
        });
        let first = fitting.next()?;
        (kid.is_some() || fitting.next().is_none()).then_some(first)
    }
}

fn build_validation(jwt: &JwtIdentity, algorithms: &[Algorithm]) -> jsonwebtoken::Validation {
    let mut validation = jsonwebtoken::Validation {
        algorithms: algorithms.to_vec(),
        leeway: jwt.leeway.as_secs_ceil(),
        validate_nbf: true,
        // Without a configured audience any audience is valid: the upstream decides whether to
        // accept the token, and the user is the same.
        validate_aud: !jwt.audience.is_empty(),
        ..jsonwebtoken::Validation::default()
    };
    // Claims that are not required are validated only if present.
    let mut required = vec!["exp"];
    if !jwt.audience.is_empty() {
        validation.set_audience(&jwt.audience);
        required.push("aud");
    }
    if !jwt.issuer.is_empty() {
        validation.set_issuer(&jwt.issuer);
        required.push("iss");
    }
    validation.set_required_spec_claims(&required);
    validation
}

/// The claim as text. Some issuers use integers as user ids.
fn claim_text(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) if text.is_empty() || text.chars().any(char::is_control) => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
