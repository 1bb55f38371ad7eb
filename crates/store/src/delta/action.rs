//! The actions of a commit, each a line of JSON.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An action of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Action {
    /// The author and the operation of the commit, for people.
    CommitInfo(CommitInfo),
    /// The required versions of readers and writers.
    Protocol(Protocol),
    /// The schema and the properties of the table.
    MetaData(Metadata),
    /// A file that is part of the table from now on.
    Add(Add),
    /// A file that is no longer part of the table.
    Remove(Remove),
    /// The position that a source has reached.
    Txn(Transaction),
}

/// A parsed line. All fields are missing in an action of a later version.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    commit_info: Option<CommitInfo>,
    protocol: Option<Protocol>,
    meta_data: Option<Metadata>,
    add: Option<Add>,
    remove: Option<Remove>,
    txn: Option<Transaction>,
}

impl Action {
    /// The action of a line; [`None`] for an unknown action.
    pub(super) fn of(line: Line) -> Option<Self> {
        (line.commit_info.map(Self::CommitInfo))
            .or(line.protocol.map(Self::Protocol))
            .or(line.meta_data.map(Self::MetaData))
            .or(line.add.map(Self::Add))
            .or(line.remove.map(Self::Remove))
            .or(line.txn.map(Self::Txn))
    }
}

/// The author and the operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommitInfo {
    /// The time, in milliseconds since 1970.
    #[serde(default)]
    pub timestamp: i64,
    /// Delta's name of the operation: `WRITE`, `OPTIMIZE`, `DELETE`.
    #[serde(default)]
    pub operation: String,
    /// The program and its version.
    #[serde(default)]
    pub engine_info: String,
    /// A unique ID of the commit.
    #[serde(default)]
    pub txn_id: String,
    /// CRC-32 of the lines that follow, in hexadecimal digits. It detects a truncated commit, even between two lines.
    /// Commits of other writers have none.
    #[serde(default, rename = "curtail.checksum", skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// The required versions of readers and writers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// Readers of a lower version must not read.
    pub min_reader_version: u32,
    /// Writers of a lower version must not write.
    pub min_writer_version: u32,
}

/// The schema and the properties of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    /// The UUID of the table.
    pub id: String,
    /// The name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The format of the files.
    pub format: Format,
    /// The columns: a struct in Delta's JSON, as text.
    pub schema_string: String,
    /// Columns in [`Add::partition_values`], which files do not have.
    pub partition_columns: Vec<String>,
    /// Properties of the table.
    pub configuration: BTreeMap<String, String>,
    /// The time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
}

/// The format of the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    /// `parquet`.
    pub provider: String,
    /// Options of the format; none are known.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// A file that is part of the table from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Add {
    /// The path below the table's root, as in a URL.
    pub path: String,
    /// The values of the partition columns.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// The size in bytes.
    pub size: u64,
    /// The time, in milliseconds since 1970.
    pub modification_time: i64,
    /// Whether the file has rows that were not in the table before.
    pub data_change: bool,
    /// The number of rows, and the extremes of columns, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// Tags of the writer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
}

/// A file that is no longer part of the table. The file itself remains for readers that began before the removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remove {
    /// The path, as in [`Add`].
    pub path: String,
    /// The time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    /// Whether its rows leave the table.
    pub data_change: bool,
}

impl Add {
    /// Whether the file has a tag, with any value.
    pub(crate) fn has_tag(&self, tag: &str) -> bool {
        self.tags.as_ref().is_some_and(|tags| tags.contains_key(tag))
    }
}

impl Remove {
    /// Removes a file at `now_ms`, milliseconds since 1970; `data_change` says whether its rows leave the table.
    pub(crate) fn of(add: &Add, now_ms: i64, data_change: bool) -> Self {
        Self { path: add.path.clone(), deletion_timestamp: Some(now_ms), data_change }
    }

    /// Whether the file was removed at `before_ms` or earlier. A missing time counts as earlier.
    pub(super) fn is_expired(&self, before_ms: i64) -> bool {
        self.deletion_timestamp.unwrap_or(0) <= before_ms
    }
}

/// The committed position of a source: each of its rows is committed once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Transaction {
    /// The name of the source.
    pub app_id: String,
    /// The position, which only grows.
    pub version: i64,
    /// The time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

impl Protocol {
    /// The versions of our tables.
    pub const OURS: Self = Self { min_reader_version: 1, min_writer_version: 2 };
}
