//! Measures of servers, recorded in addition to the latencies.
//!
//! Each process has `cpu_ratio` (CPUs in use by its group since the last sample) and `resident_bytes`. JVMs have
//! `gc_pause_ns`, from their logs, and servers have numbers in JSON responses.
//! **Limits**: [`POINTS_MAX`] points of a measure, and [`LOG_LINE_BYTES_MAX`] of a line of a log. The rest is left out,
//! and an event says so. If a server does not respond in time, its measures have no point for that sample.

use super::ask::PlainClient;
use super::cluster::Cluster;
use super::config::{GaugeConfig, MeasuresConfig};
use super::gc::{self, Ended};
use super::group::pause;
use super::problem::read_part;
use curtail_generator::Stop;
use curtail_generator::expect::{Count, Expect};
use curtail_report::results::{CPU_RATIO, Event, GC_PAUSE_NS, Measure, RESIDENT_BYTES};
use curtail_units::{Duration, Instant};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Maximum number of points of a measure: a day of seconds.
const POINTS_MAX: usize = 86_400;

/// The interval of checks whether every process runs.
const WATCHED_EVERY: Duration = Duration::from_ms(100);

const LOG_BYTES_MAX: u64 = 4 << 20;

const LOG_LINE_BYTES_MAX: usize = 64 << 10;

/// The sampling threads, which end when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    over: Stop,
    threads: Vec<JoinHandle<(Vec<Measure>, Vec<Event>)>>,
}

impl Watch {
    pub(super) fn begin(config: &MeasuresConfig, cluster: &Arc<Cluster>) -> Self {
        let over = Stop::default();
        let every = config.every;
        let samples = || SampleClock {
            cluster: Arc::clone(cluster),
            over: over.clone(),
            every,
            at: cluster.clock.now(),
        };
        let mut threads = Vec::new();
        let (processes, folder) = (samples(), cluster.spawner.folder.clone());
        let logs: Vec<Log> =
            config.gc_logs.iter().map(|(of, file)| Log::new(of, folder.join(file))).collect();
        threads.push(std::thread::spawn(move || look_at_processes(processes, logs)));
        let mut urls: Vec<&str> = config.http.iter().map(|gauge| gauge.url.as_str()).collect();
        urls.sort_unstable();
        urls.dedup();
        for url in urls {
            // A server that is paused must not keep others from being asked.
            let (samples, of_url) = (samples(), |gauge: &&GaugeConfig| gauge.url == url);
            let gauges: Vec<GaugeConfig> = config.http.iter().filter(of_url).cloned().collect();
            threads.push(std::thread::spawn(move || (ask_gauges(samples, &gauges), Vec::new())));
        }
        Self { over, threads }
    }

    /// Ends sampling; returns the measures.
    pub(super) fn end(mut self, events: &mut Vec<Event>) -> Vec<Measure> {
        self.over.stop();
        let mut measures: Vec<Measure> = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            let (of_thread, warnings) =
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            measures.extend(of_thread);
            events.extend(warnings);
        }
        measures.retain(|measure| !measure.points.is_empty());
        for Measure { of, name, points } in &measures {
            if let (true, Some((at, _))) = (points.len() >= POINTS_MAX, points.last()) {
                let what = format!(
                    "{name} of {of}: expected at most {POINTS_MAX} points, later ones are left out"
                );
                events.push(Event { at: *at, lasted: Duration::ZERO, what });
            }
        }
        measures
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.stop();
    }
}

/// The schedule of the samples of one thread.
struct SampleClock {
    cluster: Arc<Cluster>,
    over: Stop,
    every: Duration,
    at: Instant,
}

impl SampleClock {
    /// Waits until the next sample is due; returns its time, or [`None`] at the end.
    fn wait(&mut self, mut meanwhile: impl FnMut(&Cluster)) -> Option<Instant> {
        let clock = self.cluster.clock;
        loop {
            if self.over.is_stopped() {
                return None;
            }
            meanwhile(&self.cluster);
            let left = self.at.since(clock.now());
            if left == Duration::ZERO {
                break;
            }
            pause(left.min(WATCHED_EVERY).into());
        }
        let now = clock.now();
        // Missed samples are not made up for.
        self.at = now.max(self.at + self.every);
        Some(now)
    }
}

fn push(measure: &mut Measure, at: Instant, value: f64) {
    if measure.points.len() < POINTS_MAX {
        measure.points.push((at, value));
    }
}

fn measure(of: &str, name: &str) -> Measure {
    Measure { of: of.to_owned(), name: name.to_owned(), points: Vec::new() }
}

fn look_at_processes(mut samples: SampleClock, mut logs: Vec<Log>) -> (Vec<Measure>, Vec<Event>) {
    let cluster = Arc::clone(&samples.cluster);
    let mut cpu: Vec<Measure> = cluster.names().map(|of| measure(of, CPU_RATIO)).collect();
    let mut memory: Vec<Measure> = cluster.names().map(|of| measure(of, RESIDENT_BYTES)).collect();
    let mut last = None;
    while let Some(now) = samples.wait(Cluster::watch) {
        let usage = cluster.usage();
        for (nth, usage) in usage.iter().enumerate().filter(|(_, usage)| usage.alive > 0) {
            push(&mut memory[nth], now, usage.resident.get() as f64);
        }
        if let Some((before, of_last)) = last.replace((now, usage.clone())) {
            let elapsed = now.since(before).as_secs_f64();
            let both = usage.iter().zip(of_last).enumerate();
            for (nth, (usage, before)) in both.filter(|(_, (usage, _))| usage.alive > 0) {
                let used = usage.cpu - before.cpu;
                push(&mut cpu[nth], now, used.as_secs_f64() / elapsed.max(1e-9));
            }
        }
        for log in &mut logs {
            log.read(&cluster);
        }
    }
    for log in &mut logs {
        log.read(&cluster);
    }
    let cuts = logs.iter().filter_map(Log::cut_event).collect();
    let pauses = logs.into_iter().map(|log| log.pauses);
    (cpu.into_iter().chain(memory).chain(pauses).collect(), cuts)
}

