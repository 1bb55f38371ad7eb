//! The folder of a server, its tables, and what else comes from the system.
//!
//! | in the folder | is |
//! |---|---|
//! | `log/` | the log: what is not in a run yet |
//! | `tables/` | the tables, each a Delta table, unless they are in an object store |
//! | `writer` | the name of this writer of the tables, made once: the log and it belong together |
//!
//! The log is always on this machine: it is synced before a sender is told, which an object store would take
//! a hundred times as long for.

use anyhow::Context as _;
use clap::error::ErrorKind;
use curtail_objects::Objects;
use curtail_store::{Directory, Settings, tree};
use curtail_units::Rng;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// What is in it when nothing else is said.
pub(super) const FOLDER: &str = "curtail-data";

pub(super) struct Place {
    log: Arc<Directory>,
    tables: Objects,
    /// Where they are, if that is on this machine.
    folder: Option<PathBuf>,
    writer: String,
}

impl Place {
    /// Opens a folder, or makes it; and the tables, which are in it unless a URL says where. With a URL in its
    /// place it is [`FOLDER`], and the tables are there.
    pub(super) async fn open(data: &Path, tables: Option<&str>) -> anyhow::Result<Self> {
        let (data, tables) = match data.to_str().map(|data| (data, curtail_objects::folder(data))) {
            Some((url, Ok(None))) if tables.is_none() => (PathBuf::from(FOLDER), Some(url)),
            Some((url, Ok(None))) => {
                let text = format!(
                    "--data {url}: expected a folder, for --tables says where the tables are\n"
                );
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text).into());
            }
            Some((_, folder)) => (folder?.expect("those without were before"), tables),
            None => (data.to_owned(), tables),
        };
        let named = |path: &Path| format!("{}", path.display());
        let log = data.join("log");
        fs::create_dir_all(&log).with_context(|| named(&log))?;
        let log = Directory::open(&log).with_context(|| {
            format!("{} cannot be used: does another server use it?", log.display())
        })?;
        let writer = writer(&data).with_context(|| named(&data.join("writer")))?;
        let (tables, folder) = match tables {
            Some(url) => (curtail_objects::open(url)?, curtail_objects::folder(url)?),
            None => (Objects::folder(&data.join("tables"))?, Some(data.join("tables"))),
        };
        tables.check_writing().await?;
        tracing::info!(folder = named(&data), tables = tables.url(), "opened");
        Ok(Self { log: Arc::new(log), tables, folder, writer })
    }

    /// Where the tables are.
    pub(super) const fn objects(&self) -> &Objects {
        &self.tables
    }

    /// The same for people.
    pub(super) fn tables(&self) -> &str {
        self.tables.url()
    }

    /// The folder of the tables, unless they are in an object store.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    pub(super) fn settings(&self, memtable_bytes: usize) -> Settings {
        let tables = tree::Settings {
            objects: Arc::clone(&self.tables.store),
            root: self.tables.root.clone(),
            writer: self.writer.clone(),
            final_rows: tree::FINAL_ROWS,
        };
        Settings { files: Arc::clone(&self.log) as _, tables, memtable_bytes }
    }
}

/// The name of this writer.
fn writer(data: &Path) -> std::io::Result<String> {
    let path = data.join("writer");
    if let Ok(name) = fs::read_to_string(&path) {
        return Ok(name.trim().to_owned());
    }
    let name = format!("{:016x}", entropy().next_u64());
    let new = data.join("writer.new");
    let mut file = File::create(&new)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    // It is there as a whole, or not at all.
    fs::rename(&new, &path)?;
    File::open(data)?.sync_all()?;
    Ok(name)
}

/// Tokens, one a line; there must be some, or everybody could send.
pub(super) fn tokens(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<_> = lines.map(str::to_owned).collect();
    if tokens.is_empty() {
        let none = std::io::Error::other("expected a token, and found only empty lines");
        return Err(none).with_context(|| format!("{}", file.display()));
    }
    Ok(tokens)
}

/// A random UUID.
pub(super) fn uuid() -> String {
    let mut rng = entropy();
    let (high, low) = (rng.next_u64(), rng.next_u64());
    let (one, two, three) = (high >> 32, high >> 16 & 0xFFFF, high & 0x0FFF);
    let (four, five) = (low >> 48 & 0x3FFF | 0x8000, low & 0xFFFF_FFFF_FFFF);
    format!("{one:08x}-{two:04x}-4{three:03x}-{four:04x}-{five:012x}")
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The standard library draws the keys of its hash maps from the system's entropy.
fn entropy() -> Rng {
    Rng::new(RandomState::new().hash_one(0_u8))
}
