//! Parses YAML, and therefore JSON, into a tree in which every node has its location.
//!
//! Scalars stay text: the reader of a field decides whether `10` is a number. Size, depth and alias
//! expansion are limited, so that a hostile document cannot exhaust memory or the stack.

mod quote;

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput};

use crate::decode::Diagnostics;
use crate::diagnostic::FieldError;
use crate::secrets::SecretSpans;

pub use quote::quote_scalar;

/// Maximum size of a document.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Maximum nesting depth of lists and mappings.
const MAX_DEPTH: usize = 64;

/// Maximum number of nodes that aliases may add: `&a`/`*a` is meant for sharing a few settings.
const MAX_ALIASED_NODES: usize = 20_000;

/// Maximum text that aliases may add. Otherwise one long text could be repeated 20,000 times.
const MAX_ALIASED_BYTES: usize = MAX_BYTES;

/// A location in the source: line and column from 1, width in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceSpan {
    /// The line, from 1; 0 for the whole document.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Number of characters in that line.
    pub width: usize,
}

/// A value with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlNode {
    /// The value.
    pub value: YamlValue,
    /// The location.
    pub span: SourceSpan,
    /// The line on which a scalar ends; for a list or mapping, the line on which it begins.
    pub last_line: usize,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum YamlValue {
    /// Text as written, without quotes.
    Scalar {
        /// The text.
        text: String,
        /// Whether it was quoted or a block, and is therefore always text.
        quoted: bool,
    },
    /// A list.
    List(Vec<YamlNode>),
    /// A mapping, in the order of the source, without duplicate names.
    Map(Vec<YamlEntry>),
}

/// One field of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlEntry {
    /// The name.
    pub name: String,
    /// The location of the name.
    pub name_span: SourceSpan,
    /// The value.
    pub node: YamlNode,
}

