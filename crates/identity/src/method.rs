//! Canonical spelling of methods, so that no other spelling bypasses a rule.
//!
//! Methods are case-sensitive (RFC 9110 section 9.1), but Flask, Django and others upper-case them
//! and run the `POST` handler for `post`. Rules name methods in upper case, so every method is
//! matched and keyed in upper case. Standard methods are also forwarded in upper case: the
//! browsers' `fetch` sends `patch` as the page spells it. Other methods are forwarded unchanged.

use std::borrow::Cow;

use http::Method;
use tidegate_web::percent::push_encoded;

/// The methods of RFC 9110, RFC 5789 and RFC 10008.
const STANDARD: [Method; 10] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::QUERY,
    Method::TRACE,
    Method::CONNECT,
];

/// The spelling that rules match and key by.
pub fn canonical<'a>(given: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
    let given = given.into();
    if has_lowercase(&given) { given.to_ascii_uppercase().into() } else { given }
}

/// Like [`canonical`], for the method of an endpoint, `METHOD /path`. The path may be a pattern, so
/// only characters outside ASCII are encoded.
pub fn canonical_endpoint(given: Cow<'_, str>) -> Cow<'_, str> {
    let given = encode_non_ascii(given);
    match given.split_once(' ') {
        Some((method, path)) if path.starts_with('/') && has_lowercase(method) => {
            format!("{} {path}", method.to_ascii_uppercase()).into()
        }
        _ => given,
    }
}

/// Upper-cases a standard method for forwarding. Returns whether that changed it.
pub fn normalize(method: &mut Method) -> bool {
    if !has_lowercase(method.as_str()) {
        return false;
    }
    let same = |known: &&Method| known.as_str().eq_ignore_ascii_case(method.as_str());
    match STANDARD.iter().find(same) {
        Some(known) => {
            method.clone_from(known);
            true
        }
        None => false,
    }
}

fn encode_non_ascii(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.is_ascii() {
        return text;
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte.is_ascii() {
            true => encoded.push(char::from(byte)),
            false => push_encoded(&mut encoded, byte),
        }
    }
    encoded.into()
}

fn has_lowercase(method: &str) -> bool {
    method.bytes().any(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A standard method in random case.
    fn spellings() -> impl Strategy<Value = (Method, String)> {
        let method = prop::sample::select(&STANDARD[..]);
        (method, any::<u32>()).prop_map(|(method, lower)| {
            let letters = method.as_str().bytes().enumerate().map(|(at, letter)| {
                char::from(if lower >> at & 1 == 1 { letter.to_ascii_lowercase() } else { letter })
            });
            (method.clone(), letters.collect())
        })
    }

    proptest! {
        #[test]
        fn standard_methods_are_uppercased((method, given) in spellings()) {
            prop_assert_eq!(canonical(&*given), method.as_str());
            let mut normalized: Method = given.parse().unwrap();
            prop_assert_eq!(normalize(&mut normalized), given != method.as_str());
            prop_assert_eq!(&normalized, &method);
            let endpoint = canonical_endpoint(format!("{given} /a b").into());
            prop_assert_eq!(endpoint, format!("{method} /a b"));
        }
    }

    #[test]
    fn custom_methods_are_forwarded_unchanged() {
        assert_eq!(canonical("Purge"), "PURGE");
        let mut method: Method = "Purge".parse().unwrap();
        assert!(!normalize(&mut method));
        assert_eq!(method, "Purge");
        for endpoint in ["/get", "get", "get x", "GET /x", ""] {
            assert_eq!(canonical_endpoint(endpoint.into()), endpoint);
        }
    }
}
