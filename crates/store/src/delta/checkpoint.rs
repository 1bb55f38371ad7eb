//! A checkpoint: the state of a table after a commit, as a Parquet file.
//!
//! A row is an action with the field names of its JSON, so actions are converted through JSON, which takes about 3 us
//! for each action.
//!
//! **Damage**: Parquet pages have no checksum here. In a third of all bytes, a flipped bit changes rows without an
//! error. So the footer of our checkpoints has a checksum of all pages. The footer itself has no checksum: of 8,000
//! changes of a byte in the footer, 94 led to wrong rows.
//!
//! **Reads** checkpoints of version 1, in one file or several, of any writer; unknown columns are ignored. Checkpoints of
//! version 2 (with sidecars, or a UUID in the name) are refused.
//!
//! **Source**: PROTOCOL.md of delta-io/delta, "Checkpoints"; columns of records: Melnik et al., "Dremel", VLDB 2010, section 4.

mod read;
mod write;

use super::action::Action;
use super::log_file::Checkpoint;
use parquet::errors::ParquetError;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;
use serde::{Deserialize, Serialize};

pub(super) use read::decode;
pub(super) use write::encode;

/// The file with the version of the newest checkpoint.
pub(super) const LAST_NAME: &str = "_last_checkpoint";

/// The schema of written rows. No repeated group is within another one.
const SCHEMA: &str = "message checkpoint {
    optional group protocol {
        required int32 minReaderVersion;
        required int32 minWriterVersion;
    }
    optional group metaData {
        required binary id (UTF8);
        optional binary name (UTF8);
        required group format {
            required binary provider (UTF8);
            required group options (MAP) {
                repeated group key_value {
                    required binary key (UTF8);
                    optional binary value (UTF8);
                }
            }
        }
        required binary schemaString (UTF8);
        required group partitionColumns (LIST) {
            repeated group list {
                required binary element (UTF8);
            }
        }
        required group configuration (MAP) {
            repeated group key_value {
                required binary key (UTF8);
                optional binary value (UTF8);
            }
        }
        optional int64 createdTime;
    }
    optional group txn {
        required binary appId (UTF8);
        required int64 version;
        optional int64 lastUpdated;
    }
    optional group add {
        required binary path (UTF8);
        required group partitionValues (MAP) {
            repeated group key_value {
                required binary key (UTF8);
                optional binary value (UTF8);
            }
        }
        required int64 size;
        required int64 modificationTime;
        required boolean dataChange;
        optional binary stats (UTF8);
        optional group tags (MAP) {
            repeated group key_value {
                required binary key (UTF8);
                optional binary value (UTF8);
            }
        }
    }
    optional group remove {
        required binary path (UTF8);
        optional int64 deletionTimestamp;
        required boolean dataChange;
    }
}";

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file is missing.
    #[error("there is no such file")]
    Missing,
    /// The file is truncated, damaged, or has another schema.
    #[error("it is no checkpoint in Parquet")]
    Parquet(#[from] ParquetError),
    /// The file has changed since it was written.
    #[error("it is damaged: its checksum is another, or its pages make no rows")]
    Damaged,
    /// A row is no action.
    #[error("a row is no action of Delta")]
    Row(#[from] serde_json::Error),
    /// The metadata or the protocol versions are missing.
    #[error("it holds no metaData or no protocol")]
    Incomplete,
    /// The checkpoint has a later version of the format.
    #[error("it is of version 2 of the specification of checkpoints, known is 1")]
    Later,
}

/// `_last_checkpoint`: the newest checkpoint when that file was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Last {
    /// The version of the last commit in it.
    pub(super) version: u64,
    /// The number of rows.
    #[serde(default)]
    pub(super) size: usize,
    /// The number of files, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parts: Option<u32>,
    /// The size of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size_in_bytes: Option<usize>,
    /// The number of live files of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) num_of_add_files: Option<usize>,
}

impl Last {
    /// The content of the file for a checkpoint with these rows.
    pub(super) fn new(checkpoint: Checkpoint, rows: &[Action]) -> Self {
        let adds = rows.iter().filter(|row| matches!(row, Action::Add(_))).count();
        Self {
            version: checkpoint.version,
            size: rows.len(),
            parts: checkpoint.parts,
            size_in_bytes: None,
            num_of_add_files: Some(adds),
        }
    }
}

/// The key of the checksum in the footer of our checkpoints. Without the checksum, a damaged page could be read as
/// other rows.
const CHECKSUM: &str = "curtail.crc32";

/// The checksum of bytes, as text for checkpoints and commits.
pub(super) fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(bytes))
}

fn schema() -> Type {
    parse_message_type(SCHEMA).expect("it is a schema")
}

#[cfg(test)]
mod tests;
