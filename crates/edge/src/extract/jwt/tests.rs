//! Tokens that prove something, and all the ways in which others pretend to.

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

/// Beyond the end of any test, and long before it.
const LATER: u64 = 4_000_000_000;
const BEFORE: u64 = 1_000_000_000;

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

fn verifier(text: &str) -> Verifier {
    Verifier::new(&identity(), text).unwrap()
}

fn shared(algorithm: JwtAlgorithm) -> Verifier {
    Verifier::new(&JwtIdentity { algorithm: Some(algorithm), ..identity() }, SECRET).unwrap()
}

fn signing(algorithm: Algorithm) -> EncodingKey {
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

fn signed(header: &Header, claims: &Value) -> String {
    jsonwebtoken::encode(header, claims, &signing(header.alg)).unwrap()
}

fn token(algorithm: Algorithm) -> String {
    signed(&Header::new(algorithm), &json!({ "sub": "ann", "exp": LATER }))
}

fn claim(verifier: &Verifier, token: &str) -> Option<String> {
    verifier.claim(token.as_bytes())
}

/// The key set of the public halves, each under its own id.
fn key_set() -> Value {
    let keys = [("r", Algorithm::RS256), ("e", Algorithm::ES256), ("d", Algorithm::EdDSA)];
    let keys = keys.map(|(id, algorithm)| {
        let jwk = Jwk::from_encoding_key(&signing(algorithm), algorithm).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = id.into();
        jwk["use"] = "sig".into();
        jwk
    });
    json!({ "keys": keys })
}

#[test]
fn every_kind_of_key_checks_its_own_tokens_and_no_others() {
    let verifiers = [
        (verifier(RSA_PUB), "RS256 RS384 RS512 PS256 PS384 PS512"),
        (verifier(include_str!("testdata/rsa-pkcs1.pub")), "RS256 RS384 RS512 PS256 PS384 PS512"),
        (verifier(P256_PUB), "ES256"),
        (verifier(P384_PUB), "ES384"),
        (verifier(ED_PUB), "EdDSA"),
        (verifier(&key_set().to_string()), "RS256 ES256 EdDSA"),
        (shared(JwtAlgorithm::Hs256), "HS256"),
        (shared(JwtAlgorithm::Hs384), "HS384"),
        (shared(JwtAlgorithm::Hs512), "HS512"),
    ];
    let all = "HS256 HS384 HS512 RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA";
    for (verifier, accepted) in verifiers {
        for name in all.split(' ') {
            let expected = accepted.split(' ').any(|one| one == name).then_some("ann");
            let token = token(name.parse().unwrap());
            assert_eq!(claim(&verifier, &token).as_deref(), expected, "{accepted}: {name}");
        }
    }
}

#[test]
fn an_algorithm_that_is_named_is_the_only_one() {
    let jwt = JwtIdentity { algorithm: Some(JwtAlgorithm::Ps256), ..identity() };
    let verifier = Verifier::new(&jwt, RSA_PUB).unwrap();
    assert!(claim(&verifier, &token(Algorithm::PS256)).is_some());
    assert_eq!(claim(&verifier, &token(Algorithm::RS256)), None);
}

#[test]
fn a_token_without_a_signature_is_no_token() {
    let good = token(Algorithm::ES256);
    let mut parts = good.split('.');
    let (_, claims) = (parts.next().unwrap(), parts.next().unwrap());
    // {"alg":"none"}, {"alg":"None","typ":"JWT"}
    for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb25lIiwidHlwIjoiSldUIn0"] {
        for forged in [format!("{header}.{claims}."), format!("{header}.{claims}")] {
            assert_eq!(claim(&verifier(P256_PUB), &forged), None, "{forged}");
        }
    }
    let unsigned = good.rsplit_once('.').unwrap().0;
    for forged in [unsigned.to_owned(), format!("{unsigned}."), format!("{unsigned}.AAAA")] {
        assert_eq!(claim(&verifier(P256_PUB), &forged), None, "{forged}");
    }
}

