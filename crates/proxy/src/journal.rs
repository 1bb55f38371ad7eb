//! Writes the journal: the events and decisions of the policies' state machines, one JSON line each.
//!
//! Lines are made under the lock of their state machine, so their order is the order of events. A thread of its own writes
//! the lines to the file. The last line states that no entry is missing; a killed proxy does not write this line.
//! **Limits**: [`LINES_MAX`] lines wait for the file. With more, the journal ends, and entries are counted as lost.

use curtail_policy::journal::{Checksum, Entry, SCHEMA};
use serde::Serialize;
use std::fs::Metadata;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of lines between the machines and the file: some 30 MB.
const LINES_MAX: usize = 100_000;

/// A journal that is being written; all machines share it.
#[derive(Debug)]
pub(crate) struct Journal {
    lines: Mutex<Option<SyncSender<Vec<u8>>>>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
    machines: AtomicU32,
    gathers: AtomicU64,
    lost: Arc<AtomicU64>,
}

impl Journal {
    /// Creates the file and writes the first line. An earlier file gets the name with `.previous` at its end,
    /// unless a longer one has it.
    ///
    /// # Errors
    /// When the file cannot be created, or the earlier one not renamed.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        keep_earlier_journal(path)?;
        let file = io::BufWriter::new(std::fs::File::create(path)?);
        let (sender, receiver) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let writer = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write_lines(file, &receiver, &counted))?;
        let journal = Self {
            lines: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
            machines: AtomicU32::new(0),
            gathers: AtomicU64::new(0),
            lost,
        };
        journal.write(&Entry::<()>::Journal { schema: SCHEMA.to_owned() });
        Ok(journal)
    }

    pub(crate) fn machine(&self) -> u32 {
        self.machines.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of a request that fans out.
    pub(crate) fn gather(&self) -> u64 {
        self.gathers.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an entry. After the first entry that finds no room, all entries are lost.
    pub(crate) fn write<F: Serialize>(&self, entry: &Entry<F>) {
        // Before the lock, which all machines share. The lock of its own machine keeps its entries in order.
        let entry = serde_json::to_vec(entry).expect("an entry is plain data");
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*lines {
            match sender.try_send(entry) {
                Ok(()) => return,
                // A journal with a gap cannot be replayed beyond it: it ends here.
                // Counted before the writer can see the end of the entries.
                Err(error) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    *lines = None;
                    let is_full = matches!(error, TrySendError::Full(_));
                    let why = if is_full {
                        "its file cannot keep up"
                    } else {
                        "its file cannot be written"
                    };
                    return tracing::warn!("journal ended: {why}");
                }
            }
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Entries that were not written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes what is waiting and closes the file.
    pub(crate) fn close(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match writer.map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => tracing::error!(%error, "journal not written to its end"),
            Some(Err(_)) => tracing::error!("the journal's thread panicked"),
        }
    }
}

/// Renames an earlier journal. A start that fails leaves a short journal, which does not replace a longer earlier one.
/// Devices and pipes are not renamed.
fn keep_earlier_journal(path: &Path) -> io::Result<()> {
    let journal_len = |path: &Path| {
        let file = path.metadata().ok().filter(Metadata::is_file)?;
        Some(file.len()).filter(|len| *len > 0)
    };
    let Some(len) = journal_len(path) else { return Ok(()) };
    let path = path.canonicalize()?;
    let mut previous = path.clone().into_os_string();
    previous.push(".previous");
    if journal_len(Path::new(&previous)).is_some_and(|earlier| earlier > len) {
        tracing::warn!(previous = %previous.display(), "the earlier journal is removed: a longer one is kept");
        // The process that this one replaces may still write to it.
        return std::fs::remove_file(&path);
    }
    std::fs::rename(&path, &previous).map_err(|error| {
        let previous = previous.display();
        let text =
            format!("the earlier journal cannot be renamed to {previous}: {error}; move it away");
        io::Error::new(error.kind(), text)
    })?;
    tracing::info!(previous = %previous.display(), "the earlier journal is kept");
    Ok(())
}

fn write_lines(
    mut file: io::BufWriter<std::fs::File>,
    entries: &Receiver<Vec<u8>>,
    lost: &AtomicU64,
) -> io::Result<()> {
    let mut checksum = Checksum::default();
    let mut count = 0;
    for entry in entries {
        file.write_all(&checksum.seal(&entry))?;
        count += 1;
    }
    let last = match lost.load(Ordering::Relaxed) {
        0 => Entry::<()>::End { entries: count },
        lost => Entry::Cut { lost },
    };
    file.write_all(&checksum.seal(&serde_json::to_vec(&last)?))?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::Journal;

    #[test]
    fn an_earlier_journal_is_kept_unless_a_longer_one_is() {
        let folder = std::env::temp_dir().join(format!("curtail-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (file, previous) = (folder.join("a.journal"), folder.join("a.journal.previous"));
        let text = |file| std::fs::read_to_string(file).expect("a file");
        std::fs::write(&file, "").expect("an empty file");
        Journal::create(&file).expect("a journal").close();
        assert!(!previous.exists(), "nothing was in it");
        let long = text(&file).repeat(2);
        std::fs::write(&file, &long).expect("a longer journal");
        // A link to the file is a name of it.
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        Journal::create(&link).expect("a journal").close();
        assert_eq!(text(&previous), long);
        assert_eq!(text(&file).repeat(2), long);
        Journal::create(&file).expect("a journal").close();
        assert_eq!(text(&previous), long, "the short one does not replace it");
        Journal::create(std::path::Path::new("/dev/null")).expect("a journal").close();
        std::fs::remove_dir_all(&folder).expect("the folder");
    }
}
