//! The log of a Delta Lake table: which files are the table, decided by small commits.
//!
//! A commit is a file of JSON lines with the next free number, put only if no other is there yet; so writers
//! need no lock and no server, on a disk as on an object store. What a commit says are [`Action`]s: files
//! that are added, files that are removed, and the positions that sources of rows have reached ([`SourceRange`]).
//!
//! **Conflicts**: a writer that loses the race for a number reads what won and checks again. The files that it removes
//! must still be there, and its rows must begin at the committed position of their source. So two compactions of the
//! same files never both happen, and a row of a log is never written twice, even by two processes with the same log.
//!
//! **Reading** begins with the newest checkpoint and follows the commits after it. A missing or damaged file is an
//! error that names it, unless the other files have the same content; an older table is never returned. Commits of
//! ours have a checksum. Only a caller that knows the last version can detect that the newest commits are missing
//! ([`Table::check`]).
//!
//! **Upkeep** is the caller's to call, between commits: [`Table::checkpoint`] when one
//! [is due](Table::is_checkpoint_due), and now and then [`Table::clean_log`], which deletes commits that a
//! checkpoint stands for, and [`Table::vacuum`], which deletes files that are not part of the table any more.
//! Whoever follows the log once within `delta.logRetentionDuration` follows it commit by commit; whoever was
//! away for longer begins anew from a checkpoint.
//!
//! **When it hurts**: the whole list of files is in memory, and each checkpoint writes all of it: some
//! hundred thousand live files, not millions. Cleaning lists the whole log, and a commit a second makes 2.6
//! million in the 30 days that Delta keeps them unless the table's properties say less. Every engine that
//! reads the table waits for as many commits as there are after the newest checkpoint.
//!
//! **Limits**: versions 1 (to read) and 2 (to write) of the protocol: no deletion vectors, no column mapping,
//! no checkpoints of version 2; a table that needs more is refused. Of what others have written a checkpoint
//! keeps what our actions have: not the description of a table, not the sizes of removed files. A file is
//! called by its path below the table's root; a table with files elsewhere is read, but not vacuumed.
//!
//! **Source**: the Delta transaction log protocol, PROTOCOL.md of delta-io/delta.

mod action;
mod checkpoint;
mod log_file;
mod objects;
mod property;
mod snapshot;
mod table;

pub use action::{Action, Add, CommitInfo, Format, Metadata, Protocol, Remove, Transaction};
pub use checkpoint::CheckpointError;
pub use objects::StoreError;
pub use property::PropertyError;
pub use snapshot::{Refused, Snapshot};
pub use table::{Change, CommitError, OpenError, SourceRange, Table, TableVersion, UpkeepError};
