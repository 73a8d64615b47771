//! Users by their tokens (JWT), signed by openssl: with the key of a file, with one of a key set, with a shared secret.

use std::path::{Path, PathBuf};

use tidegate_testkit::nginx::Nginx;

use super::identity::{passed, start};
use crate::support::Folder;
use crate::support::authority::openssl;

const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// When tokens run out: in the next century.
const LATE: u64 = 4_000_000_000;

#[test]
fn users_are_who_a_good_signature_says() {
    let nginx = Nginx::start("return 200 well;");
    for (kind, words) in [
        ("ES256", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"][..]),
        ("RS256", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
    ] {
        let folder = Folder::new();
        let [key, other, public] = ["key", "other", "jwt.pub"].map(|name| folder.path(name));
        for key in [&key, &other] {
            openssl(&[&["genpkey"], words, &["-out", key.to_str().unwrap()]].concat());
        }
        openssl(&[
            "pkey",
            "-in",
            key.to_str().unwrap(),
            "-pubout",
            "-out",
            public.to_str().unwrap(),
        ]);
        let server = start(
            &nginx,
            &folder,
            "identity: { user_id: { jwt: { key_file: jwt.pub } } }\n\
             rules: [{ id: a, key_by: user_id, limit: 2/d }]",
        );
        let mut client = server.visitor();
        let mut ask = |token: &str| {
            let value = format!("Bearer {token}");
            passed(&mut client, 3, "/", &[("authorization", &value)])
        };
        let token = |key, user: &str, until: u64| {
            let head = format!(r#"{{"alg":"{kind}","typ":"JWT"}}"#);
            token(&folder, &head, user, until, Signer::Key(key))
        };
        assert_eq!(ask(&token(&key, "anna", LATE)), 2, "{kind}");
        assert_eq!(ask(&token(&key, "bert", LATE)), 2, "{kind}");
        assert_eq!(ask(&token(&key, "anna", 4_000_000_001)), 0, "another token, the same user");
        // All of these are nobody, which is the address.
        let forged = token(&other, "carl", LATE);
        assert_eq!(ask(&forged), 2, "{kind}");
        let none =
            format!("{}.{}.", encoded(br#"{"alg":"none"}"#), forged.split('.').nth(1).unwrap());
        for nobody in [
            token(&other, "dora", LATE),
            token(&key, "emil", 1_000_000_000),
            none,
            "nonsense".to_owned(),
        ] {
            assert_eq!(ask(&nobody), 0, "{kind} {nobody}");
        }
    }
}

#[test]
fn a_key_set_is_asked_for_the_key_that_a_token_names_and_is_rolled_over_by_its_file() {
    let nginx = Nginx::start("return 200 well;");
    let folder = Folder::new();
    let [old, new, other] = ["old", "new", "other"].map(|name| ec_key(&folder, name));
    folder.write("jwks.json", key_set(&folder, &[("2025", &old), ("2026", &new)]));
    let server = start(
        &nginx,
        &folder,
        "identity: { user_id: { jwt: { key_file: jwks.json } } }\n\
         rules: [{ id: a, key_by: user_id, limit: 2/d }]",
    );
    let mut client = server.visitor();
    let mut ask = |id: &str, key: &Path, user: &str| {
        let head = format!(r#"{{"alg":"ES256","kid":"{id}"}}"#);
        let token = token(&folder, &head, user, LATE, Signer::Key(key));
        passed(&mut client, 3, "/", &[("authorization", &format!("Bearer {token}"))])
    };
    assert_eq!((ask("2025", &old, "anna"), ask("2026", &new, "bert")), (2, 2));
    assert_eq!(ask("2026", &new, "anna"), 0, "another key, the same user");
    // All of these are nobody, which is the address.
    assert_eq!(ask("2025", &other, "carl"), 2);
    for (id, key) in [("2025", &new), ("2026", &old), ("2027", &old)] {
        assert_eq!(ask(id, key, "dora"), 0, "{id}");
    }
    folder.replace("jwks.json", key_set(&folder, &[("2026", &new)]));
    // Of the rules nothing, that is: the keys are read again with them.
    server.wait_log("rules read again, nothing changed");
    assert_eq!(ask("2026", &new, "emil"), 2, "the key that stays");
    assert_eq!(ask("2025", &old, "fred"), 0, "the key that is gone");
}

#[test]
fn a_shared_secret_is_good_for_the_algorithm_that_the_document_names() {
    let nginx = Nginx::start("return 200 well;");
    let folder = Folder::new();
    const SECRET: &str = "a secret of thirty-two bytes, two";
    folder.write("secret", format!("{SECRET}\n"));
    let server = start(
        &nginx,
        &folder,
        "identity: { user_id: { jwt: { key_file: secret, algorithm: HS256 } } }\n\
         rules: [{ id: a, key_by: user_id, limit: 2/d }]",
    );
    let mut client = server.visitor();
    let mut ask = |algorithm: &str, secret: &str, user: &str, until: u64| {
        let head = format!(r#"{{"alg":"{algorithm}"}}"#);
        let token = token(&folder, &head, user, until, Signer::Secret(secret));
        passed(&mut client, 3, "/", &[("authorization", &format!("Bearer {token}"))])
    };
    assert_eq!(ask("HS256", SECRET, "anna", LATE), 2);
    assert_eq!(ask("HS256", SECRET, "bert", LATE), 2);
    // All of these are nobody, which is the address.
    assert_eq!(ask("HS256", "another secret of enough bytes....", "carl", LATE), 2);
    assert_eq!(ask("HS512", SECRET, "dora", LATE), 0, "not the algorithm that is named");
    assert_eq!(ask("HS256", SECRET, "emil", 1_000_000_000), 0, "it has run out");
}

/// Who signs a token.
#[derive(Clone, Copy)]
enum Signer<'s> {
    Key(&'s Path),
    Secret(&'s str),
}

/// A token for a user, signed by openssl.
fn token(folder: &Folder, head: &str, user: &str, until: u64, signer: Signer<'_>) -> String {
    let claims = encoded(format!(r#"{{"sub":"{user}","exp":{until}}}"#).as_bytes());
    let text = format!("{}.{claims}", encoded(head.as_bytes()));
    let file = folder.write("token", &text);
    let signature = match signer {
        Signer::Key(key) => {
            let words = ["dgst", "-sha256", "-sign", key.to_str().unwrap()];
            let signature = openssl(&[&words[..], &[file.to_str().unwrap()]].concat());
            if head.contains("ES256") { plain(&signature) } else { signature }
        }
        Signer::Secret(secret) => {
            let key = format!("key:{secret}");
            let words = ["dgst", "-sha256", "-mac", "HMAC", "-macopt", &key, "-binary"];
            openssl(&[&words[..], &[file.to_str().unwrap()]].concat())
        }
    };
    format!("{text}.{}", encoded(&signature))
}

fn ec_key(folder: &Folder, name: &str) -> PathBuf {
    let key = folder.path(name);
    let words = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"];
    openssl(&[&words[..], &[key.to_str().unwrap()]].concat());
    key
}

/// The public halves of these keys as a JWKS (RFC 7517).
fn key_set(folder: &Folder, keys: &[(&str, &PathBuf)]) -> String {
    let public = folder.path("public.der");
    let jwk = |(id, key): &(&str, &PathBuf)| {
        let words = ["pkey", "-in", key.to_str().unwrap(), "-pubout", "-outform", "DER", "-out"];
        openssl(&[&words[..], &[public.to_str().unwrap()]].concat());
        let der = std::fs::read(&public).unwrap();
        // The point comes last: two numbers of 32 bytes.
        let (x, y) = der[der.len() - 64..].split_at(32);
        let (x, y) = (encoded(x), encoded(y));
        format!(r#"{{"kty":"EC","crv":"P-256","use":"sig","kid":"{id}","x":"{x}","y":"{y}"}}"#)
    };
    format!(r#"{{"keys":[{}]}}"#, keys.iter().map(jwk).collect::<Vec<_>>().join(","))
}

/// The two numbers of a signature, each of 32 bytes, out of the DER that openssl writes.
fn plain(der: &[u8]) -> Vec<u8> {
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

/// In base64url without padding.
fn encoded(bytes: &[u8]) -> String {
    let sextets = |chunk: &[u8]| {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |at| URL_SAFE[(word >> (18 - 6 * at)) as usize & 63] as char)
    };
    bytes.chunks(3).flat_map(|chunk| sextets(chunk).collect::<Vec<_>>()).collect()
}
