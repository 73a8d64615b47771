//! Percent-encoding (RFC 3986 section 2.1).

/// Decodes a part of a path or query; `None` if it is not percent-encoded UTF-8.
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            bytes.push(decode_hex_octet(after)?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Encodes text as a path segment or query value.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match is_safe(byte) {
            true => encoded.push(char::from(byte)),
            false => push_encoded(&mut encoded, byte),
        }
        encoded
    })
}

/// Decodes two hexadecimal digits.
#[must_use]
pub fn decode_hex_octet(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Appends a percent-encoded byte.
pub fn push_encoded(encoded: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    encoded.push('%');
    encoded.push(DIGITS[usize::from(byte >> 4)]);
    encoded.push(DIGITS[usize::from(byte & 15)]);
}
