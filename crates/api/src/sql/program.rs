//! Finds `curtail-sql`: beside the calling program, or on the `PATH`.
//!
//! The program is optional, because its query engine takes longer to build than all other crates.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const NAME: &str = "curtail-sql";

/// The places of the program.
#[derive(Clone, Debug)]
pub struct SqlProgram {
    beside: PathBuf,
}

/// Why the program is not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// It is in none of the places.
    #[error("there is no {0}, and no {NAME} on the PATH: `make sql` builds it")]
    Missing(PathBuf),
    /// It exists but cannot be run.
    #[error("{program} cannot be run")]
    Failed {
        /// Its path.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl SqlProgram {
    /// Beside another program, or on the `PATH`.
    #[must_use]
    pub fn beside(other: &Path) -> Self {
        Self { beside: other.with_file_name(NAME) }
    }

    /// Calls `start` with one path after the other until the program is found.
    ///
    /// # Errors
    /// When it is not found, or cannot be run.
    pub fn start<T>(&self, mut start: impl FnMut(&Path) -> io::Result<T>) -> Result<T, NotStarted> {
        for program in [&*self.beside, Path::new(NAME)] {
            match start(program) {
                Ok(started) => return Ok(started),
                Err(source) if source.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(NotStarted::Failed { program: program.into(), source }),
            }
        }
        Err(NotStarted::Missing(self.beside.clone()))
    }
}
