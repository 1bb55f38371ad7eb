//! The thread that writes the access log.
//!
//! Each reload opens the file again, so a renamed file (logrotate) gets no further lines, and starts a new writer. From
//! then on, the earlier writer gets no further lines; it ends when its last write is done.
//! A write that fails drops the lines of its batch, and counts them. The next batch is tried again, so a disk that has
//! room again needs no action.
//! **Limits**: at the stop, the last lines have [`FLUSH_MAX`].

use super::buffers::LineBuffers;
use crate::StartError;
use crate::config::AccessLogConfig;
use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The interval of writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time for writing the last lines when the proxy stops.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// A writer. When it is dropped, its thread writes the lines that wait, unless another writer is current, and ends.
#[derive(Debug)]
pub(crate) struct AccessLogWriter {
    buffers: Arc<LineBuffers>,
    number: u64,
    /// Never sends: the thread ends when it is dropped.
    stop: SyncSender<Infallible>,
    /// Disconnected when the thread has ended.
    ended: Receiver<Infallible>,
}

impl AccessLogWriter {
    /// Opens the file. The writer takes no line before [`Self::begin`].
    ///
    /// # Errors
    /// When the file cannot be opened, or the system gives no thread.
    pub(crate) fn open(
        config: &AccessLogConfig,
        buffers: &Arc<LineBuffers>,
    ) -> Result<Self, StartError> {
        let file = open(&config.file).map_err(|source| unusable(&config.file, source))?;
        let (stop, stopped) = sync_channel(0);
        let (ends, ended) = sync_channel(0);
        let number = buffers.next_writer();
        let mut output = Output { file, is_mid_line: ends_within_line(&config.file) };
        let lines = Arc::clone(buffers);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            run(&mut output, (&lines, number), &stopped);
            drop(ends);
        })?;
        Ok(Self { buffers: Arc::clone(buffers), number, stop, ended })
    }

    /// Takes over from the current writer.
    pub(crate) fn begin(&self) {
        self.buffers.set_current(self.number);
    }

    /// Writes the lines that wait, for at most [`FLUSH_MAX`].
    pub(crate) fn finish(self) {
        drop(self.stop);
        if self.ended.recv_timeout(FLUSH_MAX) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(limit = ?FLUSH_MAX, "the access log lacks its last lines: the file cannot keep up");
        }
    }
}

/// Whether a start could open the file. Creates no file.
///
/// # Errors
/// When it could not.
pub(crate) fn check(config: &AccessLogConfig) -> Result<(), StartError> {
    let path = &config.file;
    let checked = match path.parent() {
        Some(folder) if !config.is_stdout() && !path.exists() => {
            let folder = if folder == Path::new("") { Path::new(".") } else { folder };
            std::fs::read_dir(folder).map(drop)
        }
        _ => open(path).map(drop),
    };
    checked.map_err(|source| unusable(path, source))
}

fn unusable(file: &Path, source: io::Error) -> StartError {
    StartError::AccessLog { file: file.to_owned(), source }.within("access_log.file".to_owned())
}

fn open(path: &Path) -> io::Result<File> {
    if AccessLogConfig::names_stdout(path) {
        return Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    }
    // A pipe that is open for reading, too, needs no reader, neither now nor later.
    let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    OpenOptions::new().append(true).create(true).read(is_pipe).open(path)
}

/// Whether a file ends within a line, as after a full disk or a crash.
fn ends_within_line(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path).ok()?;
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).ok()?;
        file.read_exact(&mut last).ok()?;
        Some(last[0])
    };
    // The opening of a pipe would wait.
    path.is_file() && last().is_some_and(|last| last != b'\n')
}

