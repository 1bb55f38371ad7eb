//! Decodes the values of a column chunk.

use super::page::{Header, Of};
use crate::columns::{Coded, Column, Dictionary, Lists, Plain, Values, text};
use crate::encoding::{Damaged, deltas, hybrid};
use crate::schema::{Field, Form, Kind, Presence};
use bytes::{Buf as _, Bytes};
use parquet::basic::Encoding;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

/// Maximum size of a page before compression.
const PAGE_BYTES_MAX: usize = 1 << 30;

/// The bytes of one column chunk, or of some of its pages.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) is_compressed: bool,
    /// The dictionary page, if there is one, then consecutive pages.
    pub(super) parts: Vec<Bytes>,
}

thread_local! {
    /// One for each thread, because creating it takes as long as decompressing a page.
    static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> =
        RefCell::new(zstd::bulk::Decompressor::new().expect("memory for it"));
}

/// Decodes the values of a chunk.
pub(super) struct Decoder<'a> {
    kind: Kind,
    presence: Presence,
    is_compressed: bool,
    parts: std::slice::Iter<'a, Bytes>,
    rest: Bytes,
}

/// One page, uncompressed.
struct Body {
    header: Header,
    bytes: Bytes,
}

/// The values of a field in some rows, which are counted from the first row in `stored`.
pub(super) fn column(
    field: &Field,
    stored: &[Stored],
    rows: &Range<usize>,
) -> Result<Column, Damaged> {
    if let Form::One(kind, presence) = field.form {
        let [stored] = stored else { return Err(Damaged("a column is missing")) };
        return Ok(Column::One(Decoder::new(kind, presence, stored).one(rows)?));
    }
    let mut ends = Vec::new();
    let mut parts = Vec::new();
    for ((_, kind), stored) in field.form.parts().into_iter().zip(stored) {
        let decoder = Decoder::new(kind, Presence::Required, stored);
        let (of_part, values) = decoder.many(rows)?;
        if !parts.is_empty() && of_part != ends {
            return Err(Damaged("parts of a list have different lengths"));
        }
        ends = of_part;
        parts.push(values);
    }
    Ok(Column::Many(Lists::from_parts(ends, parts)))
}

/// Whether the dictionary of a map has one of the keys; true if there is no dictionary.
pub(super) fn may_have_key(stored: &Stored, keys: &BTreeSet<String>) -> Result<bool, Damaged> {
    let mut decoder = Decoder::new(Kind::Text, Presence::Required, stored);
    let Some(Body { header: Header { of: Of::Dictionary, values: count, .. }, bytes }) =
        decoder.next_page()?
    else {
        return Ok(true);
    };
    let mut values = Values::new(Kind::Text);
    read_dictionary(&mut values, &bytes, count)?;
    let Values::Coded(Coded { dictionary, .. }) = values else { return Ok(true) };
    Ok(dictionary.iter().any(|key| keys.contains(text(key))))
}

impl<'a> Decoder<'a> {
    fn new(kind: Kind, presence: Presence, stored: &'a Stored) -> Self {
        let (is_compressed, parts) = (stored.is_compressed, stored.parts.iter());
        Self { kind, presence, is_compressed, parts, rest: Bytes::new() }
    }

    fn one(mut self, rows: &Range<usize>) -> Result<Values, Damaged> {
        let mut values = Values::new(self.kind);
        values.reserve(rows.len());
        let mut at = 0;
        while at < rows.end {
            let Some(Body { header, bytes }) = self.next(&mut values)? else {
                return Err(Damaged("rows are missing"));
            };
            let of_page = overlap(rows, at, header.values);
            at += header.values;
            let mut body = &*bytes;
            let levels = match self.presence {
                Presence::Required => None,
                Presence::Optional => Some(take_levels(&mut body)?),
            };
            let page = Page { encoding: header.encoding, values: header.values, body, levels };
            page.read(&mut values, of_page)?;
        }
        Ok(values)
    }

