//! Encodes one column of a row group.

use super::PAGE_ROWS;
use super::page::{Header, Of};
use crate::columns::{Coded, Column, Dictionary, Lists, Values};
use crate::encoding::{deltas, hybrid};
use crate::schema::{Field, Form, Kind, Presence};
use parquet::basic::Encoding;
use std::borrow::Cow;
use std::ops::Range;

/// Maximum size of a dictionary. Readers hold all of it.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// Minimum size of a chunk to be compressed.
const COMPRESSED_BYTES_MIN: usize = 256;

/// A column chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    /// All pages with their headers, the dictionary first.
    pub(super) bytes: Vec<u8>,
    /// The length of the dictionary page; zero if there is none.
    pub(super) dictionary_len: usize,
    pub(super) pages: Vec<Page>,
    pub(super) encoding: Encoding,
    pub(super) is_compressed: bool,
    /// The length that `bytes` would have without compression.
    pub(super) raw_len: usize,
}

/// The position and the counts of a page of a chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) rows: usize,
    /// The number of rows, or of entries of lists. A row without entries counts as one.
    pub(super) values: usize,
    /// The number of rows without a value or without entries.
    pub(super) nulls: usize,
    /// The least and the greatest value, for zone columns.
    pub(super) extremes: Option<(Vec<u8>, Vec<u8>)>,
}

/// Makes chunks with reused buffers.
pub(super) struct Encoder {
    numbers: Vec<u32>,
    compressor: zstd::bulk::Compressor<'static>,
}

/// A page before it is compressed.
#[derive(Clone)]
struct Raw {
    body: Vec<u8>,
    page: Page,
}

/// The encoding of the values of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Codes of the dictionary, of this many bits.
    Numbers(u8),
    /// The plain encoding, as in the dictionary.
    Plain,
    /// Differences of integers.
    Deltas,
    /// One bit for each value.
    Bits,
    /// The lengths of the IDs, then the IDs side by side.
    SideBySide,
    /// As [`Self::SideBySide`], without IDs of zero, which are null.
    NonNullSideBySide,
}

impl Plan {
    const fn encoding(self) -> Encoding {
        match self {
            Self::Numbers(_) => Encoding::RLE_DICTIONARY,
            Self::Plain | Self::Bits => Encoding::PLAIN,
            Self::Deltas => Encoding::DELTA_BINARY_PACKED,
            Self::SideBySide | Self::NonNullSideBySide => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        }
    }
}

impl Encoder {
    pub(super) fn new() -> Self {
        const LEVEL: i32 = 1;
        let compressor = zstd::bulk::Compressor::new(LEVEL).expect("memory for it");
        Self { numbers: Vec::new(), compressor }
    }

    /// The chunks of a field, one for each of its parts. The `bool` is true for a zone column.
    pub(super) fn field(
        &mut self,
        field: (&Field, bool),
        column: &Column,
        rows: usize,
    ) -> Vec<Chunk> {
        match column {
            Column::One(values) => vec![self.one(field, values, rows)],
            Column::Many(lists) => self.many(field.0, lists, rows),
        }
    }

    fn one(&mut self, (field, is_zone): (&Field, bool), values: &Values, rows: usize) -> Chunk {
        let Form::One(kind, presence) = field.form else { unreachable!("the schema is the same") };
        let values = &*whole(values, rows);
        let plan = plan(kind, presence, values);
        let pages = page_ranges(rows, is_same(values)).map(|range| {
            let mut page = Page { rows: range.len(), values: range.len(), ..Page::default() };
            let mut body = Vec::new();
            if is_zone {
                page.extremes = extremes(values, presence, range.clone());
            }
            if presence == Presence::Optional {
                page.nulls = self.presence(&mut body, values, range.clone());
            }
            self.values(&mut body, values, range, plan);
            Raw { body, page }
        });
        let pages = pages.collect();
        let is_random = kind == Kind::Narrow && presence == Presence::Required;
        self.finish(pages, values, plan, is_random)
    }

