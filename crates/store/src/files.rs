//! The files of the log: a [`Directory`] on disk, or in tests files in memory, whose operations can be made to fail.
//!
//! Writes bypass the page cache where the file system allows it (`O_DIRECT`). The log is read only after a restart, and
//! copying the data into the cache costs more than receiving it.

#[cfg(test)]
pub(crate) mod failing;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The alignment, in memory and on disk, of writes that bypass the page cache.
pub const BLOCK_BYTES: usize = 4_096;

/// The maximum size of one write.
const WRITE_BYTES: usize = 256 * BLOCK_BYTES;

/// A flat folder of files. Errors are those of the system.
#[expect(clippy::missing_errors_doc, reason = "documented once for all functions")]
pub trait Files: std::fmt::Debug + Send + Sync {
    /// Creates a new file, whose name is durable.
    fn create(&self, name: &str) -> io::Result<Box<dyn GrowingFile>>;

    /// The content of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The sorted names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Durably removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Durably renames a file, and replaces a file that has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
}

/// A file that is written from its beginning to its end. Errors are those of the system.
#[expect(clippy::missing_errors_doc, reason = "documented once for all functions")]
pub trait GrowingFile: std::fmt::Debug + Send {
    /// Writes all parts, one after the other. Their total length is a multiple of [`BLOCK_BYTES`]. After an error, some
    /// of their bytes may have been written.
    fn append(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Makes the appended bytes durable.
    ///
    /// After an error, it is unknown which bytes since the last sync are durable. Another sync does not tell, because
    /// the system forgets failed writes.
    fn sync(&mut self) -> io::Result<()>;

    /// Durably truncates the file to `len` bytes.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

/// The lock file of a folder, with the ID of the process that holds the lock. The system releases the lock when the
/// process ends for any reason. So the existence of the file means nothing.
const LOCK: &str = "lock";

/// A folder on a local disk, used by one process at a time.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// A sync of the folder makes file names durable.
    folder: File,
    /// Holds the lock.
    _lock: File,
}

/// Durably removes a file that may be missing.
pub(crate) fn remove_if_there(files: &dyn Files, name: &str) -> io::Result<()> {
    match files.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Directory {
    /// Opens a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// Any error of the system; [`io::ErrorKind::ResourceBusy`], with the ID of the other process, when the folder is
    /// in use.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let lock = lock(&path.join(LOCK))?;
        Ok(Self { path: path.to_owned(), folder: File::open(path)?, _lock: lock })
    }
}

/// Locks a file and writes the ID of this process into it.
fn lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            // A process that has just locked the file may not have written its ID yet.
            let known = file.read_to_string(&mut process).is_ok() && !process.trim().is_empty();
            let process = if known { process.trim() } else { "(ID unknown)" };
            let text =
                format!("process {process} uses it; stop that process, or choose another folder");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
    }
    // The ID only helps people, and a server must start on a full disk too.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).ok();
    Ok(file)
}

impl Files for Directory {
    fn create(&self, name: &str) -> io::Result<Box<dyn GrowingFile>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let file = match options.clone().custom_flags(libc::O_DIRECT).open(&path) {
            // Some file systems cannot bypass the cache, and fail after they have created the file.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                options.create_new(false).create(true).open(&path)?
            }
            opened => opened?,
        };
        self.folder.sync_all()?;
        Ok(Box::new(BlockFile { file, len: 0, blocks: Blocks::new() }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // Files whose names are not UTF-8 are not ours.
            names.extend(entry?.file_name().into_string().ok().filter(|name| name != LOCK));
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))?;
        self.folder.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))?;
        self.folder.sync_all()
    }
}

/// A file on disk, written in whole blocks.
#[derive(Debug)]
struct BlockFile {
    file: File,
    len: u64,
    blocks: Blocks,
}

/// Memory that begins at a multiple of [`BLOCK_BYTES`].
#[derive(Debug)]
struct Blocks {
    /// Never reallocated.
    space: Box<[u8]>,
    from: usize,
    filled: usize,
}

impl Blocks {
    fn new() -> Self {
        let space = vec![0; WRITE_BYTES + BLOCK_BYTES].into_boxed_slice();
        let from = space.as_ptr().align_offset(BLOCK_BYTES);
        Self { space, from, filled: 0 }
    }

    /// Copies the bytes that fit; returns the rest.
    fn fill<'a>(&mut self, part: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = part.split_at(part.len().min(WRITE_BYTES - self.filled));
        self.space[self.from + self.filled..][..taken.len()].copy_from_slice(taken);
        self.filled += taken.len();
        rest
    }

    fn filled(&self) -> &[u8] {
        &self.space[self.from..][..self.filled]
    }
}

impl BlockFile {
    fn write(&mut self) -> io::Result<()> {
        let filled = self.blocks.filled();
        self.file.write_all_at(filled, self.len)?;
        self.len += filled.len() as u64;
        self.blocks.filled = 0;
        Ok(())
    }
}

impl GrowingFile for BlockFile {
    fn append(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        // Discard the rest of a failed write.
        self.blocks.filled = 0;
        for part in parts {
            let mut rest = &**part;
            while !rest.is_empty() {
                rest = self.blocks.fill(rest);
                if self.blocks.filled == WRITE_BYTES {
                    self.write()?;
                }
            }
        }
        assert_eq!(self.blocks.filled % BLOCK_BYTES, 0, "whole blocks are appended");
        self.write()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.len = len;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests;
