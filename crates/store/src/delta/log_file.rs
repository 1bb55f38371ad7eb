//! The files of `_delta_log`, by name: a version in twenty digits, then the kind.
//!
//! Leading zeros sort the names by version, with a checkpoint before the commit of its number.

use std::collections::{BTreeMap, BTreeSet};

/// Maximum version: Delta counts in signed integers of 64 bits.
const VERSION_MAX: u64 = i64::MAX.cast_unsigned();

/// Maximum number of parts of a checkpoint: a name with more is damaged.
const PARTS_MAX: u32 = 100_000;

/// A file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFile {
    /// A commit.
    Commit(u64),
    /// A checkpoint that is one file.
    Whole(u64),
    /// One file of a checkpoint with several.
    Part {
        /// The version of the last commit in it.
        version: u64,
        /// Counted from one.
        nth: u32,
        /// The number of files.
        of: u32,
    },
    /// A checkpoint of a later version of the protocol, with a UUID in its name.
    Later(u64),
    /// A checksum, or several commits in one file, which no reader needs.
    Spare(u64),
}

/// A complete checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Checkpoint {
    /// The version of the last commit in it.
    pub(super) version: u64,
    /// The number of files, if it has several.
    pub(super) parts: Option<u32>,
}

impl LogFile {
    /// Parses a name; [`None`] if it is no file of the log.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (version, kind) = name.split_at_checked(20)?;
        let version = digits(version).filter(|version| *version <= VERSION_MAX)?;
        match *kind.strip_prefix('.')?.split('.').collect::<Vec<_>>() {
            ["json"] => Some(Self::Commit(version)),
            ["checkpoint", "parquet"] => Some(Self::Whole(version)),
            ["checkpoint", nth, of, "parquet"] => {
                let (nth, of) = (digits(nth)?.try_into().ok()?, digits(of)?.try_into().ok()?);
                let is_one_of_them = (1..=of).contains(&nth) && of <= PARTS_MAX;
                is_one_of_them.then_some(Self::Part { version, nth, of })
            }
            ["checkpoint", _, "json" | "parquet"] => Some(Self::Later(version)),
            ["crc"] | [_, "compacted", "json"] => Some(Self::Spare(version)),
            _ => None,
        }
    }

    /// The version, or the first version of several commits in one file.
    pub(super) const fn version(self) -> u64 {
        match self {
            Self::Commit(version)
            | Self::Whole(version)
            | Self::Part { version, .. }
            | Self::Later(version)
            | Self::Spare(version) => version,
        }
    }
}

impl Checkpoint {
    /// A checkpoint; [`None`] if no checkpoint can have this version and number of files.
    pub(super) fn new(version: u64, parts: Option<u32>) -> Option<Self> {
        let is_possible = version <= VERSION_MAX && parts.is_none_or(|of| of <= PARTS_MAX);
        is_possible.then_some(Self { version, parts })
    }

    /// The names of its files.
    pub(super) fn names(self) -> impl Iterator<Item = String> {
        let Self { version, parts } = self;
        (1..=parts.unwrap_or(1)).map(move |nth| match parts {
            None => format!("{version:020}.checkpoint.parquet"),
            Some(of) => format!("{version:020}.checkpoint.{nth:010}.{of:010}.parquet"),
        })
    }

    /// The complete checkpoints, the oldest first.
    pub(super) fn among(files: impl Iterator<Item = LogFile>) -> BTreeSet<Self> {
        let mut whole = BTreeSet::new();
        let mut parts: BTreeMap<(u64, u32), BTreeSet<u32>> = BTreeMap::new();
        for file in files {
            match file {
                LogFile::Whole(version) => _ = whole.insert(Self { version, parts: None }),
                LogFile::Part { version, nth, of } => {
                    let there = parts.entry((version, of)).or_default();
                    there.insert(nth);
                    if there.len() == of as usize {
                        whole.insert(Self { version, parts: Some(of) });
                    }
                }
                LogFile::Commit(_) | LogFile::Later(_) | LogFile::Spare(_) => {}
            }
        }
        whole
    }
}

/// The name of a commit.
pub(super) fn commit_name(version: u64) -> String {
    format!("{version:020}.json")
}

/// Parses a number that has only digits, and no sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests;