    fn many(&mut self, field: &Field, lists: &Lists, rows: usize) -> Vec<Chunk> {
        let ranges: Vec<_> = page_ranges(rows, lists.is_empty()).collect();
        let levels: Vec<_> = ranges.iter().map(|range| self.levels(lists, range.clone())).collect();
        let parts = field.form.parts().into_iter().zip(lists.parts());
        let chunks = parts.map(|((_, kind), values)| {
            let plan = plan(kind, Presence::Required, values);
            let pages = ranges.iter().zip(&levels).map(|(range, levels)| {
                let Raw { mut body, page } = levels.clone();
                let from = lists.entries(range.start).start;
                let to = lists.entries(range.end - 1).end;
                self.values(&mut body, values, from..to, plan);
                Raw { body, page }
            });
            let pages = pages.collect();
            self.finish(pages, values, plan, kind == Kind::Narrow)
        });
        chunks.collect()
    }

    /// Writes whether each row has a value; returns the number of rows without one.
    fn presence(&mut self, body: &mut Vec<u8>, values: &Values, range: Range<usize>) -> usize {
        self.numbers.clear();
        match values {
            Values::Wide(wide) => self.numbers.extend(levels(&wide[range])),
            Values::Narrow(narrow) => self.numbers.extend(levels(&narrow[range])),
            Values::Longs(longs) => self.numbers.resize(longs[range].len(), 1),
            Values::Coded(coded) => self.numbers.extend(levels(&coded.codes[range])),
        }
        put_levels(body, &self.numbers);
        self.numbers.iter().filter(|level| **level == 0).count()
    }

    /// The beginning of a page of lists: the repetition levels, then the definition levels.
    fn levels(&mut self, lists: &Lists, range: Range<usize>) -> Raw {
        let mut body = Vec::new();
        let mut page = Page { rows: range.len(), ..Page::default() };
        self.numbers.clear();
        for row in range.clone() {
            self.numbers.push(0);
            let more = lists.entries(row).len().saturating_sub(1);
            self.numbers.extend(std::iter::repeat_n(1, more));
        }
        put_levels(&mut body, &self.numbers);
        page.values = self.numbers.len();
        self.numbers.clear();
        for row in range {
            let entries = lists.entries(row).len();
            if entries == 0 {
                self.numbers.push(0);
                page.nulls += 1;
            } else {
                self.numbers.extend(std::iter::repeat_n(1, entries));
            }
        }
        put_levels(&mut body, &self.numbers);
        Raw { body, page }
    }

    /// Writes the values that are not null.
    fn values(&mut self, body: &mut Vec<u8>, values: &Values, range: Range<usize>, plan: Plan) {
        match values {
            Values::Wide(wide) => {
                let there = wide[range].iter().filter(|id| **id != 0 || plan == Plan::SideBySide);
                put_side_by_side(body, there.map(|id| id.to_be_bytes()));
            }
            Values::Narrow(narrow) => {
                let there = narrow[range].iter().filter(|id| **id != 0 || plan == Plan::SideBySide);
                put_side_by_side(body, there.map(|id| id.to_be_bytes()));
            }
            Values::Longs(longs) => deltas::encode(body, &longs[range]),
            Values::Coded(coded) => self.coded(body, coded, range, plan),
        }
    }

