//! Loads data: lines of a file or of a generator, in concurrent batches.
//!
//! **Limits**: lines of at most [`LINE_BYTES_MAX`], batches of at most [`BATCH_BYTES_MAX`]. Two batches are in memory
//! in addition to those in flight.
//! **Invariant**: every line is sent once and its batch gets a successful response, or the suite ends. No batch is sent
//! again, because a batch without a response may be stored.

use super::ask::PlainClient;
use super::config::{LoadConfig, Source};
use super::group::{CommandProblems, Spawner};
use super::problem::SuiteEnd;
use curtail_generator::Stop;
use curtail_units::Duration;
use std::io::{BufRead, BufReader, Read as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

const LINE_BYTES_MAX: u64 = 16 << 20;

const BATCH_BYTES_MAX: usize = 64 << 20;

/// The interval of progress lines.
const REPORT_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// The interval of checks of the progress.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

#[derive(Debug)]
struct Batch {
    body: Vec<u8>,
    lines: u64,
}

pub(super) fn load(
    config: &LoadConfig,
    spawner: &Spawner,
    stop: &Stop,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<u64, SuiteEnd> {
    let name = &config.name;
    let mut generator = None;
    let input: Box<dyn BufRead + Send> = match &config.source {
        Source::File(file) => {
            let file = spawner.folder.join(file);
            let opened = std::fs::File::open(&file)
                .map_err(|error| SuiteEnd::io(name, &file.display().to_string(), &error))?;
            Box::new(BufReader::new(opened))
        }
        Source::Command(command) => {
            let mut group = spawner.start(command.program(), true)?;
            let output = group.take_output().expect("the output is piped");
            generator = Some(group);
            Box::new(BufReader::with_capacity(1 << 20, output))
        }
    };
    let loading = Loading {
        config,
        stop,
        began: Instant::now(),
        sent: AtomicU64::new(0),
        failed: Mutex::new(None),
    };
    let lines = loading.run(input, progress, || generator = None)?;
    if let (Some(mut group), Source::Command(command)) = (generator, &config.source) {
        let failed = format!("it failed after {lines} lines");
        let late = "it has closed its output and not ended";
        let problems = CommandProblems { failed: &failed, late };
        spawner.finish(command, &mut group, stop, problems)?;
    }
    Ok(lines)
}

struct Loading<'a> {
    config: &'a LoadConfig,
    stop: &'a Stop,
    began: Instant,
    /// The number of lines whose batch succeeded.
    sent: AtomicU64,
    failed: Mutex<Option<SuiteEnd>>,
}

impl Loading<'_> {
    /// Sends all lines of `input`; `give_up` ends the input early.
    fn run(
        &self,
        input: Box<dyn BufRead + Send>,
        progress: &(dyn Fn(&str) + Sync),
        give_up: impl FnOnce(),
    ) -> Result<u64, SuiteEnd> {
        let (give, take) = mpsc::sync_channel(1);
        let take = Mutex::new(take);
        let (over, is_over) = mpsc::sync_channel::<()>(1);
        std::thread::scope(|scope| {
            for _ in 0..self.config.at_once {
                let (take, over) = (&take, over.clone());
                scope.spawn(move || {
                    self.send_batches(take);
                    drop(over);
                });
            }
            scope.spawn(move || {
                self.read(input, &give);
                drop(over);
            });
            let mut give_up = Some(give_up);
            let mut reported_at = Instant::now();
            while is_over.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Disconnected) {
                if !self.is_wanted()
                    && let Some(give_up) = give_up.take()
                {
                    give_up();
                }
                if reported_at.elapsed() >= REPORT_EVERY {
                    reported_at = Instant::now();
                    progress(&self.progress());
                }
            }
        });
        match self.failed().take() {
            Some(halt) => Err(halt),
            None => Ok(self.sent.load(Ordering::Relaxed)),
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<SuiteEnd>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, halt: SuiteEnd) {
        self.failed().get_or_insert(halt);
    }

    /// Whether loading goes on; otherwise keeps the reason.
    fn is_wanted(&self) -> bool {
        let LoadConfig { name, within, .. } = self.config;
        if self.stop.is_stopped() {
            self.fail(SuiteEnd::Stopped);
        } else if Duration::from(self.began.elapsed()) >= *within {
            self.fail(SuiteEnd::wrong(
                name,
                format!("not done within {within}: {}", self.progress()),
            ));
        }
        self.failed().is_none()
    }

    fn progress(&self) -> String {
        let (name, sent) = (&self.config.name, self.sent.load(Ordering::Relaxed));
        let seconds = self.began.elapsed().as_secs_f64();
        format!("{name}: {sent} lines in {seconds:.0} s, {:.0} a second", sent as f64 / seconds)
    }

    fn read(&self, input: Box<dyn BufRead + Send>, give: &SyncSender<Batch>) {
        let mut batches = Batches { config: self.config, input, line: Vec::new(), number: 0 };
        while self.is_wanted() {
            match batches.next() {
                Ok(Some(batch)) => give.send(batch).expect("the receiver is there until the end"),
                Ok(None) => return,
                Err(halt) => return self.fail(halt),
            }
        }
    }

    fn send_batches(&self, take: &Mutex<Receiver<Batch>>) {
        let LoadConfig { name, url, method, headers, expect, within, .. } = self.config;
        let client = PlainClient::new(method, url, headers, expect)
            .map_err(|problem| self.fail(SuiteEnd::wrong(name, format!("{url}: {problem}"))))
            .ok();
        loop {
            let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Batch { body, lines }) = next else { return };
            // Unwanted batches are taken as well, so that the reader does not block.
            let Some(client) = client.as_ref().filter(|_| self.is_wanted()) else { continue };
            let left = (*within - Duration::from(self.began.elapsed())).max(Duration::from_ms(1));
            match client.send(body, left, self.stop) {
                Ok(_) => {
                    self.sent.fetch_add(lines, Ordering::Relaxed);
                }
                Err(problem) => {
                    let sent = self.sent.load(Ordering::Relaxed);
                    let problem = format!(
                        "a batch of {lines} lines to {url}: {problem} ({sent} lines were loaded before)"
                    );
                    self.fail(SuiteEnd::wrong(name, problem));
                }
            }
        }
    }
}

