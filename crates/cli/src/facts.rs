//! Parses facts on the command line: `name=value`.

/// Parses one fact; the value may be empty or contain `=`.
pub(crate) fn parse(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected a fact as name=value, such as `ip=203.0.113.7`".to_owned()),
    }
}
