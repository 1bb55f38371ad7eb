//! The checksum of the end of a run, which is the page indexes and the footer.
//!
//! Parquet has a checksum for each page, but none for the end. A changed byte there may hide rows from a query. So the
//! run's entry in the Delta log has a tag with the length and the CRC-32 of the end. Runs of other writers have no tag
//! and are not checked.

use crate::delta::Add;
use crate::run::Run;
use std::collections::BTreeMap;

/// The tag: the length of the end in bytes, then the checksum in hexadecimal digits.
const TAG: &str = "curtail.end";

/// The length and the checksum of the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) bytes: u64,
    checksum: u32,
}

impl End {
    /// The end of a run of `len` bytes. `end_bytes` are its last bytes, which include the whole end.
    pub(super) fn of(run: &Run, end_bytes: &[u8], len: u64) -> Self {
        let bytes = len - run.end_begins().unwrap_or_default();
        let end = last(end_bytes, bytes).expect("all of it is there");
        Self { bytes, checksum: crc32fast::hash(end) }
    }

    /// The end of a file, by its tag.
    pub(super) fn of_file(add: &Add) -> Option<Self> {
        let tag = add.tags.as_ref()?.get(TAG)?.as_deref()?;
        let (bytes, checksum) = tag.split_once(' ')?;
        let checksum = u32::from_str_radix(checksum, 16).ok()?;
        Some(Self { bytes: bytes.parse().ok()?, checksum })
    }

    /// The tag for the table.
    pub(super) fn tags(self) -> BTreeMap<String, Option<String>> {
        BTreeMap::from([(TAG.to_owned(), Some(format!("{} {:08x}", self.bytes, self.checksum)))])
    }

    /// Whether the end of a file with these last bytes is unchanged.
    pub(super) fn is(self, end_bytes: &[u8]) -> bool {
        last(end_bytes, self.bytes).is_some_and(|end| crc32fast::hash(end) == self.checksum)
    }
}

fn last(end_bytes: &[u8], bytes: u64) -> Option<&[u8]> {
    let from = end_bytes.len().checked_sub(usize::try_from(bytes).ok()?)?;
    end_bytes.get(from..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_of_the_end_is_found_and_none_before_it_is_looked_at() {
        let mut file: Vec<_> = (0..=255).collect();
        let end = End { bytes: 100, checksum: crc32fast::hash(&file[156..]) };
        assert!(end.is(&file) && end.is(&file[156..]) && !end.is(&file[157..]));
        for at in 0..file.len() {
            file[at] ^= 1;
            assert_eq!(end.is(&file), at < 156, "byte {at}");
            file[at] ^= 1;
        }
    }
}
