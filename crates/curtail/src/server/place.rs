//! The folder of a server, its tables, and what else comes from the system.
//!
//! | in the folder | is |
//! |---|---|
//! | `log/` | the log: what is not in a run yet |
//! | `tables/` | the tables, each a Delta table, unless they are in an object store |
//! | `batch-key` | the secret key of batch hashes, created once |
//! | `writer` | the name of this writer of the tables, made once: the log and it belong together |
//!
//! The log is always on this machine: it is synced before a sender is told, which an object store would take
//! a hundred times as long for.

use anyhow::Context as _;
use clap::error::ErrorKind;
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
use std::time::SystemTime;

/// What is in it when nothing else is said.
pub(super) const FOLDER: &str = "curtail-data";

pub(super) struct Place {
    log: Arc<Directory>,
    tables: Objects,
    /// Where they are, if that is on this machine.
    folder: Option<PathBuf>,
    writer: String,
    batch_key: BatchKey,
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
        let log = Directory::open(&log)
            .with_context(|| format!("--data {}: cannot use {}", data.display(), log.display()))?;
        let writer = writer(&data).with_context(|| named(&data.join("writer")))?;
        let batch_key = batch_key(&data).with_context(|| named(&data.join("batch-key")))?;
        let (tables, folder) = match tables {
            Some(url) => (curtail_objects::open(url)?, curtail_objects::folder(url)?),
            None => (Objects::folder(&data.join("tables"))?, Some(data.join("tables"))),
        };
        tables.check_writing().await?;
        tracing::info!(folder = named(&data), tables = tables.url(), "opened");
        Ok(Self { log: Arc::new(log), tables, folder, writer, batch_key })
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
            // The store fills this from its flush records.
            known: BTreeMap::new(),
        };
        let (files, batch_key) = (Arc::clone(&self.log) as _, self.batch_key);
        Settings { files, tables, memtable_bytes, batch_key }
    }
}

/// The name of this writer of the tables. Only a new folder gets one: under another name, the server would store rows
/// again that are both in the log and in the tables.
fn writer(data: &Path) -> io::Result<String> {
    match fs::read_to_string(data.join("writer")) {
        Ok(name) if name.trim().is_empty() => {
            let text = "the file `writer` is empty; restore it from a backup";
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        Ok(name) => Ok(name.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = format!("{:016x}", entropy().next_u64());
            write_once(data, "writer", format!("{name}\n").as_bytes())?;
            Ok(name)
        }
        Err(error) => Err(error),
    }
}

/// The secret key of batch hashes. A damaged key is replaced, after which batches of the last ten minutes are not
/// recognized.
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

/// Reads tokens, one per line, without empty lines and comments. There must be at least one; otherwise everybody could
/// send.
pub(super) fn tokens(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    parse_tokens(&text).with_context(|| format!("{}", file.display()))
}

fn parse_tokens(text: &str) -> io::Result<Vec<String>> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut tokens = Vec::new();
    for (line, token) in (1..).zip(text.trim_start_matches('\u{feff}').lines().map(str::trim)) {
        if token.is_empty() || token.starts_with('#') {
            continue;
        }
        // A header value has no other characters, so no sender could present the token. It is secret, so it is not
        // printed.
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(format!(
                "line {line}: expected a token of visible ASCII characters without spaces; \
                 a comment is a line of its own that begins with #"
            )));
        }
        tokens.push(token.to_owned());
    }
    if tokens.is_empty() {
        return Err(invalid(
            "expected at least one token, but found only comments and empty lines".to_owned(),
        ));
    }
    Ok(tokens)
}

/// An origin as browsers send it: scheme, host, and the port unless it is the default.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
    };
    let text = text.to_ascii_lowercase();
    let is_origin =
        text.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
    let expected = "expected an origin such as https://shop.example or http://localhost:3000, or *";
    (is_origin || text == "*").then_some(text).ok_or_else(|| expected.to_owned())
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
pub(super) fn entropy() -> Rng {
    Rng::new(RandomState::new().hash_one(0_u8))
}

#[cfg(test)]
mod tests {
    use super::{origin, parse_tokens, writer};
    use std::fs;

    #[test]
    fn an_empty_writer_file_is_an_error_and_is_not_replaced() {
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
        fs::remove_dir_all(&data).expect("it is ours");
    }

    #[test]
    fn an_origin_has_the_form_that_browsers_send() {
        for text in ["*", "https://shop.example", "http://localhost:3000", "app://x"] {
            assert_eq!(origin(text).as_deref(), Ok(text));
        }
        assert_eq!(origin("HTTPS://Shop.Example").as_deref(), Ok("https://shop.example"));
        for text in ["", "shop.example", "https://", "https://shop.example/", "https://a b", "**"] {
            assert!(origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn comments_and_empty_lines_are_ignored() {
        let text = "\u{feff}# senders of the shop\r\n\r\nsecret\r\n  # c\n other# \n#last";
        assert_eq!(parse_tokens(text).expect("two tokens"), ["secret", "other#"]);
        for text in ["", "\n  \n", "# c\n", "#\n\n#"] {
            let error = parse_tokens(text).expect_err("no token");
            assert!(error.to_string().contains("only comments and empty lines"), "{error}");
        }
        for text in ["a\nsecret # of the shop", "a\ngröße", "a\nse\u{7}cret"] {
            let error = parse_tokens(text).expect_err("no such token").to_string();
            assert!(error.starts_with("line 2: expected a token"), "{error}");
            assert!(!error.contains("cret"), "a secret is repeated: {error}");
        }
    }
}
