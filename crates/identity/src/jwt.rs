//! A claim of a signed token (RFC 7519), believed only if the signature is good.
//!
//! The key decides which algorithms may be used, never the token: `none`, and a public key taken
//! for a shared secret, are the classic forgeries. A token that proves nothing is as good as none:
//! whether it may pass is for the upstream to say. Keys that a token brings along or points to
//! (`jwk`, `jku`, `x5u`) are not looked at.
//!
//! `exp` and `nbf` are wall time, and `jsonwebtoken` reads the wall clock itself: the clock that
//! counts requests does not follow it, after a suspended machine wakes for instance.

mod key;

use jsonwebtoken::{Algorithm, Header};
use serde_json::{Map, Value};
use tidegate_rules::identity::JwtIdentity;

pub use key::JwtKeyError;
use key::VerificationKey;

/// Checks tokens and tells the claim that is asked for.
#[derive(Debug)]
pub(super) struct JwtVerifier {
    keys: Vec<KeyValidation>,
    claim: String,
}

/// A key and what a token that is signed with it must say besides.
#[derive(Debug)]
struct KeyValidation {
    key: VerificationKey,
    validation: jsonwebtoken::Validation,
}

impl JwtVerifier {
    /// Reads the keys.
    pub(super) fn new(jwt: &JwtIdentity, text: &str) -> Result<Self, JwtKeyError> {
        let keys = key::parse_keys(text, jwt.algorithm)?;
        let checked = |key: VerificationKey| KeyValidation {
            validation: build_validation(jwt, &key.algorithms),
            key,
        };
        Ok(Self { keys: keys.into_iter().map(checked).collect(), claim: jwt.claim.clone() })
    }

    /// The claim of a token that is signed, in force, and meant for us.
    pub(super) fn verify_claim(&self, token: &[u8]) -> Option<String> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        // RFC 7515 section 4.1.11: what is critical and not understood makes a token invalid.
        if header.crit.is_some() {
            return None;
        }
        let KeyValidation { key, validation } = self.select_key(&header)?;
        let decoded = jsonwebtoken::decode::<Map<String, Value>>(token, &key.secret, validation);
        claim_text(decoded.ok()?.claims.get(&self.claim)?)
    }

    /// The key of that id and kind; without an id, the only one of that kind.
    fn select_key(&self, header: &Header) -> Option<&KeyValidation> {
        let kid = header.kid.as_deref();
        let mut fitting = self.keys.iter().filter(|KeyValidation { key, .. }| {
            let is_it = kid.zip(key.id.as_deref()).is_none_or(|(asked, id)| asked == id);
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
        // The token is the upstream's to accept; it names a user whomever it is meant for.
        validate_aud: !jwt.audience.is_empty(),
        ..jsonwebtoken::Validation::default()
    };
    // What is not required is checked only if it is there.
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

/// Text or a whole number, as some issue for their users.
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
