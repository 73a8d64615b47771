//! From a book to the rules that it makes, and what is wrong with one that makes none.

use std::collections::HashMap;
use std::fmt;

use tidegate_core::time::Timestamp;
use tidegate_rules::problem::{Problem, Problems};
use tidegate_rules::{Records, Rule, RuleSet};

use crate::book::{Book, Kind};
use crate::paper;
use crate::record::{self, Override, Subject};

/// Compiles documents. The server's reads the key of tokens as well, which a book only names.
pub trait Compiles: Send + Sync {
    /// Compiles a document.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn compile(&self, document: &str, files: Files) -> Result<RuleSet, Problems>;
}

/// Which of the files that a document names are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// All: the document is configuration.
    All,
    /// Those that the configuration names already: the document is a request's. Any other is refused,
    /// and the answer does not depend on whether it exists.
    Configured,
    /// None: only the rules are of interest.
    None,
}

/// One thing that is wrong with a book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// What it is wrong with: a rule or an override by its id; nothing for the document.
    pub of: Option<(Kind, String)>,
    /// The field, as a path within that.
    pub field: String,
    /// What stands there.
    pub found: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Flaw {
    /// Something wrong with the document as a whole.
    pub(crate) fn of_document(message: &str) -> Self {
        let (field, message) = (String::new(), message.to_owned());
        Self { of: None, field, found: None, message, hint: None }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((kind, id)) = &self.of {
            write!(f, "{} {id}: ", kind.name())?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if let Some(found) = &self.found {
            write!(f, ", found `{found}`")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "; write {hint}"),
            None => Ok(()),
        }
    }
}

/// The rules that a book makes at an instant, when some overrides may have run out.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(
    book: &Book,
    compiler: &dyn Compiles,
    files: Files,
    now: Timestamp,
) -> Result<RuleSet, Vec<Flaw>> {
    let rules = compile_content(book, compiler, files, now)?;
    Ok(rules.numbered(book.version()))
}

/// The same for a book without versions: its rules have the hash of what they say as theirs.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile_content(
    book: &Book,
    compiler: &dyn Compiles,
    files: Files,
    now: Timestamp,
) -> Result<RuleSet, Vec<Flaw>> {
    let document = paper::document(book);
    let rules = compiler.compile(&document, files).map_err(|problems| flaws(book, problems))?;
    let subjects = book.all(Kind::Subject, None);
    let subjects = subjects.filter_map(|(_, kept)| record::read::<Subject>(&kept.value));
    let overrides: Vec<Override> = overrides(book, now).collect();
    let by_id: HashMap<&str, &Rule> = rules.rules().iter().map(|rule| (rule.id(), rule)).collect();
    let misplaced: Vec<Flaw> =
        overrides.iter().filter_map(|known| misplaced(known, by_id.get(&*known.rule)?)).collect();
    if !misplaced.is_empty() {
        return Err(misplaced);
    }
    let records = Records {
        subjects: subjects.map(|subject| subject.record()).collect(),
        overrides: overrides.iter().map(Override::record).collect(),
    };
    rules.with_records(&records).map_err(|problems| {
        let flaw = |at: usize, message| of_override(&overrides[at], "requests", message);
        problems.into_iter().map(|problem| flaw(problem.at, problem.message)).collect()
    })
}

/// The overrides that have not run out.
fn overrides(book: &Book, now: Timestamp) -> impl Iterator<Item = Override> {
    let all = book.all(Kind::Override, None);
    let known = all.filter_map(|(_, kept)| record::read::<Override>(&kept.value));
    known.filter(move |known| known.until_us.is_none_or(|until| until > now.as_micros()))
}

/// When the next override runs out.
#[must_use]
pub(crate) fn next_expiry(book: &Book, now: Timestamp) -> Option<Timestamp> {
    overrides(book, now).filter_map(|known| known.until_us).min().map(Timestamp::from_micros)
}

/// An override of a rule that meanwhile counts by something else would be nobody's.
fn misplaced(known: &Override, rule: &Rule) -> Option<Flaw> {
    if rule.key_by().eq(known.key_by.iter().map(String::as_str)) {
        return None;
    }
    let (was, is) = (known.key_by.join(", "), rule.key_by().collect::<Vec<_>>().join(", "));
    let message = format!(
        "rule `{}` counts by {is}, and this override is for a key of {was}; remove it first",
        known.rule
    );
    Some(of_override(known, "key", message))
}

fn of_override(known: &Override, field: &str, message: String) -> Flaw {
    let (of, field) = (Some((Kind::Override, known.id())), field.to_owned());
    Flaw { of, field, found: None, message, hint: None }
}

fn flaws(book: &Book, problems: Problems) -> Vec<Flaw> {
    let rules = paper::rules(book);
    problems.list.into_iter().map(|problem| flaw(&rules, problem)).collect()
}

/// A problem of the document, by the rule that it is a problem of.
fn flaw<T>(rules: &[(&str, T)], problem: Problem) -> Flaw {
    let Problem { field, found, message, hint, .. } = problem;
    let within = field.strip_prefix("rules[").and_then(|rest| rest.split_once(']'));
    let rule = within.and_then(|(at, rest)| {
        let (id, _) = rules.get(at.parse::<usize>().ok()?)?;
        Some(((Kind::Rule, (*id).to_owned()), rest.trim_start_matches('.').to_owned()))
    });
    match rule {
        Some((of, field)) => Flaw { of: Some(of), field, found, message, hint },
        None => Flaw { of: None, field, found, message, hint },
    }
}
