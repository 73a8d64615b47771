//! Errors of a document: the location, what was found, and what to write instead.
//!
//! This module only describes and prints errors. The readers detect them.

use std::fmt;

/// One error and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The line, from 1; 0 if the error concerns the whole document.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The field as a path, such as `rules[2].limit.window`; empty for the document itself.
    pub field: String,
    /// The text found there.
    pub found: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
    /// The source around the location.
    pub excerpt: Option<SourceExcerpt>,
}

/// A part of one source line, safe to print, with the marked range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceExcerpt {
    /// The text, with control characters replaced and long lines cut.
    pub text: String,
    /// Number of characters before the marked range.
    pub before: usize,
    /// Number of characters in the marked range.
    pub width: usize,
}

impl SourceExcerpt {
    /// Removes the text after this many characters from the start of the marked range.
    pub(crate) fn truncate_marked(self, shown: usize) -> Self {
        let text: String = self.text.chars().take(self.before + shown).collect();
        if text == self.text {
            return self;
        }
        Self { text: format!("{} …", text.trim_end()), width: self.width.min(shown), ..self }
    }
}

/// All errors of a document, in the order of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// The file as the user named it.
    pub file: String,
    /// The errors.
    pub list: Vec<Diagnostic>,
    /// Number of further errors that the list does not contain.
    pub omitted: usize,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            problem.render(&self.file, f)?;
            writeln!(f)?;
        }
        let count = self.list.len() + self.omitted;
        write!(f, "{count} problem{} in {}", if count == 1 { "" } else { "s" }, self.file)?;
        if self.omitted > 0 {
            write!(f, ", the first {} shown", self.list.len())?;
        }
        writeln!(f)
    }
}

impl std::error::Error for DocumentError {}

/// Maximum number of locations in [`DocumentError::locations`].
const MAX_LISTED_LOCATIONS: usize = 5;

impl DocumentError {
    /// The locations of the errors, without any content of the document.
    #[must_use]
    pub fn locations(&self) -> String {
        let place = |problem: &Diagnostic| match (problem.line, problem.field.as_str()) {
            (0, _) => "the document as a whole".to_owned(),
            (line, "") => format!("line {line}"),
            (line, field) => format!("line {line} ({field})"),
        };
        let places: Vec<String> = self.list.iter().take(MAX_LISTED_LOCATIONS).map(place).collect();
        let more = (self.list.len() + self.omitted).saturating_sub(places.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", places.join(", "))
    }
}

impl Diagnostic {
    fn render(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {file}")?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(found) = &self.found {
            write!(f, ", found `{found}`")?;
        }
        writeln!(f)?;
        let margin = self.line.to_string().len();
        if let Some(excerpt) = &self.excerpt {
            writeln!(f, " {:margin$} |", "")?;
            writeln!(f, " {} | {}", self.line, excerpt.text)?;
            let carets = "^".repeat(excerpt.width.max(1));
            writeln!(f, " {:margin$} | {:before$}{carets}", "", "", before = excerpt.before)?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, " {:margin$} = write: {hint}", "")?;
        }
        Ok(())
    }
}

/// An error in a value, without its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub(crate) message: String,
    pub(crate) found: Option<String>,
    pub(crate) hint: Option<String>,
}

/// Maximum length of quoted text.
const MAX_SHOWN_CHARS: usize = 60;

impl FieldError {
    /// What is wrong.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), found: None, hint: None }
    }

    /// The text found there.
    #[must_use]
    pub fn with_found(mut self, found: &str) -> Self {
        self.found = Some(shorten(found));
        self
    }

    /// What to write instead.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Makes text short enough and safe to print.
pub(crate) fn shorten(text: &str) -> String {
    let mut cut: String = text.chars().take(MAX_SHOWN_CHARS).map(sanitize_char).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        cut.push('…');
    }
    cut
}

/// Replaces characters that could control a terminal.
pub(crate) fn sanitize_char(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{FFFD}',
        // Bidirectional control characters could make the text look different from its content.
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => '\u{FFFD}',
        c => c,
    }
}
