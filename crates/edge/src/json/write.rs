//! JSON, written piece by piece: what stands between the values is constant text. A library would look at
//! every letter of every name for what must be escaped, and that was a fifth of what a check took.

/// A value, as JSON has it.
pub(crate) trait Value {
    fn write(self, out: &mut String);
}

/// Puts a value after the text that comes before it.
pub(crate) fn put(out: &mut String, before: &str, value: impl Value) {
    out.push_str(before);
    value.write(out);
}

/// Puts a list after the text that comes before it.
pub(crate) fn list<T>(
    out: &mut String,
    before: &str,
    values: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push_str(before);
    out.push('[');
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(out, value);
    }
    out.push(']');
}

impl Value for bool {
    fn write(self, out: &mut String) {
        out.push_str(if self { "true" } else { "false" });
    }
}

impl Value for u64 {
    fn write(self, out: &mut String) {
        out.push_str(itoa::Buffer::new().format(self));
    }
}

impl Value for &str {
    fn write(self, out: &mut String) {
        out.push('"');
        // Most need no escape; where each is, is for the few to find out.
        match self.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
            false => out.push_str(self),
            true => self.chars().for_each(|letter| escape(letter, out)),
        }
        out.push('"');
    }
}

impl<T: Value> Value for Option<T> {
    fn write(self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }
}

/// RFC 8259 section 7.
fn escape(letter: char, out: &mut String) {
    match letter {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
        letter => out.push(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every letter below 0x100, alone and among others, as the library would write it.
    #[test]
    fn text_is_escaped_as_a_library_does_it() {
        let letters = (0..=0xFF_u8).map(char::from).chain(['\u{2028}', '語', '\u{1F980}']);
        for letter in letters {
            for text in [letter.to_string(), format!("a{letter}b{letter}")] {
                let mut out = String::new();
                put(&mut out, "", text.as_str());
                assert_eq!(out, serde_json::to_string(&text).unwrap());
            }
        }
    }

    #[test]
    fn values_and_lists_are_json() {
        let mut out = String::new();
        put(&mut out, r#"{"a":"#, Some(u64::MAX));
        put(&mut out, r#","b":"#, None::<&str>);
        list(&mut out, r#","c":"#, [true, false], |out, truth| put(out, "", truth));
        list(&mut out, r#","d":"#, [0_u64; 0], |out, number| put(out, "", number));
        out.push('}');
        assert_eq!(out, r#"{"a":18446744073709551615,"b":null,"c":[true,false],"d":[]}"#);
    }
}
