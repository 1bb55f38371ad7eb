//! The merge of the shards' bodies into one body.
//!
//! **Limits**: only the brackets of a JSON array are checked. The text between them passes unread.

use crate::config::Merge;
use bytes::{BufMut as _, Bytes, BytesMut};

impl Merge {
    pub(super) fn accepts(self, body: &[u8]) -> bool {
        match self {
            Self::Concatenate => true,
            Self::JsonArray => elements(body).is_some(),
        }
    }

    /// The bodies, in the order of the shards, as one.
    pub(super) fn merge<'a>(self, bodies: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
        // Two brackets of the merged array, and one comma for each body in place of its two brackets.
        let bytes = bodies.clone().map(Bytes::len).sum::<usize>() + 2;
        let mut merged = BytesMut::with_capacity(bytes);
        match self {
            Self::Concatenate => bodies.for_each(|body| merged.put_slice(body)),
            Self::JsonArray => {
                merged.put_u8(b'[');
                let parts =
                    bodies.filter_map(|body| elements(body)).filter(|part| !part.is_empty());
                for (nth, part) in parts.enumerate() {
                    if nth > 0 {
                        merged.put_u8(b',');
                    }
                    merged.put_slice(part);
                }
                merged.put_u8(b']');
            }
        }
        merged.freeze()
    }
}

/// The text between the brackets of a JSON array.
fn elements(body: &[u8]) -> Option<&[u8]> {
    let inner = body.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")?;
    Some(inner.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Merge};

    fn merge(merge: Merge, bodies: &[&'static str]) -> String {
        let bodies: Vec<_> =
            bodies.iter().map(|body| Bytes::from_static(body.as_bytes())).collect();
        String::from_utf8(merge.merge(bodies.iter()).to_vec()).expect("text")
    }

    #[test]
    fn bodies_are_concatenated_in_order() {
        assert_eq!(merge(Merge::Concatenate, &["a\n", "", "b\n"]), "a\nb\n");
        assert_eq!(merge(Merge::Concatenate, &[]), "");
    }

    #[test]
    fn json_arrays_become_one() {
        assert_eq!(
            merge(Merge::JsonArray, &["[1, 2]", " [ ]\n", "[{\"a\": []}]\r\n"]),
            "[1, 2,{\"a\": []}]"
        );
        assert_eq!(merge(Merge::JsonArray, &["[]", "[]"]), "[]");
        assert_eq!(merge(Merge::JsonArray, &[]), "[]");
    }

    #[test]
    fn what_is_no_array_is_not_accepted() {
        for (body, is_array) in
            [("[]", true), (" [1]\n", true), ("", false), ("{}", false), ("[", false)]
        {
            assert_eq!(Merge::JsonArray.accepts(body.as_bytes()), is_array, "{body:?}");
            assert!(Merge::Concatenate.accepts(body.as_bytes()));
        }
    }
}
