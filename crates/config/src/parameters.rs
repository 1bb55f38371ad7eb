//! Parameters: values that a file names once and uses in many places, as `${docs}`.
//!
//! `${name}` is replaced by the value of `name` in the file's section of parameters, or by a predefined value. This
//! happens before keys are read, so `--set parameters.docs=7` has effect everywhere. A parameter may use parameters
//! above it. After the replacement, a value is read as the type of its key, even if the value is in quotes. `$${` is a
//! literal `${`, and a `$` alone is a `$`. Keys are not changed.
//! **Limits**: a text has at most [`FILLED_BYTES_MAX`] bytes after the replacement.

use crate::config_error::ConfigErrors;
use crate::scalar::Scalar;
use crate::tree::{Content, Entry, Node, join};
use curtail_text::expectation;
use std::collections::BTreeMap;

/// Maximum length after the replacement. If each parameter uses the previous one twice, the length doubles each time.
pub const FILLED_BYTES_MAX: usize = 1 << 20;

/// Replaces parameters in the tree under `root`: the parameters of the section `key`, and `given`.
pub(crate) fn fill_in(
    root: &mut Node,
    key: &str,
    given: &[(&str, String)],
    errors: &mut ConfigErrors,
) {
    let Content::Mapping(entries) = &mut root.content else { return };
    let mut known: BTreeMap<String, String> =
        given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    if let Some(Entry { value: Node { content: Content::Mapping(parameters), .. }, .. }) =
        entries.iter_mut().find(|entry| entry.key == key)
    {
        for Entry { key: name, key_place, value, .. } in parameters {
            let path = join(key, name);
            if given.iter().any(|(given, _)| given == name) {
                let text = "this name has a meaning already: expected another".to_owned();
                errors.push(*key_place, &path, text);
            }
            fill_node(value, &path, &known, errors);
            if let Content::Scalar(scalar) = &value.content {
                known.insert(name.clone(), scalar.word().to_owned());
            }
        }
    }
    for Entry { key: name, value, .. } in entries.iter_mut().filter(|entry| entry.key != key) {
        fill_node(value, name, &known, errors);
    }
}

fn fill_node(
    node: &mut Node,
    path: &str,
    known: &BTreeMap<String, String>,
    errors: &mut ConfigErrors,
) {
    match &mut node.content {
        Content::Rejected => {}
        Content::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                fill_node(item, &format!("{path}[{index}]"), known, errors);
            }
        }
        Content::Mapping(entries) => {
            for Entry { key, value, .. } in entries {
                fill_node(value, &join(path, key), known, errors);
            }
        }
        Content::Scalar(scalar) if scalar.word().contains("${") => {
            match filled(scalar.word(), known) {
                Ok(text) => *scalar = Scalar::filled_in(text),
                Err(text) => {
                    errors.push(node.place, path, text);
                    node.content = Content::Rejected;
                }
            }
        }
        Content::Scalar(_) => {}
    }
}

/// Returns `text` with its parameters replaced, or an error.
fn filled(text: &str, known: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = from;
            continue;
        }
        let Some((name, after)) = from.split_once('}') else {
            return Err("a ${ has no }: expected ${name}, or $${ for a ${ that stays".to_owned());
        };
        let Some(value) = known.get(name) else { return Err(unknown(name, known)) };
        out.push_str(before);
        out.push_str(value);
        if out.len() > FILLED_BYTES_MAX {
            return Err(format!("filled in it is longer than {FILLED_BYTES_MAX} bytes"));
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn unknown(name: &str, known: &BTreeMap<String, String>) -> String {
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let expected = expectation(name, &names, "the file has no parameters");
    format!("${{{name}}} is not a parameter: {expected}")
}

#[cfg(test)]
mod tests {
    use crate::{Section, read_with_parameters};

    fn read(text: &str, sets: &[&str]) -> Result<(String, u64, f64, Vec<String>), String> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let given = [("dir", "/run".to_owned())];
        let keys = |s: &mut Section<'_>| {
            let _parameters =
                s.map("parameters", "", |_, s| s.field::<String>("value", "").alone().optional());
            (
                s.field("text", "").default(String::new()),
                s.field("count", "").default(0),
                s.field("rate", "").default(1.0),
                s.values("run", ""),
            )
        };
        read_with_parameters("s.yaml", text, &sets, ("parameters", &given), keys)
            .map_err(|errors| errors.to_string())
    }

    const FILE: &str = "\
parameters: {docs: '7', folder: \"${dir}/data\"}
text: ${folder}/x-${docs}
count: \"${docs}\"
rate: ${docs}e2
run: [\"${docs}\", \"$HOME $${docs} $\"]
";

    #[test]
    fn a_parameter_is_what_is_expected_where_it_stands() {
        let (text, count, rate, run) = read(FILE, &[]).expect("no errors");
        assert_eq!((text.as_str(), count, rate), ("/run/data/x-7", 7, 700.0));
        assert_eq!(run, ["7", "$HOME ${docs} $"]);
        let (text, count, ..) = read(FILE, &["parameters.docs='9'"]).expect("no errors");
        assert_eq!((text.as_str(), count), ("/run/data/x-9", 9));
    }

    #[test]
    fn what_cannot_be_filled_in_is_named_with_its_place() {
        let errors = read("text: ${dri}\nrun: [\"${\"]\nparameters: {dir: a}\ncount: ${x}\n", &[]);
        assert_eq!(
            errors.expect_err("four"),
            "s.yaml:1:7: text: ${dri} is not a parameter: did you mean dir?\n\
             s.yaml:2:7: run[0]: a ${ has no }: expected ${name}, or $${ for a ${ that stays\n\
             s.yaml:3:14: parameters.dir: this name has a meaning already: expected another\n\
             s.yaml:4:8: count: ${x} is not a parameter: expected only dir"
        );
        let doubling: String =
            (1..40).map(|n| format!("  p{n}: ${{p{0}}}${{p{0}}}\n", n - 1)).collect();
        let errors = read(&format!("parameters:\n  p0: aa\n{doubling}"), &[]).expect_err("long");
        assert!(errors.contains("longer than 1048576 bytes"), "{errors}");
    }
}
