//! The static table (RFC 7541, appendix A).

pub(super) const AUTHORITY_INDEX: u8 = 1;
pub(super) const METHOD_INDEX: u8 = 2;
pub(super) const PATH_INDEX: u8 = 4;
pub(super) const STATUS_INDEX: u8 = 8;

/// The entries, from index 1.
pub(super) static ENTRIES: [(&str, &str); 61] = TABLE;

const TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The index of the first entry that is not a pseudo-header.
const FIRST_FIELD: u8 = 15;

/// The number of entries that are not pseudo-headers.
const FIELDS: usize = TABLE.len() + 1 - FIRST_FIELD as usize;

/// Maximum length of a name in the table.
const NAME_LEN_MAX: usize = 27;

/// For each length of a name, the range of its entries in [`BY_LENGTH`].
static RANGES: [(u8, u8); NAME_LEN_MAX + 1] = RANGES_AND_ORDER.0;

/// The indices of the entries that are not pseudo-headers, by length of the name.
static BY_LENGTH: [u8; FIELDS] = RANGES_AND_ORDER.1;

const RANGES_AND_ORDER: ([(u8, u8); NAME_LEN_MAX + 1], [u8; FIELDS]) = {
    let (mut ranges, mut order) = ([(0, 0); NAME_LEN_MAX + 1], [0; FIELDS]);
    let (mut len, mut filled) = (0, 0_u8);
    while len <= NAME_LEN_MAX {
        let from = filled;
        let mut index = FIRST_FIELD;
        while index as usize <= TABLE.len() {
            if TABLE[index as usize - 1].0.len() == len {
                order[filled as usize] = index;
                filled += 1;
            }
            index += 1;
        }
        ranges[len] = (from, filled);
        len += 1;
    }
    (ranges, order)
};

/// Returns the index of a field's name, in lower case.
pub(super) fn index_of(name: &[u8]) -> Option<u8> {
    let (from, to) = *RANGES.get(name.len())?;
    let same_length = &BY_LENGTH[usize::from(from)..usize::from(to)];
    same_length.iter().copied().find(|index| ENTRIES[usize::from(*index) - 1].0.as_bytes() == name)
}
