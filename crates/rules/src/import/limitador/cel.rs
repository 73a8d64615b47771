//! The forms of CEL that limits are written in: comparisons of an entry with texts, joined by `&&`.
//!
//! An entry is `descriptors[0].name`, `descriptors[0]['name']` or, as before Limitador 2.0, `name` alone. Everything
//! else is answered with what it is, and is not guessed at.

mod token;

use token::{Token, tokens};

/// What a comparison asks of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is there.
    Present,
    /// It is one of these.
    Is(Vec<String>),
    /// It is there, and is not this.
    Not(String),
    /// It is there and fits; text that is meant as it stands comes between `*`.
    Like(String),
}

/// Why an expression is not understood.
pub(super) type Reason = String;

/// The entries that a condition asks about, and what of each.
pub(super) fn condition(text: &str) -> Result<Vec<(String, Claim)>, Reason> {
    let tokens = tokens(text)?;
    let mut reader = Reader { left: &tokens };
    let mut claims = vec![reader.claim()?];
    while reader.takes("&&") {
        claims.push(reader.claim()?);
    }
    reader.end()?;
    Ok(claims)
}

/// The entry that a variable names.
pub(super) fn variable(text: &str) -> Result<String, Reason> {
    let tokens = tokens(text)?;
    let mut reader = Reader { left: &tokens };
    let name = reader.entry()?;
    reader.end()?;
    Ok(name)
}

struct Reader<'t> {
    left: &'t [Token],
}

impl Reader<'_> {
    fn claim(&mut self) -> Result<(String, Claim), Reason> {
        if let [Token::Word(has), Token::Sign("("), ..] = self.left
            && has == "has"
        {
            self.left = &self.left[2..];
            let name = self.entry()?;
            self.expect(")")?;
            return Ok((name, Claim::Present));
        }
        if let [Token::Text(text), rest @ ..] = self.left {
            let text = text.clone();
            self.left = rest;
            return self.after_text(text);
        }
        let name = self.entry()?;
        let claim = self.after_entry()?;
        Ok((name, claim))
    }

    fn after_text(&mut self, text: String) -> Result<(String, Claim), Reason> {
        if self.takes("in") {
            self.first_descriptor()?;
            return Ok((text, Claim::Present));
        }
        let equal = self.comparison()?;
        Ok((self.entry()?, compared(equal, text)))
    }

    fn after_entry(&mut self) -> Result<Claim, Reason> {
        if self.takes("in") {
            return Ok(Claim::Is(self.texts()?));
        }
        if self.takes(".") {
            let method = self.word()?;
            self.expect("(")?;
            let text = self.text()?;
            self.expect(")")?;
            return match method.as_str() {
                "startsWith" => Ok(Claim::Like(format!("{text}*"))),
                "endsWith" => Ok(Claim::Like(format!("*{text}"))),
                "contains" => Ok(Claim::Like(format!("*{text}*"))),
                _ => Err(format!("`{method}` has no equivalent")),
            };
        }
        let equal = self.comparison()?;
        Ok(compared(equal, self.text()?))
    }

    /// Whether `==` comes next, rather than `!=`.
    fn comparison(&mut self) -> Result<bool, Reason> {
        match (self.takes("=="), self.takes("!=")) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            _ => Err(self.unexpected("`==` or `!=`")),
        }
    }

    /// The name of an entry of the first descriptor.
    fn entry(&mut self) -> Result<String, Reason> {
        let first = self.word()?;
        if first == "limit" {
            return Err("what the limit is called cannot be asked".to_owned());
        }
        if first != "descriptors" {
            return self.dotted(first);
        }
        self.index()?;
        if self.takes("[") {
            let name = self.text()?;
            self.expect("]")?;
            return Ok(name);
        }
        self.expect(".")?;
        self.word()
    }

    /// Before 2.0 a name could have dots in it; the last word before a `(` is a method.
    fn dotted(&mut self, first: String) -> Result<String, Reason> {
        let mut name = first;
        while let [Token::Sign("."), Token::Word(word), rest @ ..] = self.left
            && rest.first() != Some(&Token::Sign("("))
        {
            name.extend([".", word]);
            self.left = rest;
        }
        Ok(name)
    }

    fn first_descriptor(&mut self) -> Result<(), Reason> {
        match self.word()?.as_str() {
            "descriptors" => self.index(),
            other => Err(format!("`{other}` has no equivalent")),
        }
    }

    fn index(&mut self) -> Result<(), Reason> {
        self.expect("[")?;
        let index = self.word()?;
        self.expect("]")?;
        match index.as_str() {
            "0" => Ok(()),
            _ => {
                Err("rules look at each descriptor by itself, and this asks for another one"
                    .to_owned())
            }
        }
    }

    fn texts(&mut self) -> Result<Vec<String>, Reason> {
        self.expect("[")?;
        let mut texts = vec![self.text()?];
        while self.takes(",") {
            texts.push(self.text()?);
        }
        self.expect("]")?;
        Ok(texts)
    }

    fn text(&mut self) -> Result<String, Reason> {
        let [Token::Text(text), rest @ ..] = self.left else {
            return Err(self.unexpected("a text in quotes"));
        };
        self.left = rest;
        Ok(text.clone())
    }

    fn word(&mut self) -> Result<String, Reason> {
        let [Token::Word(word), rest @ ..] = self.left else {
            return Err(self.unexpected("a name"));
        };
        self.left = rest;
        Ok(word.clone())
    }

    fn takes(&mut self, sign: &str) -> bool {
        let here = match self.left.first() {
            Some(Token::Sign(own)) => *own == sign,
            Some(Token::Word(word)) => sign == "in" && word == "in",
            _ => false,
        };
        self.left = &self.left[usize::from(here)..];
        here
    }

    fn expect(&mut self, sign: &str) -> Result<(), Reason> {
        if self.takes(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn end(&self) -> Result<(), Reason> {
        if self.left.is_empty() { Ok(()) } else { Err(self.unexpected("the end, or `&&`")) }
    }

    fn unexpected(&self, wanted: &str) -> Reason {
        match self.left.first() {
            Some(token) => format!("{token} stands where only {wanted} is understood"),
            None => format!("it ends where {wanted} should follow"),
        }
    }
}

fn compared(equal: bool, text: String) -> Claim {
    if equal { Claim::Is(vec![text]) } else { Claim::Not(text) }
}

#[cfg(test)]
mod tests;
