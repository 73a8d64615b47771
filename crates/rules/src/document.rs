//! A rules document as it was typed, its fields read and each value checked on its own.
//!
//! What needs several values at once (duplicate ids, conditions that exclude each other) is in
//! `check`; it also runs on what is left of a faulty document, so that all problems come at once.

mod check;
mod cost;
mod descriptor;
mod facts;
pub mod identity;
mod key_by;
mod limit;
mod matches;
mod rule;
mod subjects;

use crate::condition::Pattern;
use crate::decode::{Field, Fields, Findings};
use crate::paths::Paths;
use crate::problem::{Problems, Remark};
use crate::secrets::Secrets;
use crate::yaml::{self, Node, Span, Value};
pub(crate) use facts::NamedFact;
use facts::Place;
pub use facts::{Declarations, UnsuppliedFact};
use identity::{Identity, KeyText, Places, UserIdentity};
use rule::Defaults;
pub(crate) use rule::TypedRule;
pub(crate) use subjects::Subject;

/// The largest document that is read.
pub const MAX_DOCUMENT_BYTES: usize = yaml::MAX_BYTES;

/// The file name that shorthand limits of the command line are reported under.
const COMMAND_LINE: &str = "--limit";

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

/// A document as typed.
#[derive(Clone, Debug, Default)]
pub struct Document {
    file: String,
    source: String,
    identity: Identity,
    places: Places,
    /// Why the key for tokens is of no use.
    key_fault: Option<Remark>,
    /// Facts that callers of the APIs bring.
    facts: Vec<String>,
    declared: Declarations,
    subjects: Vec<Subject>,
    endpoints: Vec<Pattern>,
    paths: Paths,
    rules: Vec<TypedRule>,
    shorthands: Vec<String>,
    server: Option<Node>,
    /// What no problem may quote.
    secrets: Secrets,
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(file: &str, source: &str) -> Result<Self, Problems> {
        let declared = Declarations::default();
        Self::parse_with(file, source, &declared, |_| ()).map(|(document, ())| document)
    }

    /// Reads a document with what the command line declares, and its `server` section with a reader
    /// of the caller's, so that the problems of both come at once.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse_with<T>(
        file: &str,
        source: &str,
        declared: &Declarations,
        read_server: impl FnOnce(Option<Field<'_>>) -> T,
    ) -> Result<(Self, T), Problems> {
        let findings = Findings::new(file, source);
        let root = match is_toml(source) {
            true => {
                let remark = Remark::new("this is TOML, and a document is YAML or JSON");
                let hint = "`rules:` and below it `- { id: a, limit: 10/s by ip }` for each rule";
                findings.note(Span { line: 1, column: 1, width: 1 }, "", remark.write(hint));
                None
            }
            false => yaml::parse(source, &findings).filter(|root| !root.is_null()),
        };
        let mut document =
            Self { file: file.to_owned(), source: source.to_owned(), ..Self::default() };
        let mut server = None;
        if let Some(fields) = root.as_ref().and_then(|root| top(root, &findings)) {
            server = document.read(fields);
        }
        document.declare(declared);
        document.server = server.as_ref().map(|field| field.node().clone());
        let served = read_server(server);
        if !findings.is_empty() {
            document.check(&findings);
        }
        document.secrets = findings.secrets();
        findings.finish()?;
        Ok((document, served))
    }

    /// A document of shorthand limits such as `100/min by ip burst 20`, one rule each.
    ///
    /// # Errors
    /// Everything that is wrong with them, at once, under the file name `--limit`.
    pub fn from_shorthands<S: AsRef<str>>(texts: &[S]) -> Result<Self, Problems> {
        let mut document = Self { file: COMMAND_LINE.to_owned(), ..Self::default() };
        document.push_shorthands(texts)?;
        Ok(document)
    }

    /// Adds shorthand limits after the rules of the document.
    ///
    /// # Errors
    /// Everything that is wrong with them, at once, under the file name `--limit`.
    pub fn push_shorthands<S: AsRef<str>>(&mut self, texts: &[S]) -> Result<(), Problems> {
        let lines: Vec<String> =
            texts.iter().map(|text| text.as_ref().replace(['\r', '\n'], " ")).collect();
        let source = lines.join("\n");
        let findings = Findings::new(COMMAND_LINE, &source);
        let nodes: Vec<Node> = (1..).zip(&lines).map(|(line, text)| typed(line, text)).collect();
        let fields = (0_usize..).zip(&nodes).map(|(at, node)| {
            let path = if nodes.len() == 1 { String::new() } else { format!("[{at}]") };
            Field::new(node, path, &findings)
        });
        let rules: Vec<_> =
            fields.filter_map(|field| rule::read(&field, &Defaults::default())).collect();
        self.check_facts(&rules, Place::CommandLine, &findings);
        findings.finish()?;
        self.rules.extend(rules);
        self.shorthands.extend(lines);
        Ok(())
    }

