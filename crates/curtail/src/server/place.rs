//! The folder of a server, and what else comes from the system.
//!
//! | in it | is |
//! |---|---|
//! | `log/` | the log: what is not in a run yet |
//! | `tables/` | the tables, each a Delta table |
//! | `writer` | the name of this writer of the tables, made once: the log and it belong together |

use anyhow::Context as _;
use curtail_store::{Directory, Settings, tree};
use curtail_units::Rng;
use object_store::local::LocalFileSystem;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

pub(super) struct Place {
    log: Arc<Directory>,
    tables: Arc<LocalFileSystem>,
    writer: String,
}

impl Place {
    /// Opens a folder, or makes it.
    pub(super) fn open(data: &Path) -> anyhow::Result<Self> {
        let (log, tables) = (data.join("log"), data.join("tables"));
        let named = |path: &Path| format!("{}", path.display());
        fs::create_dir_all(&tables).with_context(|| named(&tables))?;
        let log = Directory::open(&log).with_context(|| {
            format!("{} cannot be used: does another server use it?", log.display())
        })?;
        let writer = writer(data).with_context(|| named(&data.join("writer")))?;
        let tables = LocalFileSystem::new_with_prefix(&tables)
            .map_err(std::io::Error::from)
            .with_context(|| named(&tables))?
            .with_fsync(true);
        Ok(Self { log: Arc::new(log), tables: Arc::new(tables), writer })
    }

    pub(super) fn settings(&self, memtable_bytes: usize) -> Settings {
        let tables = tree::Settings {
            objects: Arc::clone(&self.tables) as _,
            root: object_store::path::Path::default(),
            writer: self.writer.clone(),
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
