//! Token verification, and the known ways to forge a token.

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tidegate_core::time::Micros;
use tidegate_rules::identity::{JwtAlgorithm, JwtIdentity};

use super::*;

const RSA_KEY: &str = include_str!("testdata/rsa.key");
const RSA_PUB: &str = include_str!("testdata/rsa.pub");
const P256_KEY: &str = include_str!("testdata/P-256.key");
const P256_PUB: &str = include_str!("testdata/P-256.pub");
const P384_KEY: &str = include_str!("testdata/P-384.key");
const P384_PUB: &str = include_str!("testdata/P-384.pub");
const ED_KEY: &str = include_str!("testdata/ed25519.key");
const ED_PUB: &str = include_str!("testdata/ed25519.pub");
const SECRET: &str = "a shared secret of at least 32 bytes, and of 64 bytes for HS512...";

/// After any test run, and long before it.
const FUTURE: u64 = 4_000_000_000;
const PAST: u64 = 1_000_000_000;

fn identity() -> JwtIdentity {
    JwtIdentity {
        header: "authorization".to_owned(),
        claim: "sub".to_owned(),
        key_file: "key".to_owned(),
        key: None,
        algorithm: None,
        issuer: vec![],
        audience: vec![],
        leeway: Micros::from_secs(60),
    }
}

fn verifier(text: &str) -> JwtVerifier {
    JwtVerifier::new(&identity(), text).unwrap()
}

fn shared_secret_verifier(algorithm: JwtAlgorithm) -> JwtVerifier {
    JwtVerifier::new(&JwtIdentity { algorithm: Some(algorithm), ..identity() }, SECRET).unwrap()
}

fn signing_key(algorithm: Algorithm) -> EncodingKey {
    match algorithm {
        Algorithm::ES256 => EncodingKey::from_ec_pem(P256_KEY.as_bytes()).unwrap(),
        Algorithm::ES384 => EncodingKey::from_ec_pem(P384_KEY.as_bytes()).unwrap(),
        Algorithm::EdDSA => EncodingKey::from_ed_pem(ED_KEY.as_bytes()).unwrap(),
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => {
            EncodingKey::from_secret(SECRET.as_bytes())
        }
        _ => EncodingKey::from_rsa_pem(RSA_KEY.as_bytes()).unwrap(),
    }
}

fn sign_token(header: &Header, claims: &Value) -> String {
    jsonwebtoken::encode(header, claims, &signing_key(header.alg)).unwrap()
}

fn signed_token(algorithm: Algorithm) -> String {
    sign_token(&Header::new(algorithm), &json!({ "sub": "ann", "exp": FUTURE }))
}

fn verified_claim(verifier: &JwtVerifier, token: &str) -> Option<String> {
    verifier.verify_claim(token.as_bytes())
}

/// A key set with the public keys, each with its id.
fn key_set() -> Value {
    let keys = [("r", Algorithm::RS256), ("e", Algorithm::ES256), ("d", Algorithm::EdDSA)];
    let keys = keys.map(|(id, algorithm)| {
        let jwk = Jwk::from_encoding_key(&signing_key(algorithm), algorithm).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = id.into();
        jwk["use"] = "sig".into();
        jwk
    });
    json!({ "keys": keys })
}

#[test]
fn key_accepts_only_its_own_algorithms() {
    let verifiers = [
        (verifier(RSA_PUB), "RS256 RS384 RS512 PS256 PS384 PS512"),
        (verifier(include_str!("testdata/rsa-pkcs1.pub")), "RS256 RS384 RS512 PS256 PS384 PS512"),
        (verifier(P256_PUB), "ES256"),
        (verifier(P384_PUB), "ES384"),
        (verifier(ED_PUB), "EdDSA"),
        (verifier(&key_set().to_string()), "RS256 ES256 EdDSA"),
        (shared_secret_verifier(JwtAlgorithm::Hs256), "HS256"),
        (shared_secret_verifier(JwtAlgorithm::Hs384), "HS384"),
        (shared_secret_verifier(JwtAlgorithm::Hs512), "HS512"),
    ];
    let all = "HS256 HS384 HS512 RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA";
    for (verifier, accepted) in verifiers {
        for name in all.split(' ') {
            let expected = accepted.split(' ').any(|one| one == name).then_some("ann");
            let token = signed_token(name.parse().unwrap());
            assert_eq!(
                verified_claim(&verifier, &token).as_deref(),
                expected,
                "{accepted}: {name}"
            );
        }
    }
}

