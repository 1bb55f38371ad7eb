//! The merge of the shards' bodies into one body.
//!
//! **Limits**: a JSON array has at most 127 levels within it. Its elements are checked, and pass as they are.

use crate::config::Merge;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::de::IgnoredAny;

impl Merge {
    pub(super) fn accepts(self, body: &[u8]) -> bool {
        match self {
            Self::Concatenate => true,
            // Any other body could end the merged array, or swallow the next body.
            Self::JsonArray => std::str::from_utf8(body)
                .is_ok_and(|text| serde_json::from_str::<Vec<IgnoredAny>>(text).is_ok()),
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
        for body in ["[]", " [1]\n", "[{\"a\": [\"]\"]}, null]", "[\"ü\"]"] {
            assert!(Merge::JsonArray.accepts(body.as_bytes()), "{body:?}");
        }
        let broken = [
            "[1]]",
            "[\"a]",
            "[[]",
            "[,]",
            "[1,]",
            "[{]}]",
            "[foo]",
            "[1 2]",
            "[01]",
            "[\"a\nb\"]",
        ];
        for body in ["", "{}", "[", "1", "null"].iter().chain(&broken) {
            assert!(!Merge::JsonArray.accepts(body.as_bytes()), "{body:?}");
            assert!(Merge::Concatenate.accepts(body.as_bytes()));
        }
        assert!(!Merge::JsonArray.accepts(b"[\"\xff\"]"), "no UTF-8");
    }
}