struct Batches<'a> {
    config: &'a LoadConfig,
    input: Box<dyn BufRead + Send>,
    /// A line that did not fit into the previous batch.
    line: Vec<u8>,
    number: u64,
}

impl Batches<'_> {
    fn next(&mut self) -> Result<Option<Batch>, SuiteEnd> {
        let LoadConfig { around, batch, .. } = self.config;
        let mut body = around.begin.clone().into_bytes();
        let mut lines = 0;
        while lines < *batch {
            if self.line.is_empty() && !self.read_line()? {
                break;
            }
            if lines > 0 {
                if body.len() + self.line.len() > BATCH_BYTES_MAX {
                    break;
                }
                body.extend_from_slice(around.between.as_bytes());
            }
            body.append(&mut self.line);
            lines += 1;
        }
        body.extend_from_slice(around.end.as_bytes());
        Ok((lines > 0).then_some(Batch { body, lines: lines as u64 }))
    }

    fn read_line(&mut self) -> Result<bool, SuiteEnd> {
        let name = &self.config.name;
        loop {
            self.number += 1;
            let wrong =
                |text: String| SuiteEnd::wrong(name, format!("line {}: {text}", self.number));
            self.line.clear();
            let mut limited = self.input.by_ref().take(LINE_BYTES_MAX + 1);
            let read = limited.read_until(b'\n', &mut self.line);
            if read.map_err(|error| wrong(error.to_string()))? == 0 {
                return Ok(false);
            }
            if self.line.len() as u64 > LINE_BYTES_MAX {
                return Err(wrong(format!("too long: expected at most {LINE_BYTES_MAX} bytes")));
            }
            self.line.truncate(self.line.trim_ascii_end().len());
            if !self.line.is_empty() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Batches, LINE_BYTES_MAX};
    use crate::config::{BatchFrame, LoadConfig, Source};
    use curtail_units::Duration;
    use std::io::{BufReader, Cursor, Read as _};
    use std::path::PathBuf;

    fn config(batch: usize) -> LoadConfig {
        let text = |text: &str| text.to_owned();
        LoadConfig {
            name: text("documents"),
            source: Source::File(PathBuf::new()),
            url: text("http://127.0.0.1/"),
            method: text("POST"),
            headers: Vec::new(),
            batch,
            at_once: 1,
            around: BatchFrame { begin: text("["), between: text(","), end: text("]") },
            expect: curtail_generator::expect::Expect::default(),
            within: Duration::from_secs(1),
        }
    }

    /// The batches of `text`, and how it ended.
    fn batches(text: impl std::io::Read + Send + 'static, batch: usize) -> (Vec<String>, String) {
        let config = config(batch);
        let input = Box::new(BufReader::new(text));
        let mut batches = Batches { config: &config, input, line: Vec::new(), number: 0 };
        let mut found = Vec::new();
        loop {
            match batches.next() {
                Ok(Some(batch)) => found.push(String::from_utf8_lossy(&batch.body).into_owned()),
                Ok(None) => return (found, String::new()),
                Err(halt) => return (found, format!("{halt:?}")),
            }
        }
    }

    #[test]
    fn lines_are_cut_into_batches_and_none_is_lost() {
        let (found, end) = batches(Cursor::new("1\n2\r\n\n3\n4\n5"), 2);
        assert_eq!((found.join(" ").as_str(), end.as_str()), ("[1,2] [3,4] [5]", ""));
        assert!(batches(Cursor::new("\n\n"), 2).0.is_empty());
    }

    #[test]
    fn batches_are_bounded_in_bytes_and_lines_too() {
        // Five lines of 15 MiB: four of them fit into 64 MiB.
        let line = || std::io::repeat(b'a').take(15 << 20).chain(Cursor::new("\n"));
        let text = line().chain(line()).chain(line()).chain(line()).chain(line());
        let (found, end) = batches(text, 100);
        let lens: Vec<usize> = found.iter().map(String::len).collect();
        assert_eq!((lens, end.as_str()), (vec![4 * (15 << 20) + 5, (15 << 20) + 2], ""));
        let long = Cursor::new("1\n").chain(std::io::repeat(b'a').take(LINE_BYTES_MAX + 1));
        let (found, end) = batches(long, 1);
        assert_eq!(found, ["[1]"]);
        assert!(end.contains("line 2: too long: expected at most 16777216 bytes"), "{end}");
    }
}
