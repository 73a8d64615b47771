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
mod match_section;
mod rule;
mod subjects;

use crate::condition::EndpointPattern;
use crate::decode::{Diagnostics, Field, FieldMap};
use crate::diagnostic::{DocumentError, FieldError};
use crate::path_normalization::PathNormalization;
use crate::secrets::SecretSpans;
use crate::yaml::{self, SourceSpan, YamlNode, YamlValue};
pub(crate) use facts::FactReference;
use facts::RuleOrigin;
pub use facts::{FactDeclarations, UnsuppliedFact};
use identity::{IdentityConfig, IdentitySpans, KeyText, UserIdentity};
pub(crate) use rule::ParsedRule;
use rule::RuleDefaults;
pub(crate) use subjects::DocumentSubject;

/// The largest document that is read.
pub const MAX_DOCUMENT_BYTES: usize = yaml::MAX_BYTES;

/// The file name that shorthand limits of the command line are reported under.
const COMMAND_LINE: &str = "--limit";

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) span: SourceSpan,
}

/// A document as typed.
#[derive(Clone, Debug, Default)]
pub struct Document {
    file: String,
    source: String,
    identity: IdentityConfig,
    identity_spans: IdentitySpans,
    /// Why the key for tokens is of no use.
    key_error: Option<FieldError>,
    /// Facts that callers of the APIs bring.
    facts: Vec<String>,
    declared: FactDeclarations,
    subjects: Vec<DocumentSubject>,
    endpoints: Vec<EndpointPattern>,
    paths: PathNormalization,
    rules: Vec<ParsedRule>,
    shorthands: Vec<String>,
    server: Option<YamlNode>,
    /// What no problem may quote.
    secrets: SecretSpans,
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(file: &str, source: &str) -> Result<Self, DocumentError> {
        let declared = FactDeclarations::default();
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
        declared: &FactDeclarations,
        read_server: impl FnOnce(Option<Field<'_>>) -> T,
    ) -> Result<(Self, T), DocumentError> {
        let diagnostics = Diagnostics::new(file, source);
        let root = match is_toml(source) {
            true => {
                let error = FieldError::new("this is TOML, and a document is YAML or JSON");
                let hint = "`rules:` and below it `- { id: a, limit: 10/s by ip }` for each rule";
                diagnostics.report(
                    SourceSpan { line: 1, column: 1, width: 1 },
                    "",
                    error.with_hint(hint),
                );
                None
            }
            false => yaml::parse(source, &diagnostics).filter(|root| !root.is_null()),
        };
        let mut document =
            Self { file: file.to_owned(), source: source.to_owned(), ..Self::default() };
        let mut server = None;
        if let Some(fields) = root.as_ref().and_then(|root| root_fields(root, &diagnostics)) {
            server = document.read(fields);
        }
        document.apply_declarations(declared);
        document.server = server.as_ref().map(|field| field.node().clone());
        let served = read_server(server);
        if !diagnostics.is_empty() {
            document.check(&diagnostics);
        }
        document.secrets = diagnostics.secrets();
        diagnostics.finish()?;
        Ok((document, served))
    }

    /// A document of shorthand limits such as `100/min by ip burst 20`, one rule each.
    ///
    /// # Errors
    /// Everything that is wrong with them, at once, under the file name `--limit`.
    pub fn from_shorthands<S: AsRef<str>>(texts: &[S]) -> Result<Self, DocumentError> {
        let mut document = Self { file: COMMAND_LINE.to_owned(), ..Self::default() };
        document.push_shorthands(texts)?;
        Ok(document)
    }

    /// Adds shorthand limits after the rules of the document.
    ///
    /// # Errors
    /// Everything that is wrong with them, at once, under the file name `--limit`.
    pub fn push_shorthands<S: AsRef<str>>(&mut self, texts: &[S]) -> Result<(), DocumentError> {
        let lines: Vec<String> =
            texts.iter().map(|text| text.as_ref().replace(['\r', '\n'], " ")).collect();
        let source = lines.join("\n");
        let diagnostics = Diagnostics::new(COMMAND_LINE, &source);
        let nodes: Vec<YamlNode> =
            (1..).zip(&lines).map(|(line, text)| shorthand_node(line, text)).collect();
        let fields = (0_usize..).zip(&nodes).map(|(at, node)| {
            let path = if nodes.len() == 1 { String::new() } else { format!("[{at}]") };
            Field::new(node, path, &diagnostics)
        });
        let rules: Vec<_> =
            fields.filter_map(|field| rule::read(&field, &RuleDefaults::default())).collect();
        self.check_facts(&rules, RuleOrigin::CommandLine, &diagnostics);
        diagnostics.finish()?;
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
    pub const fn server(&self) -> Option<&YamlNode> {
        self.server.as_ref()
    }

    /// How requests become facts.
    #[must_use]
    pub const fn identity(&self) -> &IdentityConfig {
        &self.identity
    }

    /// The file with the key that tokens are checked with, as typed. Files are not read here:
    /// somebody [puts the key in](Self::set_key).
    #[must_use]
    pub fn key_file(&self) -> Option<&str> {
        match &self.identity.user_id {
            Some(UserIdentity::Jwt(jwt)) => Some(&jwt.key_file),
            _ => None,
        }
    }

    /// Puts in what is in that file.
    pub fn set_key(&mut self, text: &str) {
        if let Some(UserIdentity::Jwt(jwt)) = &mut self.identity.user_id {
            jwt.key = Some(KeyText::new(text));
        }
    }

    /// Says that the key is of no use, which is told with all else that is wrong.
    pub fn set_key_error(&mut self, why: FieldError) {
        self.key_error = Some(why);
    }

    /// Where to note what is wrong with the document as a whole.
    pub(crate) fn diagnostics(&self) -> Diagnostics<'_> {
        let diagnostics = Diagnostics::new(&self.file, &self.source);
        diagnostics.redact_secrets(self.secrets.clone());
        diagnostics
    }

    pub(crate) fn subjects(&self) -> &[DocumentSubject] {
        &self.subjects
    }

    pub(crate) fn endpoints(&self) -> &[EndpointPattern] {
        &self.endpoints
    }

    pub(crate) const fn paths(&self) -> PathNormalization {
        self.paths
    }

    pub(crate) fn rules(&self) -> &[ParsedRule] {
        &self.rules
    }

    /// The rules that are in the text, without limits of the command line.
    fn document_rules(&self) -> &[ParsedRule] {
        &self.rules[..self.rules.len() - self.shorthands.len()]
    }

    /// What the command line declared.
    #[must_use]
    pub const fn declared(&self) -> &FactDeclarations {
        &self.declared
    }

    /// The limits in shorthand that were added after the rules.
    #[must_use]
    pub fn shorthands(&self) -> &[String] {
        &self.shorthands
    }

    /// Reads every section but `server`, which it hands back.
    fn read<'a>(&mut self, mut fields: FieldMap<'a>) -> Option<Field<'a>> {
        if let Some(field) = fields.take("identity") {
            (self.identity, self.identity_spans) = identity::read(&field);
        }
        if let Some(list) = fields.take("subjects").and_then(|field| field.list()) {
            let by = self.identity.tier.as_ref().and_then(|tier| tier.subject.as_deref());
            self.subjects = list.iter().filter_map(|field| subjects::read(field, by)).collect();
        }
        if let Some(list) = fields.take("endpoints").and_then(|field| field.list()) {
            let read = |field: &Field<'_>| {
                field.ok_or_report(EndpointPattern::parse(field.non_empty_text()?))
            };
            self.endpoints = list.iter().filter_map(read).collect();
        }
        if let Some(field) = fields.take("paths") {
            self.paths = read_paths(&field);
        }
        if let Some(field) = fields.take("facts") {
            self.facts = facts::read(&field);
        }
        let defaults = RuleDefaults::read(&mut fields);
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

fn read_paths(field: &Field<'_>) -> PathNormalization {
    let Some(mut fields) = field.fields() else { return PathNormalization::default() };
    let mut flag = |name| fields.take(name).and_then(|field| field.boolean()).unwrap_or(false);
    let (ignore_case, strip_parameters) = (flag("ignore_case"), flag("strip_parameters"));
    fields.finish();
    PathNormalization { ignore_case, strip_parameters }
}

fn root_fields<'a>(root: &'a YamlNode, diagnostics: &'a Diagnostics<'a>) -> Option<FieldMap<'a>> {
    if matches!(root.value, YamlValue::Map(_)) {
        return Field::new(root, "", diagnostics).fields();
    }
    let error = FieldError::new("a document is a mapping")
        .with_hint("`rules:` and the list of rules below it");
    diagnostics.report(root.span, "", error);
    None
}

fn shorthand_node(line: usize, text: &str) -> YamlNode {
    let span = SourceSpan { line, column: 1, width: text.chars().count() };
    YamlNode {
        value: YamlValue::Scalar { text: text.to_owned(), quoted: false },
        span,
        last_line: line,
    }
}