    fn many(mut self, rows: &Range<usize>) -> Result<(Vec<u32>, Values), Damaged> {
        let mut values = Values::new(self.kind);
        let (mut ends, mut entries, mut row) = (Vec::with_capacity(rows.len()), 0_u32, 0);
        while let Some(Body { header, bytes }) = self.next(&mut values)? {
            let mut body = &*bytes;
            let (mut begins, mut present) = (Vec::new(), Vec::new());
            hybrid::decode(&mut begins, take_levels(&mut body)?, 1, 0..header.values)?;
            hybrid::decode(&mut present, take_levels(&mut body)?, 1, 0..header.values)?;
            let (mut before, mut within) = (0, 0);
            for (repeated, present) in begins.into_iter().zip(present) {
                row += usize::from(repeated == 0);
                let Some(nth) = row.checked_sub(1) else {
                    return Err(Damaged("a list has no row"));
                };
                if nth < rows.start {
                    before += present as usize;
                } else if nth < rows.end {
                    within += present as usize;
                    entries += present;
                    if repeated == 0 {
                        ends.push(entries);
                    } else if let Some(end) = ends.last_mut() {
                        *end = entries;
                    }
                }
            }
            let page =
                Page { encoding: header.encoding, values: header.values, body, levels: None };
            page.read(&mut values, before..before + within)?;
        }
        if ends.len() != rows.len() {
            return Err(Damaged("rows are missing"));
        }
        Ok((ends, values))
    }

    /// The next page of values. The dictionary before it goes into `values`.
    fn next(&mut self, values: &mut Values) -> Result<Option<Body>, Damaged> {
        while let Some(page) = self.next_page()? {
            match page.header.of {
                Of::Data => return Ok(Some(page)),
                Of::Dictionary => read_dictionary(values, &page.bytes, page.header.values)?,
            }
        }
        Ok(None)
    }

    fn next_page(&mut self) -> Result<Option<Body>, Damaged> {
        while self.rest.is_empty() {
            let Some(part) = self.parts.next() else { return Ok(None) };
            self.rest = part.clone();
        }
        let mut rest = &*self.rest;
        let header = Header::take(&mut rest)?;
        if rest.len() < header.len {
            return Err(Damaged("a page is cut off"));
        }
        self.rest.advance(self.rest.len() - rest.len());
        let body = self.rest.split_to(header.len);
        if crc32fast::hash(&body) != header.checksum {
            return Err(Damaged("a page has the wrong checksum"));
        }
        let bytes = self.uncompressed(body, header.raw_len)?;
        Ok(Some(Body { header, bytes }))
    }

    fn uncompressed(&self, body: Bytes, len: usize) -> Result<Bytes, Damaged> {
        if !self.is_compressed {
            return Ok(body);
        }
        if len > PAGE_BYTES_MAX {
            return Err(Damaged("a page is too large"));
        }
        let raw = DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(&body, len));
        let raw = raw.map_err(|_| Damaged("a page cannot be decompressed"))?;
        Ok(raw.into())
    }
}

/// The part of `rows` in the page with the `len` rows from `at` on, counted from `at`.
fn overlap(rows: &Range<usize>, at: usize, len: usize) -> Range<usize> {
    let from = rows.start.saturating_sub(at).min(len);
    from..(rows.end - at).min(len)
}

/// Takes levels of zero or one, which follow their length.
fn take_levels<'a>(body: &mut &'a [u8]) -> Result<&'a [u8], Damaged> {
    let wrong = Damaged("the levels of a page are cut off");
    let (len, rest) = body.split_first_chunk::<4>().ok_or(wrong)?;
    let (levels, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(wrong)?;
    *body = rest;
    Ok(levels)
}

fn read_dictionary(values: &mut Values, bytes: &[u8], count: usize) -> Result<(), Damaged> {
    let Values::Coded(Coded { dictionary, .. }) = values else {
        return Err(Damaged("a dictionary in a column that has none"));
    };
    *dictionary = Dictionary::from_plain(dictionary.form(), bytes.to_vec(), count)
        .ok_or(Damaged("values of a dictionary are cut off"))?;
    Ok(())
}

fn take_plain<'a>(bytes: &mut &'a [u8], form: Plain) -> Result<&'a [u8], Damaged> {
    let cut_off = Damaged("values are cut off");
    let len = match form {
        Plain::Text => {
            let (len, rest) = bytes.split_first_chunk::<4>().ok_or(cut_off)?;
            *bytes = rest;
            u32::from_le_bytes(*len) as usize
        }
        Plain::Eight => 8,
        Plain::One => 1,
    };
    let (value, rest) = bytes.split_at_checked(len).ok_or(cut_off)?;
    *bytes = rest;
    Ok(value)
}

