//! Files, as the store uses them.
//!
//! All writing of the store goes through these two traits. [`Directory`] is a folder on disk; tests have
//! others, which fail when they are told to and forget what was not synced.

#[cfg(test)]
pub(crate) mod failing;

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::path::{Path, PathBuf};

/// A flat set of files with names.
pub trait Files: std::fmt::Debug + Send + Sync {
    /// Creates a file, which must not be there. Its name stays after a power cut.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, name: &str) -> io::Result<Box<dyn GrowingFile>>;

    /// All that is in a file.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The names of all files, in their order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a file, and makes that last.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is written from its beginning to its end.
pub trait GrowingFile: std::fmt::Debug + Send {
    /// Writes all of these parts, one after the other.
    ///
    /// # Errors
    /// What the system says; a part of them may have been written.
    fn append(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// What was appended stays after a power cut.
    ///
    /// # Errors
    /// What the system says. What was appended since the last sync may then be there or not, and syncing
    /// again tells nothing: the system has forgotten what it could not write.
    fn sync(&mut self) -> io::Result<()>;

    /// Forgets all beyond `len` bytes, and makes that last.
    ///
    /// # Errors
    /// What the system says.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

/// A folder on a local disk, used by one process at a time.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Locked for as long as this lives; syncing it makes names last.
    folder: File,
}

impl Directory {
    /// Opens a folder, which is made if it is not there.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::WouldBlock`] when another process uses the folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let folder = File::open(path)?;
        folder.try_lock()?;
        Ok(Self { path: path.to_owned(), folder })
    }
}

impl Files for Directory {
    fn create(&self, name: &str) -> io::Result<Box<dyn GrowingFile>> {
        let file = OpenOptions::new().append(true).create_new(true).open(self.path.join(name))?;
        self.folder.sync_all()?;
        Ok(Box::new(file))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // What has a name that we would not give is not ours.
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))?;
        self.folder.sync_all()
    }
}

impl GrowingFile for File {
    fn append(&mut self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match self.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut parts, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.sync_all()
    }
}

#[cfg(test)]
mod tests;
