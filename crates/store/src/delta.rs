//! The log of a Delta Lake table: small commits that decide which files are the table.
//!
//! A commit is a file of JSON lines, named by the next number. It is put only if no file has that name. So writers need
//! no lock and no server, on a disk and on an object store. The lines are actions: files that are added or removed, and
//! the positions that sources of rows have reached ([`SourceRange`]).
//!
//! **Conflicts**: a writer that loses the race for a number reads the other commit and checks its own again: the files
//! to remove must still exist, and the rows must begin at the committed position of their source. So two compactions of
//! the same files never both succeed, and no row of a source is committed twice, even by two processes that read the
//! same source.
//!
//! **Reading** begins with the newest checkpoint and follows the commits after it. A missing or damaged file is an error that
//! names it, unless the other files have the same content; an older table is never returned. Our commits have a checksum. Only
//! a caller that knows the last version can detect that the newest commits are missing ([`Table::check`]).
//!
//! **Upkeep** is called between commits: [`Table::checkpoint`] when one [is due](Table::is_checkpoint_due), and sometimes
//! [`Table::clean_log`], which deletes commits before a checkpoint, and [`Table::vacuum`], which deletes files that left the
//! table. A reader that is absent for longer than `delta.logRetentionDuration` restarts from a checkpoint.
//!
//! **When it hurts**: memory holds the list of files, and each checkpoint writes it, which suits some hundred thousand
//! files. Cleaning lists the whole log: at one commit a second, 2.6 million commits in Delta's 30 days.
//!
//! **Limits**: tables of protocol version 1 (readers) and 2 (writers), without deletion vectors, column mapping and
//! checkpoints of version 2. Other tables are refused. A checkpoint drops actions and fields that this crate does not
//! know. Paths are relative to the table's root. A table with files elsewhere is read, but not vacuumed.
//!
//! **Source**: the Delta transaction log protocol, PROTOCOL.md of delta-io/delta.

mod action;
mod checkpoint;
mod log_file;
mod objects;
mod property;
mod snapshot;
mod table;

pub use action::{Add, Protocol};
pub(crate) use action::{Format, Metadata, Remove};
pub use checkpoint::CheckpointError;
pub use objects::{StoreError, WriteError};
pub use property::PropertyError;
pub use snapshot::{Refused, Snapshot};
pub(crate) use table::Change;
pub use table::{CommitError, OpenError, SourceRange, Table, TableVersion, UpkeepError};
