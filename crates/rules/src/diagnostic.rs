//! What is wrong with a document: where, what was found, and what to write instead.
//!
//! This only describes and prints problems; finding them is the business of the readers.

use std::fmt;

/// One thing that is wrong, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The line, from 1; 0 when the whole document is meant.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The field as a path, such as `rules[2].limit.window`; empty for the document itself.
    pub field: String,
    /// What stands there.
    pub found: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
    /// The source around the place.
    pub excerpt: Option<SourceExcerpt>,
}

/// A piece of one source line, made safe to print, and which part of it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceExcerpt {
    /// The text, control characters replaced and long lines cut.
    pub text: String,
    /// How many characters precede the place.
    pub before: usize,
    /// How many characters the place has.
    pub width: usize,
}

/// Everything that is wrong with a document, in the order of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// The file as the user named it.
    pub file: String,
    /// The problems.
    pub list: Vec<Diagnostic>,
    /// How many more there are than the list keeps.
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

/// How many places are listed.
const MAX_LISTED_LOCATIONS: usize = 5;

impl DocumentError {
    /// How many there are and where, and nothing of what stands there.
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

/// What is wrong with a piece of text, before it is known where that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub(crate) message: String,
    pub(crate) found: Option<String>,
    pub(crate) hint: Option<String>,
}

/// Longer texts are cut before they are shown.
const MAX_SHOWN_CHARS: usize = 60;

impl FieldError {
    /// What is wrong.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), found: None, hint: None }
    }

    /// What stands there.
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

/// Text that is safe and short enough to print.
pub(crate) fn shorten(text: &str) -> String {
    let mut cut: String = text.chars().take(MAX_SHOWN_CHARS).map(sanitize_char).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        cut.push('…');
    }
    cut
}

/// A terminal must not obey what a document says.
pub(crate) fn sanitize_char(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{FFFD}',
        // Marks that reorder text could show something other than what is read.
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => '\u{FFFD}',
        c => c,
    }
}
