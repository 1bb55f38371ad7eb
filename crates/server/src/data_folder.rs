//! The data folder of a server, and the tables.
//!
//! | in the folder | is |
//! |---|---|
//! | `log/` | the log: batches that are not in a run yet |
//! | `tables/` | the tables, each a Delta table, unless they are in an object store |
//! | `batch-key` | the secret key of batch hashes, created once |
//! | `writer` | the name of this writer of the tables, created once; the log is valid only with this name |
//!
//! The log is always on this machine. Each batch is synced before it is acknowledged, and a write to an object store
//! takes a hundred times as long as a sync to a local disk.

use crate::StartError;
use curtail_http::clock::unix_time;
use curtail_objects::Objects;
use curtail_store::recent::BatchKey;
use curtail_store::{Directory, Settings, tree};
use curtail_units::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open data folder and its tables.
#[derive(Debug)]
pub(crate) struct DataFolder {
    log: Arc<Directory>,
    pub(crate) tables: Objects,
    /// The folder of the tables, unless they are in an object store.
    pub(crate) tables_folder: Option<PathBuf>,
    writer: String,
    batch_key: BatchKey,
}

impl DataFolder {
    /// Opens or creates the folder `data`, and opens the tables at `tables` (a folder or a URL; absent: in `data`).
    pub(crate) async fn open(data: &Path, tables: Option<&str>) -> Result<Self, StartError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StartError::File { path, source }
        };
        let log = data.join("log");
        fs::create_dir_all(&log).map_err(failed(&log))?;
        let log = Directory::open(&log).map_err(failed(&log))?;
        let writer = writer(data).map_err(failed(&data.join("writer")))?;
        let batch_key = batch_key(data).map_err(failed(&data.join("batch-key")))?;
        let (tables, tables_folder) = match tables {
            Some(url) => (curtail_objects::open(url)?, curtail_objects::folder(url)?),
            None => (Objects::folder(&data.join("tables"))?, Some(data.join("tables"))),
        };
        tables.check_writing().await?;
        tracing::info!(folder = %data.display(), tables = tables.url(), "opened");
        Ok(Self { log: Arc::new(log), tables, tables_folder, writer, batch_key })
    }

    pub(crate) fn settings(&self, memtable_bytes: usize) -> Settings {
        let tables = tree::Settings {
            objects: Arc::clone(&self.tables.store),
            root: self.tables.root.clone(),
            writer: self.writer.clone(),
            final_rows: tree::FINAL_ROWS,
            // The store fills this from its flush records.
            known: BTreeMap::new(),
        };
        let (files, batch_key) = (Arc::clone(&self.log) as _, self.batch_key);
        Settings { files, tables, memtable_bytes, batch_key }
    }
}

/// Returns the name of this writer of the tables; only a new folder gets a new name. Under another name, the server
/// would store again the rows that are both in the log and in the tables.
fn writer(data: &Path) -> io::Result<String> {
    match fs::read_to_string(data.join("writer")) {
        Ok(name) if name.trim().is_empty() => {
            let text = "the file `writer` is empty; restore it from a backup";
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        Ok(name) => Ok(name.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && has_log(data) => {
            let text = "the folder has a log, but no file `writer`; restore it from a backup";
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = format!("{:016x}", entropy().next_u64());
            write_once(data, "writer", format!("{name}\n").as_bytes())?;
            Ok(name)
        }
        Err(error) => Err(error),
    }
}

/// Whether the folder has segments of a log.
fn has_log(data: &Path) -> bool {
    let is_segment = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"log-"))
    };
    fs::read_dir(data.join("log")).is_ok_and(|mut entries| entries.any(is_segment))
}

/// Returns the secret key of batch hashes; replaces a damaged key. After a replacement, duplicates of older batches are
/// not recognized.
fn batch_key(data: &Path) -> io::Result<BatchKey> {
    let bytes = match fs::read(data.join("batch-key")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    if let Ok(key) = bytes.try_into() {
        return Ok(BatchKey::new(key));
    }
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    write_once(data, "batch-key", &key)?;
    Ok(BatchKey::new(key))
}

/// Atomically writes a file that only its owner may read.
fn write_once(data: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = data.join(format!("{name}.new"));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, data.join(name))?;
    File::open(data)?.sync_all()
}

/// A random UUID.
pub(crate) fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    i64::try_from(unix_time().as_ns() / 1_000_000).unwrap_or(i64::MAX)
}

/// Returns a generator with a random seed: the standard library seeds its hash maps with the system's entropy.
pub(crate) fn entropy() -> Rng {
    Rng::new(RandomState::new().hash_one(0_u8))
}

#[cfg(test)]
mod tests {
    use super::writer;
    use std::fs;

    #[test]
    fn a_lost_writer_name_is_an_error_and_is_not_replaced() {
        let name = format!("curtail-writer-{}", std::process::id());
        let data = std::env::temp_dir().join(name);
        fs::create_dir_all(&data).expect("a folder");
        let made = writer(&data).expect("made");
        assert_eq!(writer(&data).expect("read"), made);
        for damaged in [&b""[..], b"\n", b"\xff123456789abcdef\n"] {
            fs::write(data.join("writer"), damaged).expect("written");
            writer(&data).expect_err("it is damaged");
            assert_eq!(fs::read(data.join("writer")).expect("read"), damaged);
        }
        fs::remove_file(data.join("writer")).expect("removed");
        fs::create_dir(data.join("log")).expect("created");
        fs::write(data.join("log/log-000000000001"), "").expect("written");
        writer(&data).expect_err("the log belongs to a writer whose name is lost");
        fs::remove_dir_all(&data).expect("it is ours");
    }
}
