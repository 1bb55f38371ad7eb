//! Parts of a batch that are kept as they came: walked by the table of messages, and found to be well-formed.

use crate::error::{Broken, Fault};
use crate::judge::Judge;
use crate::schema::Kind;
use crate::wire::{LEN, Reader, Tag};

/// Walks a message to its end, with all that lies in it. It lies `depth` deep itself.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    judge: &mut Judge<'_>,
    depth: u32,
) -> Result<(), Broken> {
    let max = judge.limits.depth;
    if depth > max {
        return Err(reader.fault(Fault::Depth { max }));
    }
    while let Some(tag) = reader.tag()? {
        check_field(reader, tag, judge, depth)?;
    }
    Ok(())
}

/// Passes over what a field says, and looks at it.
pub(crate) fn check_field(
    reader: &mut Reader<'_>,
    tag: Tag,
    judge: &mut Judge<'_>,
    depth: u32,
) -> Result<(), Broken> {
    let field = reader.schema().field(tag.field).filter(|_| tag.wire_type == LEN);
    match field.map(|field| (field, field.kind)) {
        Some((_, Kind::Text)) => judge.checked(reader).map(drop),
        Some((_, Kind::Message(message))) => {
            // A value lies as deep as the list that it is in.
            let is_list = matches!(message.name, "ArrayValue" | "KeyValueList");
            check(&mut reader.message(message)?, judge, depth + u32::from(is_list))
        }
        Some((field, kind)) if field.may_be_packed() => {
            let mut packed = reader.message(reader.schema())?;
            while !packed.rest().is_empty() {
                packed.skip(Tag { wire_type: kind.wire_type(), ..tag })?;
            }
            Ok(())
        }
        _ => reader.other(tag),
    }
}
