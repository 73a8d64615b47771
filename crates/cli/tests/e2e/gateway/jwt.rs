//! Users identified by JWTs, which openssl signs: with a key file, a key set, or a shared secret.

use std::path::{Path, PathBuf};

use tidegate_testkit::nginx::NginxServer;

use super::client_identity::{count_admitted, start_gateway};
use crate::support::TestFolder;
use crate::support::certificate_authority::run_openssl;

const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// An expiry in the next century, as seconds since the epoch.
const FAR_EXPIRY: u64 = 4_000_000_000;

#[test]
fn valid_jwt_signature_identifies_the_user() {
    let nginx = NginxServer::start("return 200 ok;");
    for (kind, args) in [
        ("ES256", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"][..]),
        ("RS256", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
    ] {
        let folder = TestFolder::new();
        let [key, other, public] = ["key", "other", "jwt.pub"].map(|name| folder.path(name));
        for key in [&key, &other] {
            run_openssl(&[&["genpkey"], args, &["-out", key.to_str().unwrap()]].concat());
        }
        run_openssl(&[
            "pkey",
            "-in",
            key.to_str().unwrap(),
            "-pubout",
            "-out",
            public.to_str().unwrap(),
        ]);
        let server = start_gateway(
            &nginx,
            &folder,
            "identity: { user_id: { jwt: { key_file: jwt.pub } } }\n\
             rules: [{ id: a, key_by: user_id, limit: 2/d }]",
        );
        let mut client = server.gateway_client();
        let mut admitted = |token: &str| {
            let value = format!("Bearer {token}");
            count_admitted(&mut client, 3, "/", &[("authorization", &value)])
        };
        let token = |key, user: &str, until: u64| {
            let head = format!(r#"{{"alg":"{kind}","typ":"JWT"}}"#);
            signed_token(&folder, &head, user, until, TokenSigner::Key(key))
        };
        assert_eq!(admitted(&token(&key, "anna", FAR_EXPIRY)), 2, "{kind}");
        assert_eq!(admitted(&token(&key, "bert", FAR_EXPIRY)), 2, "{kind}");
        assert_eq!(
            admitted(&token(&key, "anna", 4_000_000_001)),
            0,
            "another token, the same user"
        );
        // Invalid tokens identify no user; all of them count under the client's address.
        let forged = token(&other, "carl", FAR_EXPIRY);
        assert_eq!(admitted(&forged), 2, "{kind}");
        let none =
            format!("{}.{}.", base64url(br#"{"alg":"none"}"#), forged.split('.').nth(1).unwrap());
        for invalid in [
            token(&other, "dora", FAR_EXPIRY),
            token(&key, "emil", 1_000_000_000),
            none,
            "nonsense".to_owned(),
        ] {
            assert_eq!(admitted(&invalid), 0, "{kind} {invalid}");
        }
    }
}

#[test]
fn jwks_key_rotation_follows_the_file() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    let [old, new, other] = ["old", "new", "other"].map(|name| generate_ec_key(&folder, name));
    folder.write("jwks.json", jwks_document(&folder, &[("2025", &old), ("2026", &new)]));
    let server = start_gateway(
        &nginx,
        &folder,
        "identity: { user_id: { jwt: { key_file: jwks.json } } }\n\
         rules: [{ id: a, key_by: user_id, limit: 2/d }]",
    );
    let mut client = server.gateway_client();
    let mut admitted = |id: &str, key: &Path, user: &str| {
        let head = format!(r#"{{"alg":"ES256","kid":"{id}"}}"#);
        let token = signed_token(&folder, &head, user, FAR_EXPIRY, TokenSigner::Key(key));
        count_admitted(&mut client, 3, "/", &[("authorization", &format!("Bearer {token}"))])
    };
    assert_eq!((admitted("2025", &old, "anna"), admitted("2026", &new, "bert")), (2, 2));
    assert_eq!(admitted("2026", &new, "anna"), 0, "another key, the same user");
    // Invalid tokens identify no user; all of them count under the client's address.
    assert_eq!(admitted("2025", &other, "carl"), 2);
    for (id, key) in [("2025", &new), ("2026", &old), ("2027", &old)] {
        assert_eq!(admitted(id, key, "dora"), 0, "{id}");
    }
    folder.replace_atomically("jwks.json", jwks_document(&folder, &[("2026", &new)]));
    // Only the rules are unchanged: the server reads the keys together with them.
    server.wait_for_log("rules read again; nothing changed");
    assert_eq!(admitted("2026", &new, "emil"), 2, "the remaining key");
    assert_eq!(admitted("2025", &old, "fred"), 0, "the removed key");
}

#[test]
fn shared_secret_accepts_only_configured_algorithm() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    const SECRET: &str = "a secret of thirty-two bytes, two";
    folder.write("secret", format!("{SECRET}\n"));
    let server = start_gateway(
        &nginx,
        &folder,
        "identity: { user_id: { jwt: { key_file: secret, algorithm: HS256 } } }\n\
         rules: [{ id: a, key_by: user_id, limit: 2/d }]",
    );
    let mut client = server.gateway_client();
    let mut admitted = |algorithm: &str, secret: &str, user: &str, until: u64| {
        let head = format!(r#"{{"alg":"{algorithm}"}}"#);
        let token = signed_token(&folder, &head, user, until, TokenSigner::Secret(secret));
        count_admitted(&mut client, 3, "/", &[("authorization", &format!("Bearer {token}"))])
    };
    assert_eq!(admitted("HS256", SECRET, "anna", FAR_EXPIRY), 2);
    assert_eq!(admitted("HS256", SECRET, "bert", FAR_EXPIRY), 2);
    // Invalid tokens identify no user; all of them count under the client's address.
    assert_eq!(admitted("HS256", "another secret of enough bytes....", "carl", FAR_EXPIRY), 2);
    assert_eq!(admitted("HS512", SECRET, "dora", FAR_EXPIRY), 0, "not the configured algorithm");
    assert_eq!(admitted("HS256", SECRET, "emil", 1_000_000_000), 0, "expired");
}

/// What a token is signed with.
#[derive(Clone, Copy)]
enum TokenSigner<'s> {
    Key(&'s Path),
    Secret(&'s str),
}

/// A token for a user, signed by openssl.
fn signed_token(
    folder: &TestFolder,
    head: &str,
    user: &str,
    until: u64,
    signer: TokenSigner<'_>,
) -> String {
    let claims = base64url(format!(r#"{{"sub":"{user}","exp":{until}}}"#).as_bytes());
    let text = format!("{}.{claims}", base64url(head.as_bytes()));
    let file = folder.write("token", &text);
    let signature = match signer {
        TokenSigner::Key(key) => {
            let args = ["dgst", "-sha256", "-sign", key.to_str().unwrap()];
            let signature = run_openssl(&[&args[..], &[file.to_str().unwrap()]].concat());
            if head.contains("ES256") { raw_ecdsa_signature(&signature) } else { signature }
        }
        TokenSigner::Secret(secret) => {
            let key = format!("key:{secret}");
            let args = ["dgst", "-sha256", "-mac", "HMAC", "-macopt", &key, "-binary"];
            run_openssl(&[&args[..], &[file.to_str().unwrap()]].concat())
        }
    };
    format!("{text}.{}", base64url(&signature))
}

fn generate_ec_key(folder: &TestFolder, name: &str) -> PathBuf {
    let key = folder.path(name);
    let args = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"];
    run_openssl(&[&args[..], &[key.to_str().unwrap()]].concat());
    key
}

/// The public keys as a JWKS (RFC 7517).
fn jwks_document(folder: &TestFolder, keys: &[(&str, &PathBuf)]) -> String {
    let public = folder.path("public.der");
    let jwk = |(id, key): &(&str, &PathBuf)| {
        let args = ["pkey", "-in", key.to_str().unwrap(), "-pubout", "-outform", "DER", "-out"];
        run_openssl(&[&args[..], &[public.to_str().unwrap()]].concat());
        let der = std::fs::read(&public).unwrap();
        // The point comes last: two 32-byte coordinates.
        let (x, y) = der[der.len() - 64..].split_at(32);
        let (x, y) = (base64url(x), base64url(y));
        format!(r#"{{"kty":"EC","crv":"P-256","use":"sig","kid":"{id}","x":"{x}","y":"{y}"}}"#)
    };
    format!(r#"{{"keys":[{}]}}"#, keys.iter().map(jwk).collect::<Vec<_>>().join(","))
}

/// Converts openssl's DER signature to the two 32-byte numbers that JWTs use.
fn raw_ecdsa_signature(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut number = || {
        let length = usize::from(rest[1]);
        let digits = &rest[2..2 + length];
        rest = &rest[2 + length..];
        let digits = &digits[digits.len().saturating_sub(32)..];
        [vec![0; 32 - digits.len()], digits.to_vec()].concat()
    };
    [number(), number()].concat()
}

/// Encodes as base64url without padding.
fn base64url(bytes: &[u8]) -> String {
    let sextets = |chunk: &[u8]| {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |at| URL_SAFE[(word >> (18 - 6 * at)) as usize & 63] as char)
    };
    bytes.chunks(3).flat_map(|chunk| sextets(chunk).collect::<Vec<_>>()).collect()
}
