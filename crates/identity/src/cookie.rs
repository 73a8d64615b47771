//! Reads a cookie (RFC 6265 section 5.4) from all `Cookie` lines: HTTP/2 may send one line per
//! cookie.

use http::HeaderMap;
use http::header::COOKIE;

use super::FactError;

/// Returns the value of a cookie without surrounding quotes. A name that occurs twice is an error,
/// because it is unknown which value the upstream uses.
pub(super) fn read_cookie<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a [u8]>, FactError> {
    let mut found = None;
    let lines = headers.get_all(COOKIE).into_iter();
    for pair in lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')) {
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let is_named = pair[..equals].trim_ascii() == name.as_bytes();
        if is_named && found.replace(pair[equals + 1..].trim_ascii()).is_some() {
            return Err(FactError::Repeated);
        }
    }
    Ok(found.map(strip_quotes))
}

/// Removes surrounding quotes. Some servers strip them and some do not; both forms must yield one
/// key.
fn strip_quotes(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn cookie(lines: &[&'static str]) -> Result<Option<String>, FactError> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        let found = read_cookie(&headers, "sid")?;
        Ok(found.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    #[test]
    fn cookie_is_found_on_any_line() {
        for (lines, expected) in [
            (vec![], None),
            (vec!["a=1"], None),
            (vec!["sid"], None),
            (vec!["SID=1; xsid=2; sidx=3"], None),
            (vec!["sid=abc"], Some("abc")),
            (vec!["a=sid=x;sid=abc ; b=2"], Some("abc")),
            (vec!["a=1", "sid = abc"], Some("abc")),
            (vec!["sid=\"abc\""], Some("abc")),
            (vec!["sid=a=b"], Some("a=b")),
            (vec!["sid=\""], Some("\"")),
        ] {
            assert_eq!(cookie(&lines), Ok(expected.map(str::to_owned)), "{lines:?}");
        }
    }

    #[test]
    fn duplicate_cookie_name_is_refused() {
        for lines in [vec!["sid=a; sid=b"], vec!["sid=a", "sid=a"], vec!["sid=;sid=a"]] {
            assert_eq!(cookie(&lines), Err(FactError::Repeated), "{lines:?}");
        }
    }
}
