//! YAML text as a tree whose keys and values know their positions.
//!
//! A configuration may use mappings with scalar keys, lists and scalars, in one document. Anchors, aliases, merge keys
//! and tags are rejected, because the position in a message would then not be where the value applies. A duplicate key
//! is an error.
//!
//! **Limits**: [`TEXT_BYTES_MAX`] of text, [`NESTING_MAX`] levels, [`NODES_MAX`] values. Text that is not YAML gives one
//! error, at the position where the scanner stopped.
//!
//! **Source**: YAML 1.2.2. The `saphyr-parser` crate scans; its own tree would lose the order of keys, positions or
//! duplicates.

use crate::config_error::{ConfigErrors, SourcePosition};
use crate::scalar::{Scalar, shorten};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use std::collections::BTreeSet;

/// Maximum length of a text; a thousand times the configuration of a large proxy.
pub const TEXT_BYTES_MAX: usize = 4 << 20;
/// Maximum depth of sections and lists; the deepest real key has about 8 levels.
pub const NESTING_MAX: usize = 32;
/// Maximum number of keys and values; bounds the memory, since a value can be one byte of text.
pub const NODES_MAX: usize = 200_000;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: SourcePosition,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Scalar(Scalar),
    List(Vec<Node>),
    Mapping(Vec<Entry>),
    /// A rejected value, about which an error was reported.
    Rejected,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: SourcePosition,
    pub(crate) value: Node,
    /// Whether the key exists only because a `--set` names a key below this key.
    pub(crate) is_implied: bool,
}

/// The origin of a text: the file, or a `--set`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// The full key; empty for the file as a whole.
    pub(crate) path: &'a str,
    /// The index of the `--set`; `None` for the file.
    pub(crate) set: Option<usize>,
}

impl Origin<'_> {
    pub(crate) const FILE: Self = Self { path: "", set: None };

    fn start(self) -> SourcePosition {
        self.set.map_or(SourcePosition::START, SourcePosition::Set)
    }
}

pub(crate) fn parse(text: &str, origin: Origin<'_>, errors: &mut ConfigErrors) -> Node {
    let rejected = Node { place: origin.start(), content: Content::Rejected };
    if text.len() > TEXT_BYTES_MAX {
        let text = format!("{} bytes of text: expected at most {TEXT_BYTES_MAX}", text.len());
        errors.push(rejected.place, origin.path, text);
        return rejected;
    }
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        set: origin.set,
        path: origin.path.to_owned(),
        errors,
        nodes: 0,
    };
    match builder.document() {
        Ok(Some(root)) => root,
        Ok(None) => Node { place: origin.start(), content: Content::Scalar(Scalar::plain("")) },
        Err(FatalError { place, text }) => {
            errors.push(place, origin.path, text);
            rejected
        }
    }
}

struct FatalError {
    place: SourcePosition,
    text: String,
}

struct Builder<'t, 'm> {
    parser: Parser<'t, StrInput<'t>>,
    set: Option<usize>,
    /// The full key of the value that is being read.
    path: String,
    errors: &'m mut ConfigErrors,
    nodes: usize,
}

