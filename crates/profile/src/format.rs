//! Writes a CPU profile in pprof's format: gzip-compressed protobuf.
//!
//! **Source**: `profile.proto` of `github.com/google/pprof`; the types of samples are those of Go's CPU profiles.

use crate::cpu::OUTSIDE;
use curtail_protobuf::{bytes_field, message_field, varint, varint_field};
use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::{Frames, Symbol};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The fields of `Profile`.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
}

/// The samples of a CPU profile.
pub(crate) struct CpuProfile<'a> {
    /// The number of samples of each stack; a stack may occur several times.
    pub(crate) stacks: &'a HashMap<Frames, isize>,
    pub(crate) began: SystemTime,
    pub(crate) lasted: Duration,
    /// The CPU time of a sample.
    pub(crate) period: Duration,
    /// CPU time of the process; absent when unknown.
    pub(crate) cpu: Option<Duration>,
}

/// Encodes a profile.
pub(crate) fn encode(profile: &CpuProfile<'_>) -> Vec<u8> {
    let mut writer = Writer::default();
    // The first text is empty, as the format demands.
    writer.text("");
    let [samples, count, cpu, nanoseconds, thread] =
        ["samples", "count", "cpu", "nanoseconds", "thread"].map(|text| writer.text(text));
    let value_type = |of: u64, unit: u64| {
        move |out: &mut Vec<u8>| {
            varint_field(out, 1, of);
            varint_field(out, 2, unit);
        }
    };
    message_field(&mut writer.out, field::SAMPLE_TYPE, value_type(samples, count));
    message_field(&mut writer.out, field::SAMPLE_TYPE, value_type(cpu, nanoseconds));
    message_field(&mut writer.out, field::PERIOD_TYPE, value_type(cpu, nanoseconds));
    varint_field(&mut writer.out, field::PERIOD, nanos(profile.period));
    let began = profile.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    varint_field(&mut writer.out, field::TIME_NANOS, nanos(began));
    varint_field(&mut writer.out, field::DURATION_NANOS, nanos(profile.lasted));

    let mut stacks: BTreeMap<(Vec<u64>, u64), u64> = BTreeMap::new();
    for (Frames { frames, thread_name, .. }, samples) in profile.stacks {
        let locations = frames.iter().map(|frame| writer.location(frame)).collect();
        let key = (locations, writer.text(thread_name));
        *stacks.entry(key).or_default() += samples.unsigned_abs() as u64;
    }
    let sampled: u64 = stacks.values().sum();
    let period = nanos(profile.period);
    for ((locations, name), samples) in stacks {
        writer.sample(&locations, Some((thread, name)), [samples, samples * period]);
    }
    let outside = profile.cpu.map_or(0, nanos).saturating_sub(sampled * period);
    if outside >= period {
        let location = writer.location(&[symbol(OUTSIDE)]);
        writer.sample(&[location], None, [outside / period, outside]);
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = gzip.write_all(&writer.out).and_then(|()| gzip.finish());
    compressed.expect("a Vec accepts everything")
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn symbol(name: &str) -> Symbol {
    Symbol { name: Some(name.into()), addr: None, lineno: None, filename: None }
}

/// The encoded profile, with the IDs of what it has already.
#[derive(Default)]
struct Writer {
    out: Vec<u8>,
    texts: HashMap<String, u64>,
    /// Functions by their name and file.
    functions: HashMap<[u64; 2], u64>,
    /// Locations by their lines: functions, the innermost inlined one first, with line numbers.
    locations: HashMap<Vec<[u64; 2]>, u64>,
}

/// Returns the ID of `key`, and whether it is new. IDs are consecutive, from `first` on.
fn id<K: Hash + Eq>(ids: &mut HashMap<K, u64>, key: K, first: u64) -> (u64, bool) {
    let next = first + ids.len() as u64;
    let id = *ids.entry(key).or_insert(next);
    (id, id == next)
}

impl Writer {
    fn text(&mut self, text: &str) -> u64 {
        let (id, is_new) = id(&mut self.texts, text.to_owned(), 0);
        if is_new {
            bytes_field(&mut self.out, field::STRING, text.as_bytes());
        }
        id
    }

    fn function(&mut self, symbol: &Symbol) -> u64 {
        let file = symbol.filename.as_ref().map(|_| symbol.filename());
        let [name, file] =
            [&*symbol.name(), file.as_deref().unwrap_or_default()].map(|text| self.text(text));
        let (id, is_new) = id(&mut self.functions, [name, file], 1);
        if is_new {
            message_field(&mut self.out, field::FUNCTION, |out| {
                varint_field(out, 1, id);
                varint_field(out, 2, name);
                varint_field(out, 4, file);
            });
        }
        id
    }

    fn location(&mut self, symbols: &[Symbol]) -> u64 {
        let line = |symbol: &Symbol| [self.function(symbol), u64::from(symbol.lineno())];
        let lines: Vec<[u64; 2]> = symbols.iter().map(line).collect();
        let (id, is_new) = id(&mut self.locations, lines.clone(), 1);
        if is_new {
            message_field(&mut self.out, field::LOCATION, |out| {
                varint_field(out, 1, id);
                for [function, line] in lines {
                    message_field(out, 4, |out| {
                        varint_field(out, 1, function);
                        varint_field(out, 2, line);
                    });
                }
            });
        }
        id
    }

    /// Writes a sample, with a label if there is one: its key and its text.
    fn sample(&mut self, locations: &[u64], label: Option<(u64, u64)>, values: [u64; 2]) {
        message_field(&mut self.out, field::SAMPLE, |out| {
            for (field, numbers) in [(1, locations), (2, &values)] {
                message_field(out, field, |out| {
                    numbers.iter().for_each(|number| varint(out, *number));
                });
            }
            if let Some((key, text)) = label {
                message_field(out, 3, |out| {
                    varint_field(out, 1, key);
                    varint_field(out, 2, text);
                });
            }
        });
    }
}