    fn coded(&mut self, body: &mut Vec<u8>, coded: &Coded, range: Range<usize>, plan: Plan) {
        let codes = &coded.codes[range];
        let there = codes.iter().copied().filter(|code| *code != 0);
        let dictionary = &coded.dictionary;
        match plan {
            Plan::Numbers(width) => {
                self.numbers.clear();
                if codes.contains(&0) {
                    self.numbers.extend(there.map(|code| code - 1));
                } else {
                    // Without a test for each code, so that many are converted at once.
                    self.numbers.extend(codes.iter().map(|code| code - 1));
                }
                body.push(width);
                hybrid::encode(body, &self.numbers, width);
            }
            Plan::Deltas => {
                let numbers: Vec<_> =
                    there.map(|code| crate::columns::int(dictionary.get(code))).collect();
                deltas::encode(body, &numbers);
            }
            Plan::Bits => {
                let bits: Vec<_> = there.map(|code| dictionary.get(code)[0] != 0).collect();
                let byte = |bits: &[bool]| {
                    bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit))
                };
                body.extend(bits.chunks(8).map(byte));
            }
            Plan::Plain | Plan::SideBySide | Plan::NonNullSideBySide => {
                there.for_each(|code| body.extend_from_slice(dictionary.get_plain(code)));
            }
        }
    }

    /// Joins the dictionary and the pages to a chunk, compressed if that saves enough. Random IDs are never compressed.
    fn finish(&mut self, pages: Vec<Raw>, values: &Values, plan: Plan, is_random: bool) -> Chunk {
        let dictionary = match (plan, values) {
            (Plan::Numbers(_), Values::Coded(coded)) => Some(&coded.dictionary),
            _ => None,
        };
        let bodies = dictionary.map(Dictionary::plain).into_iter();
        let bodies = bodies.chain(pages.iter().map(|raw| &*raw.body));
        let compressed = if is_random { None } else { self.compress(bodies) };
        let mut chunk = Chunk {
            bytes: Vec::new(),
            dictionary_len: 0,
            pages: Vec::with_capacity(pages.len()),
            encoding: plan.encoding(),
            is_compressed: compressed.is_some(),
            raw_len: 0,
        };
        let mut compressed = compressed.into_iter().flatten();
        let mut put = |chunk: &mut Chunk, header: Header, body: &[u8]| {
            let compressed = compressed.next();
            chunk.put(header, body.len(), compressed.as_deref().unwrap_or(body));
        };
        if let Some(dictionary) = dictionary {
            let (values, encoding) = (dictionary.len() as usize, Encoding::PLAIN as i32);
            let header = Header { of: Of::Dictionary, values, encoding, ..Header::default() };
            put(&mut chunk, header, dictionary.plain());
            chunk.dictionary_len = chunk.bytes.len();
        }
        for raw in pages {
            let at = chunk.bytes.len();
            let (values, encoding) = (raw.page.values, plan.encoding() as i32);
            put(&mut chunk, Header { values, encoding, ..Header::default() }, &raw.body);
            chunk.pages.push(Page { at, len: chunk.bytes.len() - at, ..raw.page });
        }
        chunk
    }

    /// The compressed dictionary and pages; [`None`] if compression saves little.
    fn compress<'a>(
        &mut self,
        bodies: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Option<Vec<Vec<u8>>> {
        let before: usize = bodies.clone().map(<[u8]>::len).sum();
        if before < COMPRESSED_BYTES_MIN {
            return None;
        }
        let compress = |body| self.compressor.compress(body).expect("there is room");
        let compressed: Vec<_> = bodies.map(compress).collect();
        let after: usize = compressed.iter().map(Vec::len).sum();
        (after < before / 10 * 9).then_some(compressed)
    }
}

/// Whether each value is not null.
fn levels<T: Copy + Default + PartialEq>(values: &[T]) -> impl Iterator<Item = u32> {
    values.iter().map(|value| u32::from(*value != T::default()))
}

/// The values, filled up with nulls to the last row.
fn whole(values: &Values, rows: usize) -> Cow<'_, Values> {
    if values.len() == rows {
        return Cow::Borrowed(values);
    }
    let mut values = values.clone();
    values.spread(values.len(), &vec![0; rows - values.len()]);
    Cow::Owned(values)
}

