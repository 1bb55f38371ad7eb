//! Errors of queries. The variants distinguish errors of the user, of the environment and of Curtail.

use crate::footers::{Footers, UNREADABLE};
use curtail_store::SQL_BYTES_MAX;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use std::path::PathBuf;

/// Why the tables cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder has no tables.
    #[error("{0} has no tables: expected those that `curtail server` writes below its --data")]
    None(PathBuf),
    /// The folder cannot be read.
    #[error("{path} cannot be read")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: object_store::Error,
    },
    /// A table cannot be opened.
    #[error(transparent)]
    Table(#[from] curtail_store::delta::OpenError),
    /// The session of DataFusion cannot be created.
    #[error("no session can be made: {0}")]
    Session(#[from] DataFusionError),
}

/// Why a query has no result, or an incomplete one.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum QueryError {
    /// The query is too long.
    #[error(
        "the query has {0} bytes: expected at most {max}",
        max = SQL_BYTES_MAX
    )]
    Long(usize),
    /// The statement would change something.
    #[error(
        "{0} is refused: only reading is supported; use SELECT, WITH, VALUES, EXPLAIN, DESCRIBE or SHOW"
    )]
    Refused(String),
    /// There is no such table.
    #[error("there is no table {name}: there are {known}")]
    NoTable { name: String, known: String },
    /// There is no such column.
    #[error("there is no column {name}: there are {known}")]
    NoColumn { name: String, known: String },
    /// The text is not SQL, or not supported.
    #[error("{0}")]
    Invalid(String),
    /// The query needs too much memory.
    #[error(
        "the query needs more memory than its limit (--memory of curtail sql); group by less, select less or narrow the time range ({0})"
    )]
    Memory(String),
    /// A file cannot be read.
    #[error("{0}")]
    Read(String),
    /// A bug of DataFusion or of Curtail.
    #[error("{0}")]
    Bug(String),
}

impl QueryError {
    pub(crate) fn refused(query: &str) -> Self {
        let first = query.split_whitespace().next().unwrap_or_default();
        Self::Refused(first.to_uppercase())
    }

    /// Converts an error of DataFusion to an error for the user.
    pub(crate) fn of(error: DataFusionError) -> Self {
        use DataFusionError as Error;
        let text = error.strip_backtrace();
        match error.find_root() {
            Error::ResourcesExhausted(what) => Self::Memory(what.clone()),
            Error::SchemaError(schema, _) => Self::of_schema(schema, text),
            Error::ParquetError(_) | Error::ObjectStore(_) | Error::IoError(_) => Self::Read(text),
            Error::ArrowError(error, _) if is_of_files(error) => Self::Read(text),
            Error::Internal(_) | Error::ExecutionJoin(_) | Error::Ffi(_) => Self::Bug(text),
            Error::ArrowError(..)
            | Error::SQL(..)
            | Error::NotImplemented(_)
            | Error::Plan(_)
            | Error::Configuration(_)
            | Error::Execution(_)
            | Error::External(_)
            | Error::Context(..)
            | Error::Substrait(_)
            | Error::Diagnostic(..)
            | Error::Collection(_)
            | Error::Shared(_) => Self::Invalid(text),
        }
    }

    /// Adds the names of the files that were read last, if the error names no file.
    pub(crate) fn while_reading(self, footers: &Footers) -> Self {
        if let Self::Read(text) = &self
            && !text.contains(UNREADABLE)
        {
            return Self::Read(format!("{text}, in one of {}", footers.last()));
        }
        self
    }

    fn of_schema(error: &SchemaError, text: String) -> Self {
        let SchemaError::FieldNotFound { field, valid_fields } = error else {
            return Self::Invalid(text);
        };
        let known: Vec<_> = valid_fields.iter().map(|field| field.name()).collect();
        Self::NoColumn { name: field.flat_name(), known: known.join(", ") }
    }
}

fn is_of_files(error: &ArrowError) -> bool {
    matches!(error, ArrowError::ParquetError(_) | ArrowError::IoError(..))
}