#[test]
fn configured_algorithm_is_the_only_one() {
    let jwt = JwtIdentity { algorithm: Some(JwtAlgorithm::Ps256), ..identity() };
    let verifier = JwtVerifier::new(&jwt, RSA_PUB).unwrap();
    assert!(verified_claim(&verifier, &signed_token(Algorithm::PS256)).is_some());
    assert_eq!(verified_claim(&verifier, &signed_token(Algorithm::RS256)), None);
}

#[test]
fn unsigned_token_is_refused() {
    let good = signed_token(Algorithm::ES256);
    let mut parts = good.split('.');
    let (_, claims) = (parts.next().unwrap(), parts.next().unwrap());
    // {"alg":"none"}, {"alg":"None","typ":"JWT"}
    for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb25lIiwidHlwIjoiSldUIn0"] {
        for forged in [format!("{header}.{claims}."), format!("{header}.{claims}")] {
            assert_eq!(verified_claim(&verifier(P256_PUB), &forged), None, "{forged}");
        }
    }
    let unsigned = good.rsplit_once('.').unwrap().0;
    for forged in [unsigned.to_owned(), format!("{unsigned}."), format!("{unsigned}.AAAA")] {
        assert_eq!(verified_claim(&verifier(P256_PUB), &forged), None, "{forged}");
    }
}

/// A classic forgery: the public key used as an HMAC secret.
#[test]
fn public_key_as_hmac_secret_is_refused() {
    for (public, name) in [(RSA_PUB, "RS256"), (P256_PUB, "ES256"), (ED_PUB, "EdDSA")] {
        let secret = EncodingKey::from_secret(public.as_bytes());
        let claims = json!({ "sub": "ann", "exp": FUTURE });
        let forged =
            jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &secret).unwrap();
        assert_eq!(verified_claim(&verifier(public), &forged), None, "{name}");
        let jwt = JwtIdentity { algorithm: Some(JwtAlgorithm::Hs256), ..identity() };
        assert_eq!(
            JwtVerifier::new(&jwt, public).unwrap_err(),
            JwtKeyError::PublicKeyAsSecret,
            "{name}"
        );
    }
}

#[test]
fn tampered_token_is_refused() {
    let good = signed_token(Algorithm::EdDSA);
    let verifier = verifier(ED_PUB);
    assert_eq!(verified_claim(&verifier, &good).as_deref(), Some("ann"));
    let other = sign_token(&Header::new(Algorithm::EdDSA), &json!({ "sub": "bob", "exp": FUTURE }));
    let (bobs, _) = other.rsplit_once('.').unwrap();
    let (_, signature) = good.rsplit_once('.').unwrap();
    assert_eq!(verified_claim(&verifier, &format!("{bobs}.{signature}")), None);
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        // The last base64 character has unused bits.
        if at + 1 < good.len() {
            assert_eq!(verifier.verify_claim(&bytes), None, "byte {at}");
        }
    }
    for nonsense in ["", ".", "..", "...", "a.b.c", "\u{e9}.\u{e9}.\u{e9}"] {
        assert_eq!(verified_claim(&verifier, nonsense), None, "{nonsense}");
    }
    assert_eq!(verifier.verify_claim(&[0xff; 100]), None);
}