impl YamlNode {
    /// Whether the node is `null`, `~` or empty.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match &self.value {
            YamlValue::Scalar { text, quoted: false } => {
                matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// The size of the node and everything below it.
    fn extent(&self) -> NodeExtent {
        let mut extent = NodeExtent { nodes: 1, bytes: 0, depth: 0 };
        match &self.value {
            YamlValue::Scalar { text, .. } => extent.bytes = text.len(),
            YamlValue::List(items) => items.iter().for_each(|node| extent.include(node)),
            YamlValue::Map(entries) => entries.iter().for_each(|entry| {
                extent.bytes += entry.name.len();
                extent.include(&entry.node);
            }),
        }
        extent
    }
}

/// The number of nodes, the length of their text, and their nesting depth.
#[derive(Clone, Copy)]
struct NodeExtent {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

impl NodeExtent {
    fn include(&mut self, node: &YamlNode) {
        let Self { nodes, bytes, depth } = node.extent();
        self.nodes += nodes;
        self.bytes += bytes;
        self.depth = self.depth.max(depth + 1);
    }
}

/// Parses a document. Returns `None` for an empty one. Errors are reported to `diagnostics`, and
/// the valid parts are returned.
pub fn parse(source: &str, diagnostics: &Diagnostics<'_>) -> Option<YamlNode> {
    if source.len() > MAX_BYTES {
        let error = FieldError::new(format!("the document is larger than {MAX_BYTES} bytes"))
            .with_found(&format!("{} bytes", source.len()))
            .with_hint("fewer rules, with lists or globs in `match`");
        diagnostics.report(SourceSpan::default(), "", error);
        return None;
    }
    let source = source.strip_prefix('\u{FEFF}').unwrap_or(source);
    if let Some(at) = source.find('\0') {
        let line = source[..at].matches('\n').count() + 1;
        let column = source[..at].chars().rev().take_while(|c| *c != '\n').count() + 1;
        let error =
            FieldError::new("a document must not contain a NUL byte").with_hint("UTF-8 text");
        diagnostics.report_unquoted(SourceSpan { line, column, width: 1 }, error);
        return None;
    }
    let mut tree = YamlTreeBuilder {
        events: Parser::new_from_str(source),
        anchors: HashMap::new(),
        aliased: NodeExtent { nodes: 0, bytes: 0, depth: 0 },
        last_line: 0,
    };
    match tree.parse_document() {
        Ok(root) => root.map(|mut root| {
            diagnostics.redact_secrets(SecretSpans::locate(&root));
            drop_duplicate_fields(&mut root, diagnostics, &mut HashSet::new());
            root
        }),
        Err(YamlError { span, error }) => {
            diagnostics.report_unquoted(span, error);
            None
        }
    }
}

/// Removes duplicate fields of mappings, and reports each once, however many aliases refer to it.
fn drop_duplicate_fields(
    node: &mut YamlNode,
    diagnostics: &Diagnostics<'_>,
    noted: &mut HashSet<(usize, usize)>,
) {
    match &mut node.value {
        YamlValue::Scalar { .. } => {}
        YamlValue::List(items) => {
            items.iter_mut().for_each(|item| drop_duplicate_fields(item, diagnostics, noted));
        }
        YamlValue::Map(entries) => {
            let mut lines: HashMap<String, usize> = HashMap::new();
            entries.retain(|YamlEntry { name, name_span, .. }| {
                let Some(line) = lines.get(name) else {
                    lines.insert(name.clone(), name_span.line);
                    return true;
                };
                if noted.insert((name_span.line, name_span.column)) {
                    let error =
                        FieldError::new(format!("this field is already set on line {line}"));
                    diagnostics.report(
                        *name_span,
                        name,
                        error.with_found(name).with_hint("it once"),
                    );
                }
                false
            });
            entries
                .iter_mut()
                .for_each(|entry| drop_duplicate_fields(&mut entry.node, diagnostics, noted));
        }
    }
}

/// An error that ends the parsing.
struct YamlError {
    span: SourceSpan,
    error: FieldError,
}

impl From<ScanError> for YamlError {
    fn from(scan: ScanError) -> Self {
        let span = to_source_span(saphyr_parser::Span::empty(*scan.marker()));
        if scan.info().contains("recursion limit") {
            return too_deep(span);
        }
        let mut error = FieldError::new(format!("this is not YAML: {}", scan.info()));
        if scan.info().contains("tab") {
            error = error.with_hint("spaces instead of tabs");
        }
        Self { span, error }
    }
}

struct YamlTreeBuilder<'s> {
    events: Parser<'s, StrInput<'s>>,
    anchors: HashMap<usize, YamlNode>,
    aliased: NodeExtent,
    /// The line on which the last event ended.
    last_line: usize,
}

impl<'s> YamlTreeBuilder<'s> {
    fn next_event(&mut self) -> Result<(Event<'s>, SourceSpan), YamlError> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.last_line = span.end.line();
                Ok((event, to_source_span(span)))
            }
            Some(Err(error)) => Err(error.into()),
            None => Ok((Event::StreamEnd, SourceSpan::default())),
        }
    }

    fn parse_document(&mut self) -> Result<Option<YamlNode>, YamlError> {
        let mut root = None;
        loop {
            let (event, span) = self.next_event()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) if root.is_some() => {
                    let error = FieldError::new("a file must contain only one document")
                        .with_hint("one document, without a second `---`");
                    return Err(YamlError { span, error });
                }
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                first => root = Some(self.parse_node(first, span, 0)?),
            }
        }
    }

    fn parse_node(
        &mut self,
        first: Event<'s>,
        span: SourceSpan,
        depth: usize,
    ) -> Result<YamlNode, YamlError> {
        check_depth(depth, span)?;
        let last_line = self.last_line.max(span.line);
        let (value, anchor) = match first {
            Event::Alias(anchor) => return self.resolve_alias(anchor, span, depth),
            Event::Scalar(text, style, anchor, tag) => {
                // `!!str 10` marks a number as text.
                let quoted = style != ScalarStyle::Plain || tag.is_some();
                (YamlValue::Scalar { text: text.into_owned(), quoted }, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.parse_list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.parse_map(depth)?, anchor),
            // The parser emits no other event here; treat one as null.
            _ => (YamlValue::Scalar { text: String::new(), quoted: false }, 0),
        };
        // Mark only the first character of a list or mapping.
        let width = if matches!(value, YamlValue::Scalar { .. }) { span.width } else { 1 };
        let node = YamlNode { value, span: SourceSpan { width, ..span }, last_line };
        if anchor > 0 {
            self.count_aliased(node.extent(), span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn parse_list(&mut self, depth: usize) -> Result<YamlValue, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next_event()? {
                (Event::SequenceEnd, _) => return Ok(YamlValue::List(items)),
                (first, span) => items.push(self.parse_node(first, span, depth + 1)?),
            }
        }
    }

    fn parse_map(&mut self, depth: usize) -> Result<YamlValue, YamlError> {
        let mut entries: Vec<YamlEntry> = Vec::new();
        loop {
            let (first, name_span) = match self.next_event()? {
                (Event::MappingEnd, _) => return Ok(YamlValue::Map(entries)),
                next => next,
            };
            // Reject aliases: the name would be a value from another place, which may be a secret.
            let is_alias = matches!(first, Event::Alias(_));
            let name = match self.parse_node(first, name_span, depth + 1)?.value {
                YamlValue::Scalar { text, .. } if !is_alias => text,
                _ => {
                    let error = FieldError::new("the name of a field must be a word")
                        .with_hint("`name: value`");
                    return Err(YamlError { span: name_span, error });
                }
            };
            let (first, span) = self.next_event()?;
            let node = self.parse_node(first, span, depth + 1)?;
            entries.push(YamlEntry { name, name_span, node });
        }
    }

    fn resolve_alias(
        &mut self,
        anchor: usize,
        span: SourceSpan,
        depth: usize,
    ) -> Result<YamlNode, YamlError> {
        let Some(node) = self.anchors.get(&anchor) else {
            let error = FieldError::new("an alias cannot refer to a value that contains it");
            return Err(YamlError { span, error });
        };
        let extent = node.extent();
        let node = node.clone();
        // Without this check, aliases of aliases could nest deeply enough to overflow the stack.
        check_depth(depth + extent.depth, span)?;
        self.count_aliased(extent, span)?;
        Ok(node)
    }

    fn count_aliased(&mut self, extent: NodeExtent, span: SourceSpan) -> Result<(), YamlError> {
        self.aliased.nodes += extent.nodes;
        self.aliased.bytes += extent.bytes;
        if self.aliased.nodes <= MAX_ALIASED_NODES && self.aliased.bytes <= MAX_ALIASED_BYTES {
            return Ok(());
        }
        let error = FieldError::new("anchors and aliases make the document too large")
            .with_hint("the values themselves, or fewer aliases");
        Err(YamlError { span, error })
    }
}

fn check_depth(depth: usize, span: SourceSpan) -> Result<(), YamlError> {
    if depth <= MAX_DEPTH { Ok(()) } else { Err(too_deep(span)) }
}

fn too_deep(span: SourceSpan) -> YamlError {
    let error = FieldError::new(format!("nested deeper than {MAX_DEPTH} levels"));
    YamlError { span, error: error.with_hint("a flatter document") }
}

fn to_source_span(span: saphyr_parser::Span) -> SourceSpan {
    let (start, end): (Marker, Marker) = (span.start, span.end);
    // Mark only the first character of a value that spans several lines.
    let width = if start.line() == end.line() { end.col().saturating_sub(start.col()) } else { 1 };
    SourceSpan { line: start.line(), column: start.col() + 1, width: width.max(1) }
}