fn ask_gauges(mut samples: SampleClock, gauges: &[GaugeConfig]) -> Vec<Measure> {
    let cluster = Arc::clone(&samples.cluster);
    let mut measures: Vec<Measure> =
        gauges.iter().map(|gauge| measure(&gauge.of, &gauge.name)).collect();
    let Some(GaugeConfig { url, pointer, .. }) = gauges.first() else { return measures };
    // Any number will do; that there is one makes the body be looked at.
    let any =
        Count { pointer: pointer.clone(), at_least: f64::NEG_INFINITY, at_most: f64::INFINITY };
    let expect = Expect { counts: vec![any], ..Expect::default() };
    let Ok(client) = PlainClient::get(url, &expect) else { return measures };
    while let Some(now) = samples.wait(|_| ()) {
        let Ok(body) = client.send(Vec::new(), samples.every, &cluster.stop) else { continue };
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&body) else { continue };
        for (gauge, measure) in gauges.iter().zip(&mut measures) {
            let value = json.pointer(&gauge.pointer).and_then(serde_json::Value::as_f64);
            if let Some(value) = value {
                push(measure, now, value);
            }
        }
    }
    measures
}

/// A log that grows, and may be replaced by another when its JVM starts again.
struct Log {
    of: String,
    file: PathBuf,
    inode: u64,
    read: u64,
    /// The bytes of the last line, which has no end yet.
    rest: Vec<u8>,
    /// The time of the first line that was too long.
    cut_at: Option<Instant>,
    pauses: Measure,
}

impl Log {
    fn new(of: &str, file: PathBuf) -> Self {
        let pauses = measure(of, GC_PAUSE_NS);
        Self { of: of.to_owned(), file, inode: 0, read: 0, rest: Vec::new(), cut_at: None, pauses }
    }

    fn read(&mut self, cluster: &Cluster) {
        // It may not be there yet.
        let Ok(new) = self.new_bytes() else { return };
        let lines = self.take_lines(&new, cluster.clock.now());
        let started = cluster.started(cluster.place(&self.of));
        for line in String::from_utf8_lossy(&lines).lines() {
            let Some(pause) = gc::pause(line) else { continue };
            let ended = match pause.ended {
                Ended::Uptime(uptime) => started + uptime,
                Ended::Unix(ns) => {
                    Instant::from_ns(ns.saturating_sub(cluster.clock.unix_ns(Instant::ZERO)))
                }
            };
            // The last lines of a JVM that has ended, counted from the start of the one that follows it.
            if ended > cluster.clock.now() {
                continue;
            }
            let began = Instant::ZERO + (ended.since(Instant::ZERO) - pause.lasted);
            push(&mut self.pauses, began, pause.lasted.as_ns_f64());
        }
    }

    /// Adds bytes, and takes the lines that have an end.
    fn take_lines(&mut self, new: &[u8], now: Instant) -> Vec<u8> {
        self.rest.extend_from_slice(new);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = self.rest.drain(..end).collect();
        if self.rest.len() > LOG_LINE_BYTES_MAX {
            self.rest.truncate(LOG_LINE_BYTES_MAX);
            self.cut_at.get_or_insert(now);
        }
        lines
    }

    fn cut_event(&self) -> Option<Event> {
        let what = format!(
            "{GC_PAUSE_NS} of {}: expected lines of at most {LOG_LINE_BYTES_MAX} bytes, the rest of longer ones is left out",
            self.of
        );
        Some(Event { at: self.cut_at?, lasted: Duration::ZERO, what })
    }

    fn new_bytes(&mut self) -> std::io::Result<Vec<u8>> {
        let file = std::fs::File::open(&self.file)?;
        let metadata = file.metadata()?;
        if metadata.ino() != self.inode || metadata.len() < self.read {
            (self.inode, self.read) = (metadata.ino(), 0);
            self.rest.clear();
        }
        let new = read_part(file, self.read, LOG_BYTES_MAX)?;
        self.read += new.len() as u64;
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::{LOG_LINE_BYTES_MAX, Log};
    use curtail_units::Instant;

    #[test]
    fn a_line_without_an_end_is_cut_and_reported_once() {
        let mut log = Log::new("solr", "gc.log".into());
        let (first, later) = (Instant::from_ns(1), Instant::from_ns(2));
        assert_eq!(log.take_lines(b"one\ntwo\nthr", first), b"one\ntwo\n");
        assert_eq!(log.take_lines(b"ee\n", first), b"three\n");
        assert_eq!(log.cut_event(), None);
        for now in [first, later] {
            assert_eq!(log.take_lines(&[b'a'; LOG_LINE_BYTES_MAX], now), b"");
            assert_eq!(log.take_lines(b"b", now), b"");
            assert_eq!(log.rest.len(), LOG_LINE_BYTES_MAX);
        }
        let event = log.cut_event().expect("it was cut");
        assert_eq!(event.at, first);
        assert!(event.what.contains("solr: expected lines of at most 65536 bytes"), "{event:?}");
        assert_eq!(log.take_lines(b"\nfour\n", later).len(), LOG_LINE_BYTES_MAX + 6);
    }
}
