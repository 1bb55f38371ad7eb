//! Checks, by the schema, the parts of a batch that stay encoded.

use crate::error::{Broken, RowFault};
use crate::judge::Judge;
use crate::schema::Kind;
use crate::wire::{LEN, Reader, Tag};

/// Walks a message at this depth to its end, with all inner messages. A message that is too deep is not walked, and its
/// row is rejected. Returns whether everything was walked.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    judge: &mut Judge<'_>,
    depth: u32,
) -> Result<bool, Broken> {
    let max = judge.limits.depth;
    if depth > max {
        judge.refuse(RowFault::Depth { max });
        return Ok(false);
    }
    let mut is_whole = true;
    while let Some(tag) = reader.tag()? {
        is_whole &= check_field(reader, tag, judge, depth)?;
    }
    Ok(is_whole)
}

/// Checks the value of a field, as [`check`] does, and skips the value.
pub(crate) fn check_field(
    reader: &mut Reader<'_>,
    tag: Tag,
    judge: &mut Judge<'_>,
    depth: u32,
) -> Result<bool, Broken> {
    let field = reader.schema().field(tag.field).filter(|_| tag.wire_type == LEN);
    match field.map(|field| (field, field.kind)) {
        Some((_, Kind::Text)) => judge.checked(reader).map(|_| true),
        Some((_, Kind::Message(message))) => {
            // A value lies as deep as the list that it is in.
            let depth = depth + u32::from(message.is_container());
            check(&mut reader.message(message)?, judge, depth)
        }
        Some((field, kind)) if field.may_be_packed() => {
            let mut packed = reader.message(reader.schema())?;
            while !packed.rest().is_empty() {
                packed.skip(Tag { wire_type: kind.wire_type(), ..tag })?;
            }
            Ok(true)
        }
        _ => reader.other(tag).map(|()| true),
    }
}