impl<'t> Builder<'t, '_> {
    /// Reads the only document of the text; [`None`] if there is none.
    fn document(&mut self) -> Result<Option<Node>, FatalError> {
        let mut root = None;
        let mut documents = 0;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) => documents += 1,
                Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => root = self.node(event, span, 0)?,
            }
            if documents > 1 {
                let text = "a second document begins: expected one document".to_owned();
                return Err(FatalError { place: self.place(span.start), text });
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), FatalError> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(FatalError {
                place: self.place(*error.marker()),
                text: format!("this is not YAML: {}", error.info()),
            }),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn place(&self, marker: Marker) -> SourcePosition {
        match self.set {
            Some(index) => SourcePosition::Set(index),
            None => SourcePosition::File { line: marker.line(), column: marker.col() + 1 },
        }
    }

    /// Reads the value that begins with `event`; [`None`] if `event` ends the enclosing list or mapping.
    fn node(
        &mut self,
        event: Event<'t>,
        span: Span,
        depth: usize,
    ) -> Result<Option<Node>, FatalError> {
        let place = self.place(span.start);
        self.nodes += 1;
        if depth > NESTING_MAX {
            let text = format!("nested too deeply: expected at most {NESTING_MAX} levels");
            return Err(FatalError { place, text });
        }
        if self.nodes > NODES_MAX {
            let text = format!("too many keys and values: expected at most {NODES_MAX}");
            return Err(FatalError { place, text });
        }
        let content = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.reject_marks(anchor, tag.as_deref(), place);
                Content::Scalar(match style {
                    ScalarStyle::Plain => Scalar::plain(&text),
                    ScalarStyle::SingleQuoted
                    | ScalarStyle::DoubleQuoted
                    | ScalarStyle::Literal
                    | ScalarStyle::Folded => Scalar::quoted(&text),
                })
            }
            Event::SequenceStart(anchor, tag) => {
                self.reject_marks(anchor, tag.as_deref(), place);
                Content::List(self.items(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.reject_marks(anchor, tag.as_deref(), place);
                Content::Mapping(self.entries(depth)?)
            }
            Event::Alias(_) => {
                self.reject(place, "aliases (*name) are not supported: write the value out");
                Content::Rejected
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Ok(None),
        };
        Ok(Some(Node { place, content }))
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, FatalError> {
        let outer = self.path.len();
        let mut items = Vec::new();
        loop {
            self.path.push_str(&format!("[{}]", items.len()));
            let (event, span) = self.next()?;
            let item = self.node(event, span, depth + 1)?;
            self.path.truncate(outer);
            match item {
                Some(item) => items.push(item),
                None => return Ok(items),
            }
        }
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<Entry>, FatalError> {
        let outer = self.path.len();
        let mut entries = Vec::new();
        let mut keys = BTreeSet::new();
        loop {
            let (event, span) = self.next()?;
            let key =
                if let Event::Scalar(key, ..) = &event { Some(key.to_string()) } else { None };
            let Some(Node { place: key_place, .. }) = self.node(event, span, depth + 1)? else {
                return Ok(entries);
            };
            if let Some(key) = key.as_deref().filter(|key| !key.is_empty()) {
                self.path = join(&self.path, key);
            }
            let usable = self.check_key(key.as_deref(), key_place, &mut keys);
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            self.path.truncate(outer);
            if let (true, Some(key), Some(value)) = (usable, key, value) {
                entries.push(Entry { key, key_place, value, is_implied: false });
            }
        }
    }

    /// Checks a key of a mapping that already has `keys`.
    fn check_key(
        &mut self,
        key: Option<&str>,
        place: SourcePosition,
        keys: &mut BTreeSet<String>,
    ) -> bool {
        let text = match key {
            None => "a list or a mapping stands for a key: expected a word",
            Some("") => "a key is empty: expected a word",
            Some("<<") => "merge keys are not supported: write the keys out",
            Some(key) if !keys.insert(key.to_owned()) => "the key is here twice: expected it once",
            Some(_) => return true,
        };
        self.reject(place, text);
        false
    }

    fn reject_marks(&mut self, anchor: usize, tag: Option<&Tag>, place: SourcePosition) {
        if anchor != 0 {
            self.reject(
                place,
                "anchors (&name) are not supported: write the value where it is used",
            );
        }
        if let Some(tag) = tag {
            let handle = if tag.is_yaml_core_schema() { "!!" } else { &tag.handle };
            let text = format!("the tag {handle}{} is not supported: leave it out", tag.suffix);
            self.reject(place, &text);
        }
    }

    fn reject(&mut self, place: SourcePosition, text: &str) {
        self.errors.push(place, &self.path, text.to_owned());
    }
}

/// Returns the full key of `key` inside `path`.
pub(crate) fn join(path: &str, key: &str) -> String {
    let key = shorten(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
