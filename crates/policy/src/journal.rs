//! The journal: every event and every decision of every machine, in order.
//!
//! The driver writes one [`Entry`] for each machine that it creates, and one with the effects for each event. A replay
//! into a new machine must give the same effects, byte for byte: the proxy then decides as the simulator does.
//!
//! An entry is one line of JSON. The type parameter of [`Entry`] is the type of the effects: a list in a writer; a
//! reader compares them as text. Each line begins with a [`Checksum`] of all entries up to and including its own, so a
//! reader finds the first line that was changed or removed.

use crate::{
    Event, GatherConfig, GatherEvent, GroupConfig, LeafConfig, LeafEvent, ReplicaId, Request,
    UpstreamConfig, UpstreamEvent,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use curtail_units::{Instant, Rng};
use serde::{Deserialize, Serialize};

/// The `schema` of the first entry.
pub const SCHEMA: &str = "curtail.journal/4";

/// One line of a journal.
///
/// `machine` is the number of a machine in this journal, and `name` is its name in the configuration. `call` is the
/// number of a request, unique within its upstream. `gather` is the number of a request with several calls. `effects`
/// are the decisions on the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "entry")]
#[expect(clippy::large_enum_variant, reason = "an entry is written or read at once, never kept")]
#[expect(missing_docs, reason = "the documentation of the type explains the fields")]
pub enum Entry<F> {
    /// The first line, with [`SCHEMA`].
    Journal { schema: String },
    /// The driver created the shared state of a group.
    Group { machine: u32, name: String, config: GroupConfig },
    /// A root's machine for one upstream was created. `replicas` ascend, and `group` is the number of the group.
    Upstream {
        machine: u32,
        name: String,
        config: UpstreamConfig,
        replicas: Vec<(ReplicaId, String)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<u32>,
        rng: Rng,
    },
    /// A replica is about to join an upstream; the event follows.
    Replica { machine: u32, replica: ReplicaId, name: String },
    /// A leaf's machine was created.
    Leaf { machine: u32, name: String, config: LeafConfig },
    /// A request arrived at an upstream; its first event follows. It may be pinned to replicas, in ascending order.
    Request {
        machine: u32,
        call: u64,
        request: Request,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        eligible: Option<Vec<ReplicaId>>,
    },
    /// An event of a request.
    Call { machine: u32, call: u64, now: Instant, event: Event, effects: F },
    /// A request with several calls arrived at the route `name`; its first event follows.
    Gather { gather: u64, name: String, config: GatherConfig },
    /// An event of a request with several calls.
    GatherEvent { gather: u64, now: Instant, event: GatherEvent, effects: F },
    /// An event of an upstream.
    UpstreamEvent { machine: u32, now: Instant, event: UpstreamEvent, effects: F },
    /// An event of a leaf.
    LeafEvent { machine: u32, now: Instant, event: LeafEvent, effects: F },
    /// The last line of a journal whose writer could not keep up, with the number of missing entries.
    Cut { lost: u64 },
    /// The last line of a complete journal, with the number of entries before it.
    End { entries: u64 },
}

/// The checksum of a journal's entries so far: the CRC-32 of their concatenated JSON.
///
/// It detects accidents and edits, not forgeries: anybody can compute it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum(u32);

/// A line begins with this, eight hexadecimal digits and [`CHECKSUM_END`].
const CHECKSUM_BEGIN: &str = "{\"crc32\":\"";
const CHECKSUM_END: &str = "\",";

impl Checksum {
    /// Adds an entry, a JSON object, and returns its line with the checksum as the first member.
    ///
    /// # Panics
    /// When `entry` is not a JSON object.
    #[must_use]
    pub fn seal(&mut self, entry: &[u8]) -> Vec<u8> {
        self.add(entry);
        let members = entry.strip_prefix(b"{").expect("an entry is a JSON object");
        let mut line = format!("{CHECKSUM_BEGIN}{:08x}{CHECKSUM_END}", self.0).into_bytes();
        line.extend_from_slice(members);
        line.push(b'\n');
        line
    }

    /// Adds the entry of a line (without its line break) and returns it without its checksum. Returns [`None`] when
    /// the checksum is missing or wrong.
    #[must_use]
    pub fn open(&mut self, line: &str) -> Option<String> {
        let (digits, members) = line.strip_prefix(CHECKSUM_BEGIN)?.split_once(CHECKSUM_END)?;
        let entry = format!("{{{members}");
        self.add(entry.as_bytes());
        (digits == format!("{:08x}", self.0)).then_some(entry)
    }

    fn add(&mut self, entry: &[u8]) {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(entry);
        self.0 = hasher.finalize();
    }
}

#[cfg(test)]
mod tests {
    use super::Checksum;
    use alloc::string::String;

    #[test]
    fn a_line_opens_only_after_the_lines_before_it() {
        let mut writer = Checksum::default();
        let lines = ["{\"a\":1}", "{\"b\":2}"].map(|entry| writer.seal(entry.as_bytes()));
        let [a, b] = lines.map(|line| String::from_utf8(line).expect("text"));
        // CRC-32 of `{"a":1}` as zlib computes it.
        assert_eq!(a, "{\"crc32\":\"561bacaf\",\"a\":1}\n");
        let (a, b) = (a.trim_end(), b.trim_end());
        let mut reader = Checksum::default();
        assert_eq!(reader.open(a).as_deref(), Some("{\"a\":1}"));
        assert_eq!(reader.open(b).as_deref(), Some("{\"b\":2}"));
        assert_eq!(Checksum::default().open(b), None, "a line is missing before it");
        assert_eq!(Checksum::default().open(&a.replace('1', "2")), None);
        assert_eq!(Checksum::default().open("{\"a\":1}"), None);
    }
}
