//! Parses the supported subset of CEL: comparisons of an entry with strings, joined by `&&`.
//!
//! An entry is `descriptors[0].name`, `descriptors[0]['name']` or, as before Limitador 2.0, only
//! `name`. Any other expression is an error that names the unsupported part.

mod token;

use token::{CelToken, tokenize};

/// The condition on an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CelPredicate {
    /// The entry exists.
    Present,
    /// The entry is one of these values.
    Is(Vec<String>),
    /// The entry exists and is not this value.
    Not(String),
    /// The entry exists and matches this glob. The literal text comes before, after or between `*`.
    Like(String),
}

/// Why an expression is not supported.
pub(super) type CelError = String;

/// Parses a condition into entry names and their predicates.
pub(super) fn parse_condition(text: &str) -> Result<Vec<(String, CelPredicate)>, CelError> {
    let tokens = tokenize(text)?;
    let mut reader = CelParser { remaining: &tokens };
    let mut claims = vec![reader.parse_predicate()?];
    while reader.accept("&&") {
        claims.push(reader.parse_predicate()?);
    }
    reader.expect_end()?;
    Ok(claims)
}

/// Parses a variable, which names an entry.
pub(super) fn parse_variable(text: &str) -> Result<String, CelError> {
    let tokens = tokenize(text)?;
    let mut reader = CelParser { remaining: &tokens };
    let name = reader.parse_entry()?;
    reader.expect_end()?;
    Ok(name)
}

struct CelParser<'t> {
    remaining: &'t [CelToken],
}

impl CelParser<'_> {
    fn parse_predicate(&mut self) -> Result<(String, CelPredicate), CelError> {
        if let [CelToken::Word(has), CelToken::Sign("("), ..] = self.remaining
            && has == "has"
        {
            self.remaining = &self.remaining[2..];
            let name = self.parse_entry()?;
            self.expect(")")?;
            return Ok((name, CelPredicate::Present));
        }
        if let [CelToken::Text(text), rest @ ..] = self.remaining {
            let text = text.clone();
            self.remaining = rest;
            return self.parse_after_text(text);
        }
        let name = self.parse_entry()?;
        let claim = self.parse_after_entry()?;
        Ok((name, claim))
    }

    fn parse_after_text(&mut self, text: String) -> Result<(String, CelPredicate), CelError> {
        if self.accept("in") {
            self.parse_first_descriptor()?;
            return Ok((text, CelPredicate::Present));
        }
        let equal = self.parse_comparison()?;
        Ok((self.parse_entry()?, equality_predicate(equal, text)))
    }

    fn parse_after_entry(&mut self) -> Result<CelPredicate, CelError> {
        if self.accept("in") {
            return Ok(CelPredicate::Is(self.parse_text_list()?));
        }
        if self.accept(".") {
            let method = self.parse_word()?;
            self.expect("(")?;
            let text = self.parse_text()?;
            self.expect(")")?;
            return match method.as_str() {
                "startsWith" => Ok(CelPredicate::Like(format!("{text}*"))),
                "endsWith" => Ok(CelPredicate::Like(format!("*{text}"))),
                "contains" => Ok(CelPredicate::Like(format!("*{text}*"))),
                _ => Err(format!("`{method}` has no equivalent")),
            };
        }
        let equal = self.parse_comparison()?;
        Ok(equality_predicate(equal, self.parse_text()?))
    }

    /// Whether `==` comes next, as opposed to `!=`.
    fn parse_comparison(&mut self) -> Result<bool, CelError> {
        match (self.accept("=="), self.accept("!=")) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            _ => Err(self.unexpected("`==` or `!=`")),
        }
    }

    /// Parses the name of an entry of the first descriptor.
    fn parse_entry(&mut self) -> Result<String, CelError> {
        let first = self.parse_word()?;
        if first == "limit" {
            return Err("the name of the limit cannot be used in a condition".to_owned());
        }
        if first != "descriptors" {
            return self.parse_dotted_name(first);
        }
        self.parse_index()?;
        if self.accept("[") {
            let name = self.parse_text()?;
            self.expect("]")?;
            return Ok(name);
        }
        self.expect(".")?;
        self.parse_word()
    }

    /// Parses a name with dots, allowed before 2.0. The last word before a `(` is a method.
    fn parse_dotted_name(&mut self, first: String) -> Result<String, CelError> {
        let mut name = first;
        while let [CelToken::Sign("."), CelToken::Word(word), rest @ ..] = self.remaining
            && rest.first() != Some(&CelToken::Sign("("))
        {
            name.extend([".", word]);
            self.remaining = rest;
        }
        Ok(name)
    }

    fn parse_first_descriptor(&mut self) -> Result<(), CelError> {
        match self.parse_word()?.as_str() {
            "descriptors" => self.parse_index(),
            other => Err(format!("`{other}` has no equivalent")),
        }
    }

    fn parse_index(&mut self) -> Result<(), CelError> {
        self.expect("[")?;
        let index = self.parse_word()?;
        self.expect("]")?;
        match index.as_str() {
            "0" => Ok(()),
            _ => {
                Err("rules match each descriptor separately, and this refers to another one"
                    .to_owned())
            }
        }
    }

    fn parse_text_list(&mut self) -> Result<Vec<String>, CelError> {
        self.expect("[")?;
        let mut texts = vec![self.parse_text()?];
        while self.accept(",") {
            texts.push(self.parse_text()?);
        }
        self.expect("]")?;
        Ok(texts)
    }

    fn parse_text(&mut self) -> Result<String, CelError> {
        let [CelToken::Text(text), rest @ ..] = self.remaining else {
            return Err(self.unexpected("a quoted string"));
        };
        self.remaining = rest;
        Ok(text.clone())
    }

    fn parse_word(&mut self) -> Result<String, CelError> {
        let [CelToken::Word(word), rest @ ..] = self.remaining else {
            return Err(self.unexpected("a name"));
        };
        self.remaining = rest;
        Ok(word.clone())
    }

    fn accept(&mut self, sign: &str) -> bool {
        let here = match self.remaining.first() {
            Some(CelToken::Sign(own)) => *own == sign,
            Some(CelToken::Word(word)) => sign == "in" && word == "in",
            _ => false,
        };
        self.remaining = &self.remaining[usize::from(here)..];
        here
    }

    fn expect(&mut self, sign: &str) -> Result<(), CelError> {
        if self.accept(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn expect_end(&self) -> Result<(), CelError> {
        if self.remaining.is_empty() { Ok(()) } else { Err(self.unexpected("the end, or `&&`")) }
    }

    fn unexpected(&self, expected: &str) -> CelError {
        match self.remaining.first() {
            Some(token) => format!("{token} found where only {expected} is supported"),
            None => format!("it ends where {expected} should follow"),
        }
    }
}

fn equality_predicate(equal: bool, text: String) -> CelPredicate {
    if equal { CelPredicate::Is(vec![text]) } else { CelPredicate::Not(text) }
}

#[cfg(test)]
mod tests;
