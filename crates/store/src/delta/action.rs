//! The actions of a commit, each a line of JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Who committed, and why. It decides nothing.
    CommitInfo(CommitInfo),
    /// What readers and writers must know.
    Protocol(Protocol),
    /// What the table is.
    MetaData(Metadata),
    /// A file that is part of the table from now on.
    Add(Add),
    /// A file that is no longer part of it.
    Remove(Remove),
    /// Up to where a writer has come.
    Txn(Transaction),
}

/// A line, as it is read: an action, or one that only later versions know.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    commit_info: Option<CommitInfo>,
    protocol: Option<Protocol>,
    meta_data: Option<Metadata>,
    add: Option<Add>,
    remove: Option<Remove>,
    txn: Option<Transaction>,
}

impl Action {
    /// Reads a line; [`None`] when it says nothing that must be known here.
    pub(super) fn read(line: &[u8]) -> serde_json::Result<Option<Self>> {
        Ok(Self::of(serde_json::from_slice(line)?))
    }

    /// Reads a line that was taken apart already.
    pub(super) fn from_json(line: Value) -> serde_json::Result<Option<Self>> {
        Ok(Self::of(serde_json::from_value(line)?))
    }

    fn of(line: Line) -> Option<Self> {
        (line.commit_info.map(Self::CommitInfo))
            .or(line.protocol.map(Self::Protocol))
            .or(line.meta_data.map(Self::MetaData))
            .or(line.add.map(Self::Add))
            .or(line.remove.map(Self::Remove))
            .or(line.txn.map(Self::Txn))
    }
}

/// Who committed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitInfo {
    /// Milliseconds since 1970.
    #[serde(default)]
    pub timestamp: i64,
    /// In Delta's words: `WRITE`, `OPTIMIZE`, `DELETE`.
    #[serde(default)]
    pub operation: String,
    /// Which program.
    #[serde(default)]
    pub engine_info: String,
    /// Tells this commit from all others.
    #[serde(default)]
    pub txn_id: String,
    /// CRC-32 of the lines that follow, in hexadecimal digits. It detects a truncated commit, even between two lines.
    /// Commits of other writers have none.
    #[serde(default, rename = "curtail.checksum", skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// What readers and writers must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// Readers of a lower version must not read.
    pub min_reader_version: u32,
    /// Writers of a lower version must not write.
    pub min_writer_version: u32,
}

/// What the table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// A UUID, given once.
    pub id: String,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of the files.
    pub format: Format,
    /// The columns: a struct in Delta's JSON, as text.
    pub schema_string: String,
    /// Columns that stand in [`Add::partition_values`] and not in files.
    pub partition_columns: Vec<String>,
    /// Properties of the table.
    pub configuration: BTreeMap<String, String>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
}

/// How files are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// `parquet`.
    pub provider: String,
    /// None are known.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// A file that is part of the table from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Add {
    /// From the table's root, as in a URL.
    pub path: String,
    /// Of the columns that divide the table.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// In bytes.
    pub size: u64,
    /// Milliseconds since 1970.
    pub modification_time: i64,
    /// Whether rows come with it that were not in the table before.
    pub data_change: bool,
    /// How many rows, and the extremes of columns: JSON, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// For writers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
}

/// A file that is no longer part of the table. It stays for readers that began before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    /// That of its [`Add`].
    pub path: String,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    /// Whether its rows leave the table with it.
    pub data_change: bool,
}

impl Add {
    /// Whether it has a tag, whatever that says.
    pub(crate) fn has_tag(&self, tag: &str) -> bool {
        self.tags.as_ref().is_some_and(|tags| tags.contains_key(tag))
    }
}

impl Remove {
    /// Removes a file at `now_ms`, milliseconds since 1970; `data_change` says whether its rows leave the table.
    pub(crate) fn of(add: &Add, now_ms: i64, data_change: bool) -> Self {
        Self { path: add.path.clone(), deletion_timestamp: Some(now_ms), data_change }
    }

    /// Whether all readers from before the removal are done. A missing time counts as past.
    pub(super) fn is_expired(&self, before_ms: i64) -> bool {
        self.deletion_timestamp.unwrap_or(0) <= before_ms
    }
}

/// Up to where a writer has come: what it commits with this is committed once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transaction {
    /// Which writer.
    pub app_id: String,
    /// It only grows.
    pub version: i64,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

impl Protocol {
    /// What tables have that are made here.
    pub const OURS: Self = Self { min_reader_version: 1, min_writer_version: 2 };
}
