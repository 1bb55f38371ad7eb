//! Writes the journal: the events and decisions of the policies' state machines, one JSON line each.
//!
//! Lines are made under the lock of their state machine, so their order is the order of events. A thread of its own writes
//! the lines to the file. The last line states that no entry is missing; a killed proxy does not write this line.
//! **Limits**: [`LINES_MAX`] lines wait for the file. With more, the journal ends, and entries are counted as lost.

use curtail_policy::journal::{Checksum, Entry, SCHEMA};
use serde::Serialize;
use std::fs::{File, Metadata};
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
    file: SyncSender<File>,
}

impl Journal {
    /// Starts a journal without a file: its entries wait for [`Self::begin`].
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = sync_channel(LINES_MAX);
        let (file_sender, files) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let writer = std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            // Without a file, the start has failed.
            files
                .recv()
                .map_or(Ok(()), |file| write_lines(io::BufWriter::new(file), &receiver, &counted))
        })?;
        let journal = Self {
            lines: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
            machines: AtomicU32::new(0),
            gathers: AtomicU64::new(0),
            lost,
            file: file_sender,
        };
        journal.write(&Entry::<()>::Journal { schema: SCHEMA.to_owned() });
        Ok(journal)
    }

    /// Creates the file, and writes the entries to it. An earlier file gets the name with `.previous` at its end, unless a
    /// longer one has it. The file of the `old_process`, which still writes to it, gets a name with its process ID.
    ///
    /// # Errors
    /// When the file cannot be created, or the earlier one not renamed.
    pub(crate) fn begin(&self, path: &Path, old_process: Option<i32>) -> io::Result<()> {
        match old_process {
            Some(pid) => set_aside(path, pid)?,
            None => keep_earlier_journal(path)?,
        }
        // Only the thread's panic, which is reported when it is joined, drops the receiver.
        self.file.try_send(File::create(path)?).ok();
        Ok(())
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
        tracing::warn!(previous = %previous.display(), "the earlier journal is overwritten: a longer one is kept");
        return Ok(());
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

/// Renames the journal that another process still writes to.
fn set_aside(path: &Path, pid: i32) -> io::Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let path = path.canonicalize()?;
    let mut name = path.clone().into_os_string();
    name.push(format!(".{pid}"));
    std::fs::rename(&path, &name)?;
    tracing::info!(file = %name.display(), "the old process completes its journal under this name");
    Ok(())
}

fn write_lines(
    mut file: io::BufWriter<File>,
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
    use std::path::Path;

    /// Writes a journal without entries.
    fn written(path: &Path) {
        let journal = Journal::new().expect("a thread");
        journal.begin(path, None).expect("a file");
        journal.close();
    }

    #[test]
    fn an_old_process_completes_its_journal_under_a_name_of_its_own() {
        let name = format!("curtail-journal-restart-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("a.journal");
        // A longer earlier one changes nothing.
        std::fs::write(folder.join("a.journal.previous"), "long ".repeat(100)).expect("a file");
        let [old, new] = [(); 2].map(|()| Journal::new().expect("a thread"));
        old.begin(&file, None).expect("a file");
        new.begin(&file, Some(7)).expect("a file");
        new.close();
        let complete = std::fs::read_to_string(&file).expect("the new journal");
        old.close();
        let of_old = std::fs::read_to_string(folder.join("a.journal.7"));
        assert_eq!(of_old.expect("the old journal"), complete);
        assert_eq!(complete.lines().count(), 2);
        std::fs::remove_dir_all(&folder).expect("the folder");
    }

    #[test]
    fn an_earlier_journal_is_kept_unless_a_longer_one_is() {
        let folder = std::env::temp_dir().join(format!("curtail-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (file, previous) = (folder.join("a.journal"), folder.join("a.journal.previous"));
        let text = |file| std::fs::read_to_string(file).expect("a file");
        std::fs::write(&file, "").expect("an empty file");
        written(&file);
        assert!(!previous.exists(), "nothing was in it");
        let long = text(&file).repeat(2);
        std::fs::write(&file, &long).expect("a longer journal");
        // A link to the file is a name of it.
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        written(&link);
        assert_eq!(text(&previous), long);
        assert_eq!(text(&file).repeat(2), long);
        written(&file);
        assert_eq!(text(&previous), long, "the short one does not replace it");
        written(Path::new("/dev/null"));
        std::fs::remove_dir_all(&folder).expect("the folder");
    }
}