fn run(
    output: &mut Output<File>,
    (buffers, number): (&LineBuffers, u64),
    stopped: &Receiver<Infallible>,
) {
    let mut batch = buffers.take_spare();
    loop {
        let is_stopped =
            stopped.recv_timeout(WRITE_INTERVAL) == Err(RecvTimeoutError::Disconnected);
        buffers.take(number, &mut batch);
        for lines in batch.iter_mut().filter(|lines| lines.count > 0) {
            let (bytes, failure) = output.write(&lines.bytes);
            let written =
                if failure.is_none() { lines.count } else { count(&lines.bytes[..bytes]) };
            let failure = failure.map(|error| error.to_string());
            buffers.settle(written, lines.count - written, failure);
            lines.bytes.clear();
            lines.count = 0;
        }
        if is_stopped {
            buffers.end_writer(number, batch);
            return;
        }
    }
}

/// The number of lines that end in these bytes.
fn count(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

struct Output<W> {
    file: W,
    /// Whether the last write failed within a line.
    is_mid_line: bool,
}

impl<W: Write> Output<W> {
    /// Writes lines; returns how many bytes were written, and the error if these are not all.
    fn write(&mut self, lines: &[u8]) -> (usize, Option<io::Error>) {
        if self.is_mid_line {
            // The next line begins a line of the file.
            if let Err(error) = self.file.write_all(b"\n") {
                return (0, Some(error));
            }
            self.is_mid_line = false;
        }
        let mut written = 0;
        while written < lines.len() {
            let error = match self.file.write(&lines[written..]) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(bytes) => {
                    written += bytes;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            self.is_mid_line = written > 0 && lines[written - 1] != b'\n';
            return (written, Some(error));
        }
        (written, None)
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessLogConfig, Output, check, ends_within_line};
    use crate::access_log::format::Format;
    use curtail_units::Ratio;
    use std::io::{self, ErrorKind, Write};
    use std::path::PathBuf;

    /// A disk with room for this many bytes.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.room - self.bytes.len());
            self.bytes.extend_from_slice(&bytes[..written]);
            if written == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(written) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_after_a_broken_one_is_whole() {
        let mut output = Output { file: Disk { bytes: Vec::new(), room: 9 }, is_mid_line: false };
        let failed = |(written, error): (usize, Option<io::Error>)| {
            (written, error.map(|error| error.kind()))
        };
        let full = Some(ErrorKind::StorageFull);
        assert_eq!(failed(output.write(b"first\nsecond\n")), (9, full));
        assert_eq!(failed(output.write(b"lost\n")), (0, full));
        output.file.room = 16;
        assert_eq!(failed(output.write(b"third\n")), (6, None));
        assert_eq!(output.file.bytes, b"first\nsec\nthird\n");
    }

    #[test]
    fn a_file_that_ends_within_a_line_is_found() {
        let file = std::env::temp_dir().join(format!("curtail-mid-line-{}", std::process::id()));
        for (content, expected) in [("", false), ("line\n", false), ("line\nhalf", true)] {
            std::fs::write(&file, content).expect("a temporary file");
            assert_eq!(ends_within_line(&file), expected, "{content:?}");
        }
        std::fs::remove_file(&file).expect("it is there");
        assert!(!ends_within_line(&file));
        assert!(!ends_within_line("/dev/null".as_ref()));
    }

    #[test]
    fn a_check_names_a_file_that_cannot_be_opened_and_creates_none() {
        let folder = std::env::temp_dir();
        let errors = |file: PathBuf| {
            let config = AccessLogConfig {
                file,
                format: Format::Json,
                query: false,
                headers: Vec::new(),
                sample: Ratio::ONE,
                slower_than: None,
            };
            check(&config).err().map(|error| error.to_string())
        };
        let new = folder.join("curtail-no-such-file");
        assert_eq!(errors(new.clone()), None);
        assert!(!new.exists());
        for good in ["stdout", "-", "/dev/null", "new.log"] {
            assert_eq!(errors(good.into()), None, "{good}");
        }
        let missing = errors(folder.join("curtail-no-such-folder/access.log"));
        assert!(missing.is_some_and(|error| error.starts_with("access_log.file: /")));
        assert!(errors(folder).is_some_and(|error| error.contains("directory")));
    }
}