/// Whether all rows have the same value, so that all are one page.
fn is_same(values: &Values) -> bool {
    match values {
        Values::Coded(Coded { codes, .. }) => codes.iter().all(|code| *code == codes[0]),
        Values::Wide(_) | Values::Narrow(_) | Values::Longs(_) => false,
    }
}

fn page_ranges(rows: usize, is_one: bool) -> impl Iterator<Item = Range<usize>> {
    let step = if is_one { rows.max(1) } else { PAGE_ROWS };
    (0..rows).step_by(step).map(move |from| from..(from + step).min(rows))
}

fn plan(kind: Kind, presence: Presence, values: &Values) -> Plan {
    let coded = match values {
        Values::Wide(_) | Values::Narrow(_) => {
            return match presence {
                Presence::Required => Plan::SideBySide,
                Presence::Optional => Plan::NonNullSideBySide,
            };
        }
        Values::Longs(_) => return Plan::Deltas,
        Values::Coded(coded) => coded,
    };
    let dictionary = &coded.dictionary;
    // Counts in integers as wide as the codes, so that many codes are counted at once.
    let count = |codes: &[u32]| codes.iter().map(|code| u32::from(*code != 0)).sum::<u32>();
    let there = coded.codes.chunks(1 << 16).map(|codes| count(codes) as usize).sum::<usize>();
    // A dictionary does not pay if most values are different.
    let is_small = dictionary.plain().len() <= DICTIONARY_BYTES_MAX
        && dictionary.len() as usize <= there.div_ceil(2);
    match kind {
        // Without values, there is no dictionary.
        _ if there == 0 => Plan::Plain,
        Kind::Bool => Plan::Bits,
        _ if is_small => Plan::Numbers(hybrid::width(dictionary.len().saturating_sub(1))),
        Kind::Int => Plan::Deltas,
        Kind::Double | Kind::Text | Kind::Wide | Kind::Narrow | Kind::Long => Plan::Plain,
    }
}

fn put_levels(body: &mut Vec<u8>, levels: &[u32]) {
    let at = body.len();
    body.extend_from_slice(&[0; 4]);
    hybrid::encode(body, levels, 1);
    let len = u32::try_from(body.len() - at - 4).expect("a page is small");
    body[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

fn put_side_by_side<const N: usize>(body: &mut Vec<u8>, there: impl Iterator<Item = [u8; N]>) {
    let mut bytes = Vec::new();
    there.for_each(|id| bytes.extend_from_slice(&id));
    let len = i64::try_from(N).expect("an ID is short");
    deltas::encode(body, &vec![len; bytes.len() / N]);
    body.extend_from_slice(&bytes);
}

/// The least and the greatest value that is not null, in Parquet's order.
fn extremes(
    values: &Values,
    presence: Presence,
    range: Range<usize>,
) -> Option<(Vec<u8>, Vec<u8>)> {
    match values {
        Values::Wide(wide) => {
            let is_there = |id: &&u128| **id != 0 || presence == Presence::Required;
            let there = || wide[range.clone()].iter().filter(is_there);
            let (least, greatest) = (there().min()?, there().max()?);
            Some((least.to_be_bytes().to_vec(), greatest.to_be_bytes().to_vec()))
        }
        Values::Longs(longs) => {
            let longs = &longs[range];
            let (least, greatest) = (longs.iter().min()?, longs.iter().max()?);
            Some((least.to_le_bytes().to_vec(), greatest.to_le_bytes().to_vec()))
        }
        Values::Narrow(_) | Values::Coded(_) => None,
    }
}

impl Chunk {
    /// Appends a page: its header, with the lengths and the checksum, and its body.
    fn put(&mut self, header: Header, raw_len: usize, body: &[u8]) {
        let checksum = crc32fast::hash(body);
        let at = self.bytes.len();
        Header { raw_len, len: body.len(), checksum, ..header }.write(&mut self.bytes);
        self.raw_len += self.bytes.len() - at + raw_len;
        self.bytes.extend_from_slice(body);
    }
}
