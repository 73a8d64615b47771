//! YAML (and so JSON) as a tree in which everything knows where it stands.
//!
//! Scalars stay text: whether `10` is a number is for the reader of the field to say. Size, depth
//! and alias expansion are bounded, so that no document can cost more than it is worth.

mod quote;

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput};

use crate::decode::Findings;
use crate::problem::Remark;
use crate::secrets::Secrets;

pub use quote::quoted;

/// The largest document.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// How deep lists and mappings may nest.
const MAX_DEPTH: usize = 64;

/// How many nodes aliases may add: `&a`/`*a` is for sharing a few settings, not for growing.
const MAX_ALIASED: usize = 20_000;

/// How much text they may add: one long text could otherwise be had twenty thousand times.
const MAX_ALIASED_BYTES: usize = MAX_BYTES;

/// A place in the source: line and column from 1, width in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The line, from 1; 0 when the whole document is meant.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// How many characters of that line.
    pub width: usize,
}

/// A value with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it stands.
    pub span: Span,
    /// The line on which it ends; of a list or mapping, the one on which it begins.
    pub last_line: usize,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text as it was typed, without quotes.
    Scalar {
        /// The text.
        text: String,
        /// Whether it stood in quotes or a block, and so is text whatever it looks like.
        quoted: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order it was typed; no name occurs twice.
    Map(Vec<Entry>),
}

/// One field of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Where the name stands.
    pub name_span: Span,
    /// The value.
    pub node: Node,
}

impl Node {
    /// Whether it says nothing: `null`, `~` or no text at all.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar { text, quoted: false } => {
                matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// How large it is.
    fn extent(&self) -> Extent {
        let mut extent = Extent { nodes: 1, bytes: 0, depth: 0 };
        match &self.value {
            Value::Scalar { text, .. } => extent.bytes = text.len(),
            Value::List(items) => items.iter().for_each(|node| extent.hold(node)),
            Value::Map(entries) => entries.iter().for_each(|entry| {
                extent.bytes += entry.name.len();
                extent.hold(&entry.node);
            }),
        }
        extent
    }
}

/// How many nodes there are, how much text they have, and how deep they nest.
#[derive(Clone, Copy)]
struct Extent {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

impl Extent {
    fn hold(&mut self, node: &Node) {
        let Self { nodes, bytes, depth } = node.extent();
        self.nodes += nodes;
        self.bytes += bytes;
        self.depth = self.depth.max(depth + 1);
    }
}

/// Reads a document; nothing for an empty one. What is wrong goes to `findings`; what can still be
/// understood comes back.
pub fn parse(source: &str, findings: &Findings<'_>) -> Option<Node> {
    if source.len() > MAX_BYTES {
        let remark = Remark::new(format!("the document is larger than {MAX_BYTES} bytes"))
            .found(&format!("{} bytes", source.len()))
            .write("fewer rules, with lists or globs in `match`");
        findings.note(Span::default(), "", remark);
        return None;
    }
    let source = source.strip_prefix('\u{FEFF}').unwrap_or(source);
    if let Some(at) = source.find('\0') {
        let line = source[..at].matches('\n').count() + 1;
        let column = source[..at].chars().rev().take_while(|c| *c != '\n').count() + 1;
        let remark = Remark::new("a NUL byte cannot stand in a document").write("UTF-8 text");
        findings.note_unquoted(Span { line, column, width: 1 }, remark);
        return None;
    }
    let mut tree = Tree {
        events: Parser::new_from_str(source),
        anchors: HashMap::new(),
        aliased: Extent { nodes: 0, bytes: 0, depth: 0 },
        last_line: 0,
    };
    match tree.document() {
        Ok(root) => root.map(|mut root| {
            findings.hide(Secrets::of(&root));
            drop_repeated(&mut root, findings, &mut HashSet::new());
            root
        }),
        Err(Stop { span, remark }) => {
            findings.note_unquoted(span, remark);
            None
        }
    }
}

/// Drops the fields of mappings that are there already, and notes each once, however many aliases
/// lead to it.
fn drop_repeated(node: &mut Node, findings: &Findings<'_>, noted: &mut HashSet<(usize, usize)>) {
    match &mut node.value {
        Value::Scalar { .. } => {}
        Value::List(items) => {
            items.iter_mut().for_each(|item| drop_repeated(item, findings, noted));
        }
        Value::Map(entries) => {
            let mut lines: HashMap<String, usize> = HashMap::new();
            entries.retain(|Entry { name, name_span, .. }| {
                let Some(line) = lines.get(name) else {
                    lines.insert(name.clone(), name_span.line);
                    return true;
                };
                if noted.insert((name_span.line, name_span.column)) {
                    let remark = Remark::new(format!("this field is already set on line {line}"));
                    findings.note(*name_span, name, remark.found(name).write("it once"));
                }
                false
            });
            entries.iter_mut().for_each(|entry| drop_repeated(&mut entry.node, findings, noted));
        }
    }
}

/// A problem after which nothing more can be read.
struct Stop {
    span: Span,
    remark: Remark,
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        let span = span_of(saphyr_parser::Span::empty(*error.marker()));
        if error.info().contains("recursion limit") {
            return too_deep(span);
        }
        let mut remark = Remark::new(format!("this is not YAML: {}", error.info()));
        if error.info().contains("tab") {
            remark = remark.write("spaces instead of tabs");
        }
        Self { span, remark }
    }
}

