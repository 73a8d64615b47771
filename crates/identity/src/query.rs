//! Reads a query parameter, form-decoded: the value that is keyed is the value that the upstream
//! reads.

use std::borrow::Cow;

use super::FactError;
use tidegate_web::percent::decode_hex_octet;

/// Returns the value of a parameter; `None` if it is empty. A name that occurs twice is an error,
/// because it is unknown which value the upstream uses.
pub(super) fn read_parameter<'a>(
    query: &'a str,
    name: &str,
) -> Result<Option<Cow<'a, str>>, FactError> {
    let mut found = None;
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if is_named(key, name) && found.replace(value).is_some() {
            return Err(FactError::Repeated);
        }
    }
    match found {
        None | Some("") => Ok(None),
        Some(value) => decode_form(value).map(Some),
    }
}

/// Compares decoded names: `%6bey` is `key`.
fn is_named(raw: &str, name: &str) -> bool {
    raw == name || (is_encoded(raw) && decode_form(raw).is_ok_and(|plain| plain == name))
}

fn is_encoded(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'%' | b'+'))
}

fn decode_form(text: &str) -> Result<Cow<'_, str>, FactError> {
    if !is_encoded(text) {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                rest = after.get(2..).ok_or(FactError::BadEncoding)?;
                decode_hex_octet(after).ok_or(FactError::BadEncoding)?
            }
            plain => *plain,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| FactError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameter_is_found_and_decoded() {
        for (query, expected) in [
            ("", None),
            ("key", None),
            ("key=", None),
            ("key=abc", Some("abc")),
            ("a=1&key=abc&b=key", Some("abc")),
            ("a=key&akey=1&keys=2&KEY=3", None),
            ("%6Bey=a%62c", Some("abc")),
            ("key=a+b%2Bc", Some("a b+c")),
            ("key=a=b", Some("a=b")),
            ("key=%C3%A9", Some("\u{e9}")),
            ("other=%zz&key=abc", Some("abc")),
            ("%zz=1&key=abc", Some("abc")),
        ] {
            let found = read_parameter(query, "key").unwrap();
            assert_eq!(found.as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn ambiguous_query_parameter_is_refused() {
        for (query, expected) in [
            ("key=a&key=b", FactError::Repeated),
            ("key=a&key=a", FactError::Repeated),
            ("key=&key=a", FactError::Repeated),
            ("key=a&key", FactError::Repeated),
            ("key=a&%6bey=b", FactError::Repeated),
            ("key=%", FactError::BadEncoding),
            ("key=%4", FactError::BadEncoding),
            ("key=%4x", FactError::BadEncoding),
            ("key=%ff", FactError::NotText),
        ] {
            assert_eq!(read_parameter(query, "key"), Err(expected), "{query}");
        }
    }
}
