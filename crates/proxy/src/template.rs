//! Texts with fields in braces: `{{` and `}}` stand for the braces themselves.

/// Splits `text` into literals and fields, without empty literals; returns the number of fields as well. `example` is a
/// field for messages.
///
/// # Errors
/// The message, when a brace stands alone, or `field` rejects a name.
pub(crate) fn parse<T>(
    text: &str,
    example: &str,
    literal: impl Fn(String) -> T,
    field: impl Fn(&str) -> Result<T, String>,
) -> Result<(Vec<T>, usize), String> {
    let (mut parts, mut fields, mut before, mut rest) = (Vec::new(), 0, String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        let brace = &rest[at..=at];
        before.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            before.push_str(brace);
            rest = after;
            continue;
        }
        let named = rest.split_once('}').filter(|_| brace == "{");
        let (name, after) = named.ok_or_else(|| {
            format!("{brace} stands alone: expected a field such as {example}, or {brace}{brace} for the character")
        })?;
        if !before.is_empty() {
            parts.push(literal(std::mem::take(&mut before)));
        }
        parts.push(field(name)?);
        fields += 1;
        rest = after;
    }
    before.push_str(rest);
    if !before.is_empty() {
        parts.push(literal(before));
    }
    Ok((parts, fields))
}
