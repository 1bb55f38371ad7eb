//! A dictionary of distinct values.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;
use std::hint;
use std::ops::{BitXor, Range};

/// The distinct values of a column, in Parquet's plain encoding. Codes count from one; zero is null.
#[derive(Clone, Debug)]
pub struct Dictionary {
    form: Plain,
    plain: Vec<u8>,
    /// The end of each value in `plain`.
    ends: Vec<u32>,
    /// The values by hash, except those that [`Self::append`] added.
    found: HashTable<Found>,
    hasher: DefaultHashBuilder,
    /// The last interned value: consecutive values are often equal.
    last: Found,
}

/// An interned value and its position: a lookup in `ends` would miss the cache in a large dictionary.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    hash: u32,
    code: u32,
    /// The position in `plain`. At the position of a text is its length, then its bytes.
    at: u32,
}

/// The plain encoding of the values of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// A text: its length in four bytes, then its bytes.
    Text,
    /// Eight bytes.
    Eight,
    /// One byte, which is one bit in Parquet.
    One,
}

impl Plain {
    const fn prefix(self) -> usize {
        match self {
            Self::Text => 4,
            Self::Eight | Self::One => 0,
        }
    }
}

impl Dictionary {
    /// An empty dictionary.
    #[must_use]
    pub fn new(form: Plain) -> Self {
        Self {
            form,
            plain: Vec::new(),
            ends: Vec::new(),
            found: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            last: Found::default(),
        }
    }

    /// The encoding of the values.
    #[must_use]
    pub const fn form(&self) -> Plain {
        self.form
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> u32 {
        short(self.ends.len())
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All values in plain encoding.
    #[must_use]
    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// The size in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.plain.capacity() + self.ends.capacity() * 4 + self.found.allocation_size()
    }

    /// The code of a value, which is added if it is new.
    pub fn intern(&mut self, value: &[u8]) -> u32 {
        if self.last.code != 0 && is_same(self.at(self.last.at), value) {
            return self.last.code;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a half is enough")]
        let hash = self.hasher.hash_one(value) as u32;
        let is_it = |found: &Found| found.hash == hash && is_same(self.at(found.at), value);
        self.last = match self.found.find(spread(hash), is_it) {
            Some(found) => *found,
            None => self.add(value, hash),
        };
        self.last.code
    }

    fn add(&mut self, value: &[u8], hash: u32) -> Found {
        let at = short(self.plain.len());
        let found = Found { hash, code: self.append(value), at };
        self.found.insert_unique(spread(hash), found, |found| spread(found.hash));
        found
    }

    /// The value at a position.
    fn at(&self, at: u32) -> &[u8] {
        let from = &self.plain[at as usize..];
        match self.form {
            Plain::Text => {
                let (len, text) = from.split_first_chunk().expect("a length is before it");
                &text[..u32::from_le_bytes(*len) as usize]
            }
            Plain::Eight => &from[..8],
            Plain::One => &from[..1],
        }
    }

    /// Adds a value without a lookup. [`Self::intern`] does not find it.
    pub fn append(&mut self, value: &[u8]) -> u32 {
        if self.form == Plain::Text {
            self.plain.extend_from_slice(&short(value.len()).to_le_bytes());
        }
        self.plain.extend_from_slice(value);
        self.ends.push(short(self.plain.len()));
        self.len()
    }

    /// Appends values of another dictionary of this form by their codes; no code may be zero. The first bytes of several
    /// values are read before the values are copied, so that their cache misses overlap.
    pub(crate) fn append_from(&mut self, other: &Self, codes: &[u32]) {
        const AT_ONCE: usize = 16;
        for codes in codes.chunks(AT_ONCE) {
            let mut places = [const { 0..0 }; AT_ONCE];
            for (place, code) in places.iter_mut().zip(codes) {
                *place = range(&other.ends, 0, *code);
            }
            let places = &places[..codes.len()];
            let first = |place: &Range<usize>| other.plain.get(place.start).copied().unwrap_or(0);
            hint::black_box(places.iter().map(first).fold(0, BitXor::bitxor));
            for place in places {
                self.plain.extend_from_slice(&other.plain[place.clone()]);
                self.ends.push(short(self.plain.len()));
            }
        }
    }

    /// The value of a code, which is not zero.
    ///
    /// # Panics
    /// When the dictionary has no such code.
    #[must_use]
    pub fn get(&self, code: u32) -> &[u8] {
        &self.plain[range(&self.ends, self.form.prefix(), code)]
    }

    /// The value of a code in plain encoding.
    #[must_use]
    pub fn get_plain(&self, code: u32) -> &[u8] {
        &self.plain[range(&self.ends, 0, code)]
    }

    /// A copy without the lookup table.
    pub(crate) fn copy(&self) -> Self {
        Self { plain: self.plain.clone(), ends: self.ends.clone(), ..Self::new(self.form) }
    }

    /// Reads `count` values in plain encoding; [`None`] if they are truncated.
    pub(crate) fn from_plain(form: Plain, plain: Vec<u8>, count: usize) -> Option<Self> {
        let mut ends = Vec::with_capacity(count.min(plain.len()));
        let mut at = 0_usize;
        for _ in 0..count {
            at += match form {
                Plain::Text => 4 + u32::from_le_bytes(*plain.get(at..)?.first_chunk()?) as usize,
                Plain::Eight => 8,
                Plain::One => 1,
            };
            if at > plain.len() {
                return None;
            }
            ends.push(short(at));
        }
        Some(Self { plain, ends, ..Self::new(form) })
    }

    /// All values, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (1..self.len() + 1).map(|code| self.get(code))
    }
}

/// Spreads the hash over the bits that the table uses.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The range of a value in `plain`, without its prefix.
#[inline]
fn range(ends: &[u32], prefix: usize, code: u32) -> Range<usize> {
    let nth = code as usize - 1;
    let from = if nth == 0 { 0 } else { ends[nth - 1] as usize };
    from + prefix..ends[nth] as usize
}

/// Whether two values are equal. Most are short, so a call of `memcmp` would take longer.
#[inline]
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    /// Whether the first and the last `N` bytes are the same.
    fn ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
        one.first_chunk::<N>() == other.first_chunk() && one.last_chunk::<N>() == other.last_chunk()
    }
    match one.len() {
        0..4 => one.iter().eq(other),
        4..8 => ends::<4>(one, other),
        8..=16 => ends::<8>(one, other),
        17..=32 => ends::<16>(one, other),
        _ => one == other,
    }
}

/// Converts a position or a number of rows: columns in memory have less than 4 GiB and 2^32 rows.
pub(crate) fn short(number: usize) -> u32 {
    u32::try_from(number).expect("memory is bounded")
}
