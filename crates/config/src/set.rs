//! `--set section.key=value`: values from the command line, put into the tree before it is read.
//!
//! A path has keys joined by dots, with optional indexes into lists: `upstreams.search.replicas[0].weight`. The value
//! is YAML, so `--set balance={policy: random}` replaces a whole section. Missing sections of the path are created. If
//! a created section is an entry of a map, such as an upstream, and is invalid, the error says that it is not defined.
//! Missing list items are errors. Later arguments override earlier arguments, and all override the file.
//! **Limits**: the path cannot name a key that has a dot, a bracket or an equals sign.

use crate::config_error::{ConfigErrors, SourcePosition};
use crate::scalar::Meaning;
use crate::tree::{Content, Entry, Node, Origin, parse};

/// Puts `sets` into the tree under `root`.
pub(crate) fn apply(root: &mut Node, sets: &[String], errors: &mut ConfigErrors) {
    for (index, set) in sets.iter().enumerate() {
        let place = SourcePosition::Set(index);
        let Some((path, text)) = set.split_once('=') else {
            errors.push(place, "", "expected section.key=value".to_owned());
            continue;
        };
        let value = parse(text, Origin { path, set: Some(index) }, errors);
        match slot(root, path, place) {
            Ok(slot) => *slot = value,
            Err(text) => errors.push(place, "", text),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    Key(&'p str),
    Item(usize),
}

/// Returns the value at `path`; creates a missing value.
fn slot<'n>(root: &'n mut Node, path: &str, place: SourcePosition) -> Result<&'n mut Node, String> {
    let mut node = root;
    let steps = steps(path)?;
    for (nth, step) in steps.iter().enumerate() {
        node = match *step {
            Step::Key(key) => {
                let entry = entry(node, key, place)?;
                entry.is_implied &= nth + 1 < steps.len();
                &mut entry.value
            }
            Step::Item(index) => item(node, index)?,
        };
    }
    Ok(node)
}

/// Returns the position of the value at `path`; for a missing value, of the innermost section around it.
pub(crate) fn place_of(entries: &[Entry], path: &str) -> Option<SourcePosition> {
    let mut steps = steps(path).ok()?.into_iter();
    let Step::Key(first) = steps.next()? else { return None };
    let mut node = &entries.iter().find(|entry| entry.key == first)?.value;
    for step in steps {
        let inner = match (step, &node.content) {
            (Step::Key(key), Content::Mapping(entries)) => {
                entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
            }
            (Step::Item(index), Content::List(items)) => items.get(index),
            _ => None,
        };
        let Some(inner) = inner else { break };
        node = inner;
    }
    Some(node.place)
}

/// Returns the position of the value at `path` in a whole configuration.
pub(crate) fn place_in(root: &Node, path: &str) -> SourcePosition {
    let Content::Mapping(entries) = &root.content else { return root.place };
    place_of(entries, path).unwrap_or(root.place)
}

fn steps(path: &str) -> Result<Vec<Step<'_>>, String> {
    let unclear =
        || format!("{path:?} is not a key: expected one such as hedge.quantile or list[0].key");
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, indexes) = part.split_at(part.find('[').unwrap_or(part.len()));
        if key.is_empty() {
            return Err(unclear());
        }
        steps.push(Step::Key(key));
        for index in indexes.split_terminator(']') {
            let index = index.strip_prefix('[').and_then(|index| index.parse().ok());
            steps.push(Step::Item(index.ok_or_else(unclear)?));
        }
    }
    Ok(steps)
}

fn entry<'n>(
    node: &'n mut Node,
    key: &str,
    place: SourcePosition,
) -> Result<&'n mut Entry, String> {
    if let Content::Scalar(scalar) = &node.content {
        if *scalar.meaning() != Meaning::Nothing {
            let value = scalar.shown();
            return Err(format!(
                "{key:?} lies in no section: the key before it is {value}: expected a section, such as {{{key}: …}}"
            ));
        }
        node.content = Content::Mapping(Vec::new());
    }
    if let (Content::List(_), Ok(index)) = (&node.content, key.parse::<usize>()) {
        return Err(format!("{key:?} lies in a list: expected an index in brackets, [{index}]"));
    }
    let Content::Mapping(entries) = &mut node.content else {
        return Err(format!("{key:?} lies in no section: expected a path through sections"));
    };
    let index = entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
        let value = Node { place, content: Content::Mapping(Vec::new()) };
        entries.push(Entry { key: key.to_owned(), key_place: place, value, is_implied: true });
        entries.len() - 1
    });
    Ok(&mut entries[index])
}

fn item(node: &mut Node, index: usize) -> Result<&mut Node, String> {
    let Content::List(items) = &mut node.content else {
        return Err(format!("item {index} lies in no list: expected an index into a list"));
    };
    let count = items.len();
    items.get_mut(index).ok_or_else(|| format!("there is no item {index} in a list of {count}"))
}