    /// The file as the user named it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The `server` section, which is not read here.
    #[must_use]
    pub const fn server(&self) -> Option<&Node> {
        self.server.as_ref()
    }

    /// How requests become facts.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The file with the key that tokens are checked with, as typed. Files are not read here:
    /// somebody [puts the key in](Self::put_key).
    #[must_use]
    pub fn key_file(&self) -> Option<&str> {
        match &self.identity.user_id {
            Some(UserIdentity::Jwt(jwt)) => Some(&jwt.key_file),
            _ => None,
        }
    }

    /// Puts in what is in that file.
    pub fn put_key(&mut self, text: &str) {
        if let Some(UserIdentity::Jwt(jwt)) = &mut self.identity.user_id {
            jwt.key = Some(KeyText::new(text));
        }
    }

    /// Says that the key is of no use, which is told with all else that is wrong.
    pub fn refuse_key(&mut self, why: Remark) {
        self.key_fault = Some(why);
    }

    /// Where to note what is wrong with the document as a whole.
    pub(crate) fn findings(&self) -> Findings<'_> {
        let findings = Findings::new(&self.file, &self.source);
        findings.hide(self.secrets.clone());
        findings
    }

    pub(crate) fn subjects(&self) -> &[Subject] {
        &self.subjects
    }

    pub(crate) fn endpoints(&self) -> &[Pattern] {
        &self.endpoints
    }

    pub(crate) const fn paths(&self) -> Paths {
        self.paths
    }

    pub(crate) fn rules(&self) -> &[TypedRule] {
        &self.rules
    }

    /// The rules that are in the text, without limits of the command line.
    fn own_rules(&self) -> &[TypedRule] {
        &self.rules[..self.rules.len() - self.shorthands.len()]
    }

    /// What the command line declared.
    #[must_use]
    pub const fn declared(&self) -> &Declarations {
        &self.declared
    }

    /// The limits in shorthand that were added after the rules.
    #[must_use]
    pub fn shorthands(&self) -> &[String] {
        &self.shorthands
    }

    /// Reads every section but `server`, which it hands back.
    fn read<'a>(&mut self, mut fields: Fields<'a>) -> Option<Field<'a>> {
        if let Some(field) = fields.take("identity") {
            (self.identity, self.places) = identity::read(&field);
        }
        if let Some(list) = fields.take("subjects").and_then(|field| field.list()) {
            let by = self.identity.tier.as_ref().and_then(|tier| tier.subject.as_deref());
            self.subjects = list.iter().filter_map(|field| subjects::read(field, by)).collect();
        }
        if let Some(list) = fields.take("endpoints").and_then(|field| field.list()) {
            let read = |field: &Field<'_>| field.accept(Pattern::parse(field.word()?));
            self.endpoints = list.iter().filter_map(read).collect();
        }
        if let Some(field) = fields.take("paths") {
            self.paths = read_paths(&field);
        }
        if let Some(field) = fields.take("facts") {
            self.facts = facts::read(&field);
        }
        let defaults = Defaults::read(&mut fields);
        if let Some(list) = fields.take("rules").and_then(|field| field.list()) {
            self.rules = list.iter().filter_map(|field| rule::read(field, &defaults)).collect();
        }
        let server = fields.take("server");
        fields.finish();
        server
    }
}

/// Whether a text begins as TOML does, with a table or `name = value`. No document in YAML does.
fn is_toml(source: &str) -> bool {
    let mut lines = source.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    let is_name = |text: &str| {
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-\"".contains(&byte);
        !text.is_empty() && text.bytes().all(may_be)
    };
    let table = first.split('#').next().unwrap_or_default().trim_end();
    let table = table.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let table = table.map(|name| name.strip_prefix('[').unwrap_or(name));
    let table = table.map(|name| name.strip_suffix(']').unwrap_or(name).trim());
    let value = first.split_once('=').filter(|(_, value)| !value.contains(": "));
    table.is_some_and(is_name) || value.is_some_and(|(name, _)| is_name(name.trim_end()))
}

fn read_paths(field: &Field<'_>) -> Paths {
    let Some(mut fields) = field.fields() else { return Paths::default() };
    let mut flag = |name| fields.take(name).and_then(|field| field.boolean()).unwrap_or(false);
    let (ignore_case, strip_parameters) = (flag("ignore_case"), flag("strip_parameters"));
    fields.finish();
    Paths { ignore_case, strip_parameters }
}

fn top<'a>(root: &'a Node, findings: &'a Findings<'a>) -> Option<Fields<'a>> {
    if matches!(root.value, Value::Map(_)) {
        return Field::new(root, "", findings).fields();
    }
    let remark =
        Remark::new("a document is a mapping").write("`rules:` and the list of rules below it");
    findings.note(root.span, "", remark);
    None
}

fn typed(line: usize, text: &str) -> Node {
    let span = Span { line, column: 1, width: text.chars().count() };
    Node { value: Value::Scalar { text: text.to_owned(), quoted: false }, span, last_line: line }
}