/// The classic: the public key, which everyone has, used as the secret of an HMAC.
#[test]
fn a_public_key_is_no_shared_secret() {
    for (public, name) in [(RSA_PUB, "RS256"), (P256_PUB, "ES256"), (ED_PUB, "EdDSA")] {
        let secret = EncodingKey::from_secret(public.as_bytes());
        let claims = json!({ "sub": "ann", "exp": LATER });
        let forged =
            jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &secret).unwrap();
        assert_eq!(claim(&verifier(public), &forged), None, "{name}");
        let jwt = JwtIdentity { algorithm: Some(JwtAlgorithm::Hs256), ..identity() };
        assert_eq!(Verifier::new(&jwt, public).unwrap_err(), BadKey::NoSecret, "{name}");
    }
}

#[test]
fn a_token_that_was_tampered_with_proves_nothing() {
    let good = token(Algorithm::EdDSA);
    let verifier = verifier(ED_PUB);
    assert_eq!(claim(&verifier, &good).as_deref(), Some("ann"));
    let other = signed(&Header::new(Algorithm::EdDSA), &json!({ "sub": "bob", "exp": LATER }));
    let (bobs, _) = other.rsplit_once('.').unwrap();
    let (_, signature) = good.rsplit_once('.').unwrap();
    assert_eq!(claim(&verifier, &format!("{bobs}.{signature}")), None);
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        // The last character of base64 has bits that mean nothing.
        if at + 1 < good.len() {
            assert_eq!(verifier.claim(&bytes), None, "byte {at}");
        }
    }
    for nonsense in ["", ".", "..", "...", "a.b.c", "\u{e9}.\u{e9}.\u{e9}"] {
        assert_eq!(claim(&verifier, nonsense), None, "{nonsense}");
    }
    assert_eq!(verifier.claim(&[0xff; 100]), None);
}

#[test]
fn a_token_that_is_out_of_date_proves_nothing() {
    let header = Header::new(Algorithm::ES256);
    let verifier = verifier(P256_PUB);
    for (claims, good) in [
        (json!({ "sub": "ann", "exp": LATER }), true),
        (json!({ "sub": "ann", "exp": LATER, "nbf": BEFORE }), true),
        (json!({ "sub": "ann", "exp": BEFORE }), false),
        (json!({ "sub": "ann" }), false),
        (json!({ "sub": "ann", "exp": null }), false),
        (json!({ "sub": "ann", "exp": "4000000000" }), false),
        (json!({ "sub": "ann", "exp": -1 }), false),
        (json!({ "sub": "ann", "exp": LATER, "nbf": LATER }), false),
        (json!({ "sub": "ann", "exp": LATER, "nbf": "soon" }), false),
    ] {
        assert_eq!(claim(&verifier, &signed(&header, &claims)).is_some(), good, "{claims}");
    }
}

#[test]
fn issuer_and_audience_must_be_there_and_fit_if_the_document_names_them() {
    let jwt = JwtIdentity {
        issuer: vec!["us".to_owned(), "them".to_owned()],
        audience: vec!["api".to_owned()],
        ..identity()
    };
    let strict = Verifier::new(&jwt, P256_PUB).unwrap();
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
        let claims = json!({ "sub": "ann", "exp": LATER, "iss": iss, "aud": aud });
        let token = signed(&header, &claims);
        assert_eq!(claim(&strict, &token).is_some(), good, "{claims}");
        assert!(claim(&verifier(P256_PUB), &token).is_some(), "not asked for: {claims}");
    }
}

#[test]
fn a_claim_is_text_or_a_whole_number() {
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
        let token = signed(&header, &json!({ "sub": sub, "exp": LATER }));
        assert_eq!(claim(&verifier(P256_PUB), &token).as_deref(), expected, "{sub}");
    }
    let other = JwtIdentity { claim: "uid".to_owned(), ..identity() };
    let other = Verifier::new(&other, P256_PUB).unwrap();
    let token = signed(&header, &json!({ "sub": "ann", "uid": "7", "exp": LATER }));
    assert_eq!(claim(&other, &token).as_deref(), Some("7"));
}

