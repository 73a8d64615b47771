//! Splits a CEL expression into tokens.

use std::fmt;

use super::CelError;
use crate::import::unsupported::quote_text;

/// A token of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CelToken {
    /// A name or a number.
    Word(String),
    /// A quoted string, without its quotes.
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 11] = ["==", "!=", "&&", "||", "[", "]", "(", ")", ".", ",", "!"];

/// All tokens, or an error that names the unsupported character.
pub(super) fn tokenize(text: &str) -> Result<Vec<CelToken>, CelError> {
    let (mut tokens, mut left) = (Vec::new(), text.trim_start());
    while let Some(first) = left.chars().next() {
        let (token, rest) = match first {
            '\'' | '"' => read_string(first, &left[1..])?,
            c if is_word(c) => {
                let end = left.find(|c| !is_word(c)).unwrap_or(left.len());
                (CelToken::Word(left[..end].to_owned()), &left[end..])
            }
            c => {
                let sign = SIGNS.into_iter().find(|sign| left.starts_with(sign));
                let sign =
                    sign.ok_or_else(|| format!("{} is not supported", quote_text(&c.to_string())))?;
                (CelToken::Sign(sign), &left[sign.len()..])
            }
        };
        tokens.push(token);
        left = rest.trim_start();
    }
    Ok(tokens)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads a string up to its closing quote; returns it with the rest of the expression.
fn read_string(quote: char, left: &str) -> Result<(CelToken, &str), CelError> {
    let (mut text, mut chars) = (String::new(), left.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((CelToken::Text(text), &left[at + 1..])),
            '\\' => text.push(match chars.next() {
                Some((_, c @ ('\\' | '\'' | '"' | '`' | '?'))) => c,
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                Some((_, 't')) => '\t',
                other => {
                    let escape = other.map_or(String::new(), |(_, c)| c.to_string());
                    return Err(format!("{} is not supported", quote_text(&format!("\\{escape}"))));
                }
            }),
            c => text.push(c),
        }
    }
    Err("a quote is not closed".to_owned())
}

impl fmt::Display for CelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(&quote_text(word)),
            Self::Text(text) => f.write_str(&quote_text(&format!("'{text}'"))),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}
