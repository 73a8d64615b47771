//! Path canonicalization: examples and properties.

use proptest::prelude::*;

use super::*;

#[test]
fn equivalent_paths_share_canonical_form() {
    for (given, expected) in [
        ("/", "/"),
        ("/api/orders", "/api/orders"),
        ("/api/orders/", "/api/orders/"),
        ("//api///orders", "/api/orders"),
        ("/a/./b/.", "/a/b/"),
        ("/a/b/..", "/a/"),
        ("/a/../../..", "/"),
        ("/a//../b", "/b"),
        ("/..a/...", "/..a/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/%61pi/%7Eme", "/api/~me"),
        ("/a/%2e%2E/b", "/b"),
        ("/a%3ab", "/a%3Ab"),
        ("/a:b;c=d@e!$&'()*+,", "/a:b;c=d@e!$&'()*+,"),
        ("/a b\"<>^`{|}[]", "/a%20b%22%3C%3E%5E%60%7B%7C%7D%5B%5D"),
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a%252Fb", "/a%252Fb"),
        ("/a?x=//..#f", "/a"),
        ("/a#f?x", "/a"),
        ("/a%3Fb%23c", "/a%3Fb%23c"),
    ] {
        assert_eq!(canonical(given).as_deref(), Ok(expected), "{given}");
    }
}

proptest! {
    /// A rule may name exactly the paths that requests can have, and redundant slashes.
    #[test]
    fn rule_paths_are_canonical_paths(path in r"/[a-cX0-9%./;~|\\ \u{e9}\u{85}\[?#-]{0,12}") {
        let is_accepted = |path: &str| {
            let quoted = serde_json::Value::from(path);
            let source = format!("rules: [{{ match: {{ path: {quoted} }}, limit: 1/s }}]");
            tidegate_rules::Document::parse("rules.yaml", &source).is_ok()
        };
        prop_assume!(!path.contains("/:"));
        let given = canonical(&path);
        if is_accepted(&path) && !path.contains("//") {
            prop_assert_eq!(given.as_deref(), Ok(&*path));
        }
        if let Ok(given) = given {
            prop_assert!(is_accepted(&given), "{}", given);
        }
    }
}

#[test]
fn ambiguous_paths_are_rejected() {
    for (given, expected) in [
        ("", PathError::NotAbsolute),
        ("api", PathError::NotAbsolute),
        ("?x", PathError::NotAbsolute),
        ("http://host/a", PathError::NotAbsolute),
        ("%2Fa", PathError::NotAbsolute),
        ("/%", PathError::BadEncoding),
        ("/%4", PathError::BadEncoding),
        ("/%4x", PathError::BadEncoding),
        ("/%+4", PathError::BadEncoding),
        ("/a%2Fb", PathError::EncodedSlash),
        ("/a%2fb", PathError::EncodedSlash),
        ("/a\\b", PathError::Backslash),
        ("/a%5cb", PathError::Backslash),
        ("/a%00", PathError::Control),
        ("/a\u{0}", PathError::Control),
        ("/a%0d%0aX", PathError::Control),
        ("/a\tb", PathError::Control),
        ("/a%7F", PathError::Control),
        ("/a%C2%85", PathError::Control),
        ("/a\u{85}", PathError::Control),
        ("/a%ff", PathError::NotUtf8),
        ("/a%c3", PathError::NotUtf8),
        ("/a%c0%af", PathError::NotUtf8),
    ] {
        assert_eq!(canonical(given), Err(expected), "{given:?}");
    }
}

#[test]
fn canonical_path_is_borrowed() {
    for path in ["/", "/api/orders?q", "/.well-known", "/a%20b"] {
        assert!(matches!(canonical(path), Ok(Cow::Borrowed(_))), "{path}");
    }
}

fn path_like_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/".to_owned()),
        Just(".".to_owned()),
        Just("..".to_owned()),
        "[a-z%.]{1,3}",
        "%[0-9a-fA-F]{2}",
        "\\PC",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn canonicalization_is_idempotent(given in path_like_text()) {
        if let Ok(once) = canonical(&given) {
            prop_assert_eq!(canonical(&once), Ok(Cow::Borrowed(once.as_ref())));
            prop_assert!(once.starts_with('/') && !once.contains("//"));
            prop_assert!(once.split('/').all(|segment| segment != "." && segment != ".."));
            prop_assert!(once.bytes().all(|b| b == b'/' || b == b'%' || is_pchar(b)));
        }
    }

    #[test]
    fn encoded_unreserved_characters_are_decoded(path in "/[a-z0-9._~/-]{0,20}", at in 0usize..21) {
        let plain = canonical(&path).map(Cow::into_owned);
        let mut encoded = String::new();
        for (index, byte) in path.bytes().enumerate() {
            match byte {
                b'/' => encoded.push('/'),
                _ if index == at => encoded.push_str(&format!("%{byte:02x}")),
                _ => encoded.push(char::from(byte)),
            }
        }
        prop_assert_eq!(canonical(&encoded).map(Cow::into_owned), plain);
    }

    #[test]
    fn arbitrary_text_is_canonical_or_refused(given in any::<String>(), slash in any::<bool>()) {
        let given = if slash { format!("/{given}") } else { given };
        match canonical(&given) {
            Ok(path) => prop_assert_eq!(canonical(&path), Ok(Cow::Borrowed(path.as_ref()))),
            Err(error) => {
                prop_assert_eq!(error == PathError::NotAbsolute, !given.starts_with('/'));
            }
        }
    }
}