#[test]
fn the_key_of_a_set_is_found_by_its_id() {
    let verifier = verifier(&key_set().to_string());
    let with = |algorithm, kid: Option<&str>| {
        let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
        claim(&verifier, &signed(&header, &json!({ "sub": "ann", "exp": LATER }))).is_some()
    };
    assert!(with(Algorithm::RS256, Some("r")) && with(Algorithm::ES256, Some("e")));
    assert!(!with(Algorithm::ES256, Some("r")), "the id of another key");
    assert!(!with(Algorithm::ES256, Some("x")), "an id that is not known");
    assert!(with(Algorithm::ES256, None), "the only one of its kind");
}

#[test]
fn two_keys_of_a_kind_are_not_told_apart_without_an_id() {
    let mut set = key_set();
    let mut twin = set["keys"][1].clone();
    twin["kid"] = "twin".into();
    set["keys"].as_array_mut().unwrap().push(twin);
    let verifier = verifier(&set.to_string());
    assert_eq!(claim(&verifier, &token(Algorithm::ES256)), None);
    assert!(claim(&verifier, &token(Algorithm::RS256)).is_some());
}

#[test]
fn what_a_token_brings_along_is_not_believed() {
    let jwk = Jwk::from_encoding_key(&signing(Algorithm::ES256), Algorithm::ES256).unwrap();
    let claims = json!({ "sub": "ann", "exp": LATER });
    let own = Header { jwk: Some(jwk), ..Header::new(Algorithm::ES256) };
    assert_eq!(claim(&verifier(ED_PUB), &signed(&own, &claims)), None, "its own key");
    let critical = Header { crit: Some(vec!["b64".to_owned()]), ..Header::new(Algorithm::ES256) };
    assert_eq!(claim(&verifier(P256_PUB), &signed(&critical, &claims)), None, "RFC 7515 4.1.11");
}

#[test]
fn keys_of_other_kinds_in_a_set_are_left_aside() {
    let mut set = key_set();
    let keys = set["keys"].as_array_mut().unwrap();
    keys.push(json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "o" }));
    keys.push(json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "k" }));
    keys.push(json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "short" }));
    keys.push(json!({ "kty": "quantum", "kid": "q" }));
    keys[0]["use"] = "enc".into();
    let verifier = verifier(&set.to_string());
    assert!(claim(&verifier, &token(Algorithm::ES256)).is_some());
    assert_eq!(claim(&verifier, &token(Algorithm::RS256)), None, "a key for encryption");
}

#[test]
fn a_single_key_in_json_is_a_set_of_one() {
    let single = key_set()["keys"][1].to_string();
    assert!(claim(&verifier(&single), &token(Algorithm::ES256)).is_some());
}

#[test]
fn keys_that_are_of_no_use_are_refused_when_they_are_read() {
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
        ("", BadKey::Unknown),
        (SECRET, BadKey::Unknown),
        (P256_KEY, BadKey::Private),
        (RSA_KEY, BadKey::Private),
        (include_str!("testdata/certificate.pem"), BadKey::Certificate),
        (include_str!("testdata/rsa1024.pub"), BadKey::Unsupported),
        (include_str!("testdata/P-521.pub"), BadKey::Unsupported),
        (&damaged, BadKey::Malformed),
        ("-----BEGIN PUBLIC KEY-----", BadKey::Malformed),
        ("{", BadKey::Malformed),
        ("{}", BadKey::EmptySet),
        ("{\"keys\": []}", BadKey::EmptySet),
        (&encryption, BadKey::EmptySet),
        (&off_curve, BadKey::EmptySet),
    ] {
        assert_eq!(Verifier::new(&identity(), text).unwrap_err(), why, "{text}");
    }
    for (algorithm, text, why) in [
        (JwtAlgorithm::Hs256, "short", BadKey::Short(32)),
        (JwtAlgorithm::Hs512, &SECRET[..63], BadKey::Short(64)),
        (JwtAlgorithm::Hs256, &key_set().to_string(), BadKey::NoSecret),
        (JwtAlgorithm::Es256, RSA_PUB, BadKey::Misfit),
        (JwtAlgorithm::Es256, P384_PUB, BadKey::Misfit),
    ] {
        let jwt = JwtIdentity { algorithm: Some(algorithm), ..identity() };
        assert_eq!(Verifier::new(&jwt, text).unwrap_err(), why, "{algorithm:?}");
    }
}