struct Tree<'s> {
    events: Parser<'s, StrInput<'s>>,
    anchors: HashMap<usize, Node>,
    aliased: Extent,
    /// The line on which the last event ended.
    last_line: usize,
}

impl<'s> Tree<'s> {
    fn next(&mut self) -> Result<(Event<'s>, Span), Stop> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.last_line = span.end.line();
                Ok((event, span_of(span)))
            }
            Some(Err(error)) => Err(error.into()),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Option<Node>, Stop> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) if root.is_some() => {
                    let remark = Remark::new("a file holds one document")
                        .write("one document, without a second `---`");
                    return Err(Stop { span, remark });
                }
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                first => root = Some(self.node(first, span, 0)?),
            }
        }
    }

    fn node(&mut self, first: Event<'s>, span: Span, depth: usize) -> Result<Node, Stop> {
        check_depth(depth, span)?;
        let last_line = self.last_line.max(span.line);
        let (value, anchor) = match first {
            Event::Alias(anchor) => return self.alias(anchor, span, depth),
            Event::Scalar(text, style, anchor, tag) => {
                // `!!str 10` is how YAML says that a number is text.
                let quoted = style != ScalarStyle::Plain || tag.is_some();
                (Value::Scalar { text: text.into_owned(), quoted }, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(depth)?, anchor),
            // The parser has no other event here; should one come, it says nothing.
            _ => (Value::Scalar { text: String::new(), quoted: false }, 0),
        };
        // Of a list or mapping only the first character is marked.
        let width = if matches!(value, Value::Scalar { .. }) { span.width } else { 1 };
        let node = Node { value, span: Span { width, ..span }, last_line };
        if anchor > 0 {
            self.spend(node.extent(), span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (first, span) => items.push(self.node(first, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (first, name_span) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Map(entries)),
                next => next,
            };
            // An alias would name a field by a value from elsewhere, which may be a secret.
            let is_alias = matches!(first, Event::Alias(_));
            let name = match self.node(first, name_span, depth + 1)?.value {
                Value::Scalar { text, .. } if !is_alias => text,
                _ => {
                    let remark =
                        Remark::new("the name of a field must be a word").write("`name: value`");
                    return Err(Stop { span: name_span, remark });
                }
            };
            let (first, span) = self.next()?;
            let node = self.node(first, span, depth + 1)?;
            entries.push(Entry { name, name_span, node });
        }
    }

    fn alias(&mut self, anchor: usize, span: Span, depth: usize) -> Result<Node, Stop> {
        let Some(node) = self.anchors.get(&anchor) else {
            let remark = Remark::new("an alias cannot stand inside what it names");
            return Err(Stop { span, remark });
        };
        let extent = node.extent();
        let node = node.clone();
        // Without this, aliases of aliases could nest deeper than a stack can follow.
        check_depth(depth + extent.depth, span)?;
        self.spend(extent, span)?;
        Ok(node)
    }

    fn spend(&mut self, extent: Extent, span: Span) -> Result<(), Stop> {
        self.aliased.nodes += extent.nodes;
        self.aliased.bytes += extent.bytes;
        if self.aliased.nodes <= MAX_ALIASED && self.aliased.bytes <= MAX_ALIASED_BYTES {
            return Ok(());
        }
        let remark = Remark::new("anchors and aliases make the document too large")
            .write("the values themselves, or fewer aliases");
        Err(Stop { span, remark })
    }
}

fn check_depth(depth: usize, span: Span) -> Result<(), Stop> {
    if depth <= MAX_DEPTH { Ok(()) } else { Err(too_deep(span)) }
}

fn too_deep(span: Span) -> Stop {
    let remark = Remark::new(format!("nested deeper than {MAX_DEPTH} levels"));
    Stop { span, remark: remark.write("a flatter document") }
}

fn span_of(span: saphyr_parser::Span) -> Span {
    let (start, end): (Marker, Marker) = (span.start, span.end);
    // What goes on over several lines is marked by its first character.
    let width = if start.line() == end.line() { end.col().saturating_sub(start.col()) } else { 1 };
    Span { line: start.line(), column: start.col() + 1, width: width.max(1) }
}
