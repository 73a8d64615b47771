//! A rules document as written, with its fields decoded and each value checked on its own.
//!
//! Checks across several values (duplicate ids, contradictory conditions) are in `check`. They also
//! run on the valid parts of a faulty document, so that all errors are reported at once.

mod check;
mod consistency;
mod cost;
mod descriptor;
mod facts;
pub mod identity;
mod key_by;
mod limit;
mod match_section;
mod regions;
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

/// Maximum size of a document.
pub const MAX_DOCUMENT_BYTES: usize = yaml::MAX_BYTES;

/// The file name in errors of `--limit` options.
const COMMAND_LINE: &str = "--limit";

/// A value and its location.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) span: SourceSpan,
}

/// A document as written.
#[derive(Clone, Debug, Default)]
pub struct Document {
    file: String,
    source: String,
    identity: IdentityConfig,
    identity_spans: IdentitySpans,
    /// Why the key that verifies tokens is unusable.
    key_error: Option<FieldError>,
    /// Facts that API callers send.
    facts: Vec<String>,
    declared: FactDeclarations,
    /// The region of this node.
    region: Option<String>,
    subjects: Vec<DocumentSubject>,
    endpoints: Vec<EndpointPattern>,
    paths: PathNormalization,
    rules: Vec<ParsedRule>,
    shorthands: Vec<String>,
    server: Option<YamlNode>,
    /// Locations that errors must not quote.
    secrets: SecretSpans,
}

impl Document {
    /// Parses a document.
    ///
    /// # Errors
    /// All errors of the document.
    pub fn parse(file: &str, source: &str) -> Result<Self, DocumentError> {
        let declared = FactDeclarations::default();
        Self::parse_with(file, source, &declared, |_| ()).map(|(document, ())| document)
    }

    /// Parses a document together with the declarations of the command line. The caller's reader
    /// decodes the `server` section, so that the errors of both are reported at once.
    ///
    /// # Errors
    /// All errors of the document.
    pub fn parse_with<T>(
        file: &str,
        source: &str,
        declared: &FactDeclarations,
        read_server: impl FnOnce(Option<Field<'_>>) -> T,
    ) -> Result<(Self, T), DocumentError> {
        let diagnostics = Diagnostics::new(file, source);
        let root = match is_toml(source) {
            true => {
                let error = FieldError::new("this is TOML; a rules document is YAML or JSON");
                let hint = "`rules:` and below it `- { id: a, limit: 10/s by ip }` for each rule";
                diagnostics.report_unquoted(
                    SourceSpan { line: 1, column: 1, width: 1 },
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

    /// Builds a document from shorthand limits such as `100/min by ip burst 20`, one rule each.
    ///
    /// # Errors
    /// All errors of the limits, under the file name `--limit`.
    pub fn from_shorthands<S: AsRef<str>>(texts: &[S]) -> Result<Self, DocumentError> {
        let mut document = Self { file: COMMAND_LINE.to_owned(), ..Self::default() };
        document.push_shorthands(texts)?;
        Ok(document)
    }

    /// Appends shorthand limits to the rules of the document.
    ///
    /// # Errors
    /// All errors of the limits, under the file name `--limit`.
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

    /// The source text.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The `server` section, which this crate does not decode.
    #[must_use]
    pub const fn server(&self) -> Option<&YamlNode> {
        self.server.as_ref()
    }

    /// How facts are extracted from requests.
    #[must_use]
    pub const fn identity(&self) -> &IdentityConfig {
        &self.identity
    }

    /// The path of the file with the key that verifies tokens, as written. This crate does not read
    /// files: the caller passes the content to [`set_key`](Self::set_key).
    #[must_use]
    pub fn key_file(&self) -> Option<&str> {
        match &self.identity.user_id {
            Some(UserIdentity::Jwt(jwt)) => Some(&jwt.key_file),
            _ => None,
        }
    }

    /// Sets the content of the key file.
    pub fn set_key(&mut self, text: &str) {
        if let Some(UserIdentity::Jwt(jwt)) = &mut self.identity.user_id {
            jwt.key = Some(KeyText::new(text));
        }
    }

    /// Records that the key is unusable, to be reported with the other errors of the document.
    pub fn set_key_error(&mut self, why: FieldError) {
        self.key_error = Some(why);
    }

    /// A collection for errors that concern the whole document.
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

    /// The rules in the source text, without the limits of the command line.
    fn document_rules(&self) -> &[ParsedRule] {
        &self.rules[..self.rules.len() - self.shorthands.len()]
    }

    /// The declarations of the command line.
    #[must_use]
    pub const fn declared(&self) -> &FactDeclarations {
        &self.declared
    }

    /// The shorthand limits that were appended to the rules.
    #[must_use]
    pub fn shorthands(&self) -> &[String] {
        &self.shorthands
    }

    /// Decodes all sections except `server`, which it returns.
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

/// Whether the text begins like TOML, with a table or `name = value`. No YAML document does.
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
    let error = FieldError::new("a rules document is a mapping")
        .with_hint("`rules:` and the list of rules below it");
    diagnostics.report_unquoted(root.span, error);
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
