//! The log of a Delta Lake table: which files are the table, decided by small commits.
//!
//! A commit is a file of JSON lines with the next free number, put only if no other is there yet; so writers
//! need no lock and no server, on a disk as on an object store. What a commit says are [`Action`]s: files
//! that are added, files that are removed, and up to where a writer has come ([`Transaction`]).
//!
//! **Conflicts**: whoever loses the race for a number reads what won and looks again: what it removes must
//! still be there, and what its transaction says must still be new. So two compactions of the same files
//! never both happen, and a log segment is never written twice.
//!
//! **Limits**: versions 1 (to read) and 2 (to write) of the protocol: no deletion vectors, no column mapping.
//! A table that needs more is refused.
//!
//! **Source**: the Delta transaction log protocol, PROTOCOL.md of delta-io/delta.

mod action;
mod snapshot;
mod table;

pub use action::{Action, Add, CommitInfo, Format, Metadata, Protocol, Remove, Transaction};
pub use snapshot::{Refused, Snapshot};
pub use table::{Change, CommitError, OpenError, Table};
