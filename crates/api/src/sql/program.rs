//! Finds `curtail-sql`: in the folder of the calling program, or on the `PATH`.
//!
//! The program is optional, because its query engine takes longer to build than all other crates.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const NAME: &str = "curtail-sql";

/// The paths where the program may be.
#[derive(Clone, Debug)]
pub struct SqlProgram {
    sibling: PathBuf,
}

/// Why the program is not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The program is at none of these paths.
    #[error("there is no {0}, and no {NAME} on the PATH: `make sql` builds it")]
    Missing(PathBuf),
    /// The program exists but cannot be run.
    #[error("{program} cannot be run")]
    Failed {
        /// The path of the program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl SqlProgram {
    /// The program in the folder of another program, or on the `PATH`.
    #[must_use]
    pub fn in_folder_of(other: &Path) -> Self {
        Self { sibling: other.with_file_name(NAME) }
    }

    /// Calls `start` with one path after the other, until one path has the program.
    ///
    /// # Errors
    /// When the program is not found, or cannot be run.
    pub fn start<T>(&self, mut start: impl FnMut(&Path) -> io::Result<T>) -> Result<T, NotStarted> {
        for program in [&*self.sibling, Path::new(NAME)] {
            match start(program) {
                Ok(started) => return Ok(started),
                Err(source) if source.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(NotStarted::Failed { program: program.into(), source }),
            }
        }
        Err(NotStarted::Missing(self.sibling.clone()))
    }
}
