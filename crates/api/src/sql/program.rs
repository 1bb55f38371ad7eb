//! Where `curtail-sql` is: beside the program that wants it, or on the `PATH`.
//!
//! It links a query engine that takes longer to build than all the rest, so it need not be there: then it is said
//! how to get it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const NAME: &str = "curtail-sql";

/// Where the program is looked for.
#[derive(Clone, Debug)]
pub struct SqlProgram {
    beside: PathBuf,
}

/// Why it is not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// It is nowhere.
    #[error("there is no {0}, and no {NAME} on the PATH: `make sql` builds it")]
    Missing(PathBuf),
    /// It is there.
    #[error("{program} cannot be run")]
    Failed {
        /// Which one.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl SqlProgram {
    /// Beside another program, or on the `PATH`.
    #[must_use]
    pub fn beside(other: &Path) -> Self {
        Self { beside: other.with_file_name(NAME) }
    }

    /// Starts it by `start`, which is given one path after the other until the program is there.
    ///
    /// # Errors
    /// When it is nowhere, or cannot be run.
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