#[test]
fn expired_or_future_token_is_refused() {
    let header = Header::new(Algorithm::ES256);
    let verifier = verifier(P256_PUB);
    for (claims, good) in [
        (json!({ "sub": "ann", "exp": FUTURE }), true),
        (json!({ "sub": "ann", "exp": FUTURE, "nbf": PAST }), true),
        (json!({ "sub": "ann", "exp": PAST }), false),
        (json!({ "sub": "ann" }), false),
        (json!({ "sub": "ann", "exp": null }), false),
        (json!({ "sub": "ann", "exp": "4000000000" }), false),
        (json!({ "sub": "ann", "exp": -1 }), false),
        (json!({ "sub": "ann", "exp": FUTURE, "nbf": FUTURE }), false),
        (json!({ "sub": "ann", "exp": FUTURE, "nbf": "soon" }), false),
    ] {
        assert_eq!(
            verified_claim(&verifier, &sign_token(&header, &claims)).is_some(),
            good,
            "{claims}"
        );
    }
}

#[test]
fn configured_issuer_and_audience_are_required() {
    let jwt = JwtIdentity {
        issuer: vec!["us".to_owned(), "them".to_owned()],
        audience: vec!["api".to_owned()],
        ..identity()
    };
    let strict = JwtVerifier::new(&jwt, P256_PUB).unwrap();
    let header = Header::new(Algorithm::ES256);
    for (iss, aud, good) in [
        (json!("us"), json!("api"), true),
        (json!("them"), json!(["web", "api"]), true),
        (json!("us"), json!("web"), false),
        (json!("us"), json!([]), false),
        (json!("us"), Value::Null, false),
        (json!("us"), json!(7), false),
        (json!("evil"), json!("api"), false),
        (Value::Null, json!("api"), false),
        (json!(7), json!("api"), false),
    ] {
        let claims = json!({ "sub": "ann", "exp": FUTURE, "iss": iss, "aud": aud });
        let token = sign_token(&header, &claims);
        assert_eq!(verified_claim(&strict, &token).is_some(), good, "{claims}");
        assert!(verified_claim(&verifier(P256_PUB), &token).is_some(), "not configured: {claims}");
    }
}

#[test]
fn claim_is_text_or_integer() {
    let header = Header::new(Algorithm::ES256);
    for (sub, expected) in [
        (json!("ann"), Some("ann")),
        (json!(42), Some("42")),
        (json!(-1), Some("-1")),
        (json!(""), None),
        (json!("a\u{0}b"), None),
        (json!(1.5), None),
        (json!(true), None),
        (json!(["ann"]), None),
        (Value::Null, None),
    ] {
        let token = sign_token(&header, &json!({ "sub": sub, "exp": FUTURE }));
        assert_eq!(verified_claim(&verifier(P256_PUB), &token).as_deref(), expected, "{sub}");
    }
    let other = JwtIdentity { claim: "uid".to_owned(), ..identity() };
    let other = JwtVerifier::new(&other, P256_PUB).unwrap();
    let token = sign_token(&header, &json!({ "sub": "ann", "uid": "7", "exp": FUTURE }));
    assert_eq!(verified_claim(&other, &token).as_deref(), Some("7"));
}

#[test]
fn jwks_key_is_selected_by_kid() {
    let verifier = verifier(&key_set().to_string());
    let with = |algorithm, kid: Option<&str>| {
        let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
        verified_claim(&verifier, &sign_token(&header, &json!({ "sub": "ann", "exp": FUTURE })))
            .is_some()
    };
    assert!(with(Algorithm::RS256, Some("r")) && with(Algorithm::ES256, Some("e")));
    assert!(!with(Algorithm::ES256, Some("r")), "another key's id");
    assert!(!with(Algorithm::ES256, Some("x")), "unknown id");
    assert!(with(Algorithm::ES256, None), "the only key for ES256");
}

#[test]
fn ambiguous_jwks_key_needs_kid() {
    let mut set = key_set();
    let mut twin = set["keys"][1].clone();
    twin["kid"] = "twin".into();
    set["keys"].as_array_mut().unwrap().push(twin);
    let verifier = verifier(&set.to_string());
    assert_eq!(verified_claim(&verifier, &signed_token(Algorithm::ES256)), None);
    assert!(verified_claim(&verifier, &signed_token(Algorithm::RS256)).is_some());
}

