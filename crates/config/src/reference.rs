//! The reference page: every key with its type, its default and its meaning, in Markdown.

use crate::key::{Key, Presence};

/// Returns a page with one table per section, in the order in which the keys are read.
#[must_use]
pub fn reference_markdown(keys: &[Key]) -> String {
    let mut sections: Vec<(&str, Vec<&Key>)> = Vec::new();
    for key in keys {
        let section = key.path.rsplit_once('.').map_or("", |(section, _)| section);
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, keys)) => keys.push(key),
            None => sections.push((section, vec![key])),
        }
    }
    let tables: Vec<String> = sections.iter().map(|(name, keys)| table(name, keys)).collect();
    tables.join("\n")
}

fn table(section: &str, keys: &[&Key]) -> String {
    let title = if section.is_empty() { "Top level".to_owned() } else { format!("`{section}`") };
    let mut table =
        format!("## {title}\n\n| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let name = key.path.rsplit('.').next().unwrap_or_default();
        let default = match &key.presence {
            Presence::Required => "required".to_owned(),
            Presence::Default(value) => format!("`{value}`"),
            Presence::Optional => "absent".to_owned(),
        };
        let cells = [format!("`{name}`"), key.expected.clone(), default, meaning(key)];
        // A bar would end the cell.
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        table += &format!("| {} |\n", cells.join(" | "));
    }
    table
}

fn meaning(key: &Key) -> String {
    let mut text = key.doc.to_owned();
    for (word, doc) in &key.words {
        text += &format!(" `{word}`: {doc}");
    }
    if let Some(case) = &key.case {
        text += &format!(" Only with `{case}`.");
    }
    if key.alone {
        text += " This value may replace the whole section.";
    }
    text
}