/// The values of a page.
struct Page<'a> {
    encoding: i32,
    /// The maximum number of values: the number of rows or entries.
    values: usize,
    /// The encoded values that are not null.
    body: &'a [u8],
    /// The levels that say whether each row has a value; [`None`]: all rows have one.
    levels: Option<&'a [u8]>,
}

impl Page<'_> {
    /// Appends values of some rows.
    fn read(self, into: &mut Values, rows: Range<usize>) -> Result<(), Damaged> {
        let Some(levels) = self.levels else { return self.read_values(into, rows) };
        let before = hybrid::ones(levels, rows.start)?;
        let there = before..hybrid::ones(levels, rows.end)?;
        if there.len() == rows.len() {
            return self.read_values(into, there);
        }
        let mut present = Vec::new();
        hybrid::decode(&mut present, levels, 1, rows)?;
        let at = into.len();
        self.read_values(into, there)?;
        into.spread(at, &present);
        Ok(())
    }

    /// Appends some of the values that are not null.
    fn read_values(self, into: &mut Values, range: Range<usize>) -> Result<(), Damaged> {
        if range.is_empty() {
            return Ok(());
        }
        match into {
            Values::Wide(wide) => {
                let ids = side_by_side(self.body, self.values, &range)?;
                wide.extend(ids.iter().map(|id| u128::from_be_bytes(*id)));
            }
            Values::Narrow(narrow) => {
                let ids = side_by_side(self.body, self.values, &range)?;
                narrow.extend(ids.iter().map(|id| u64::from_be_bytes(*id)));
            }
            Values::Longs(longs) => {
                let at = longs.len();
                deltas::take(longs, &mut &*self.body, self.values)?;
                if longs.len() - at < range.end {
                    return Err(MISSING);
                }
                longs.truncate(at + range.end);
                longs.drain(at..at + range.start);
            }
            Values::Coded(coded) => return self.read_coded(coded, range),
        }
        Ok(())
    }

    fn read_coded(self, into: &mut Coded, range: Range<usize>) -> Result<(), Damaged> {
        let Coded { dictionary, codes } = into;
        if self.encoding == Encoding::RLE_DICTIONARY as i32 {
            let (width, numbers) = self.body.split_first().ok_or(MISSING)?;
            let at = codes.len();
            hybrid::decode(codes, numbers, *width, range)?;
            let len = dictionary.len();
            if codes[at..].iter().any(|number| *number >= len) {
                return Err(Damaged("a number is of no value in the dictionary"));
            }
            codes[at..].iter_mut().for_each(|number| *number += 1);
        } else if self.encoding == Encoding::DELTA_BINARY_PACKED as i32 {
            let mut numbers = Vec::new();
            deltas::take(&mut numbers, &mut &*self.body, self.values)?;
            let numbers = numbers.get(range).ok_or(MISSING)?;
            codes.extend(numbers.iter().map(|number| dictionary.append(&number.to_le_bytes())));
        } else if dictionary.form() == Plain::One {
            for nth in range {
                let byte = self.body.get(nth / 8).ok_or(MISSING)?;
                codes.push(dictionary.intern(&[byte >> (nth % 8) & 1]));
            }
        } else {
            let mut body = self.body;
            for nth in 0..range.end {
                let value = take_plain(&mut body, dictionary.form())?;
                if nth >= range.start {
                    codes.push(dictionary.append(value));
                }
            }
        }
        Ok(())
    }
}

const MISSING: Damaged = Damaged("values are missing");

/// Some of the IDs of a page, in which the lengths precede the IDs.
fn side_by_side<'a, const N: usize>(
    mut body: &'a [u8],
    max: usize,
    range: &Range<usize>,
) -> Result<&'a [[u8; N]], Damaged> {
    let mut lengths = Vec::new();
    deltas::take(&mut lengths, &mut body, max)?;
    let len = i64::try_from(N).expect("an ID is short");
    if lengths.iter().any(|each| *each != len) {
        return Err(Damaged("IDs have other lengths than IDs have"));
    }
    body.as_chunks::<N>().0.get(range.clone()).ok_or(MISSING)
}