#[test]
fn embedded_jwk_and_crit_are_refused() {
    let jwk = Jwk::from_encoding_key(&signing_key(Algorithm::ES256), Algorithm::ES256).unwrap();
    let claims = json!({ "sub": "ann", "exp": FUTURE });
    let own = Header { jwk: Some(jwk), ..Header::new(Algorithm::ES256) };
    assert_eq!(verified_claim(&verifier(ED_PUB), &sign_token(&own, &claims)), None, "embedded key");
    let critical = Header { crit: Some(vec!["b64".to_owned()]), ..Header::new(Algorithm::ES256) };
    assert_eq!(
        verified_claim(&verifier(P256_PUB), &sign_token(&critical, &claims)),
        None,
        "RFC 7515 4.1.11"
    );
}

#[test]
fn unusable_jwks_keys_are_skipped() {
    let mut set = key_set();
    let keys = set["keys"].as_array_mut().unwrap();
    keys.push(json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "o" }));
    keys.push(json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "k" }));
    keys.push(json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "short" }));
    keys.push(json!({ "kty": "quantum", "kid": "q" }));
    keys[0]["use"] = "enc".into();
    let verifier = verifier(&set.to_string());
    assert!(verified_claim(&verifier, &signed_token(Algorithm::ES256)).is_some());
    assert_eq!(
        verified_claim(&verifier, &signed_token(Algorithm::RS256)),
        None,
        "an encryption key"
    );
}

#[test]
fn single_jwk_is_a_key_set() {
    let single = key_set()["keys"][1].to_string();
    assert!(verified_claim(&verifier(&single), &signed_token(Algorithm::ES256)).is_some());
}

#[test]
fn unusable_key_is_refused_at_load() {
    let damaged = P256_PUB.replacen("MFkw", "MFkx", 1);
    let off_curve = {
        let mut set = key_set();
        set["keys"] = json!([set["keys"][1]]);
        set["keys"][0]["x"] = set["keys"][0]["y"].clone();
        set.to_string()
    };
    let encryption = {
        let mut set = key_set();
        set["keys"].as_array_mut().unwrap().iter_mut().for_each(|key| key["use"] = "enc".into());
        set.to_string()
    };
    for (text, why) in [
        ("", JwtKeyError::Unknown),
        (SECRET, JwtKeyError::Unknown),
        (P256_KEY, JwtKeyError::PrivateKey),
        (RSA_KEY, JwtKeyError::PrivateKey),
        (include_str!("testdata/certificate.pem"), JwtKeyError::Certificate),
        (include_str!("testdata/rsa1024.pub"), JwtKeyError::Unsupported),
        (include_str!("testdata/P-521.pub"), JwtKeyError::Unsupported),
        (&damaged, JwtKeyError::Malformed),
        ("-----BEGIN PUBLIC KEY-----", JwtKeyError::Malformed),
        ("{", JwtKeyError::Malformed),
        ("{}", JwtKeyError::NoUsableKey),
        ("{\"keys\": []}", JwtKeyError::NoUsableKey),
        (&encryption, JwtKeyError::NoUsableKey),
        (&off_curve, JwtKeyError::NoUsableKey),
    ] {
        assert_eq!(JwtVerifier::new(&identity(), text).unwrap_err(), why, "{text}");
    }
    for (algorithm, text, why) in [
        (JwtAlgorithm::Hs256, "short", JwtKeyError::SecretTooShort(32)),
        (JwtAlgorithm::Hs512, &SECRET[..63], JwtKeyError::SecretTooShort(64)),
        (JwtAlgorithm::Hs256, &key_set().to_string(), JwtKeyError::PublicKeyAsSecret),
        (JwtAlgorithm::Es256, RSA_PUB, JwtKeyError::AlgorithmMismatch),
        (JwtAlgorithm::Es256, P384_PUB, JwtKeyError::AlgorithmMismatch),
    ] {
        let jwt = JwtIdentity { algorithm: Some(algorithm), ..identity() };
        assert_eq!(JwtVerifier::new(&jwt, text).unwrap_err(), why, "{algorithm:?}");
    }
}
