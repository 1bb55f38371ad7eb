//! HPACK, the compression of HTTP/2's headers (RFC 7541).
//!
//! **Encoder**: only entries of the static table and literals, as in `HAProxy`: without a dynamic table and without
//! Huffman codes, an encoder has no state and copies each text once. A header takes more bytes on the wire.
//! **Limits**: the decoder's dynamic table has the default size, [`TABLE_BYTES_MAX`]. The caller limits the size of a
//! block, and of the fields.

mod decoder;
mod encoder;
mod huffman;
mod static_table;

pub(super) use decoder::{Decoder, InvalidBlock};
pub(super) use encoder::{
    encode_authority, encode_field, encode_method, encode_path, encode_scheme, encode_status,
    encode_table_size_zero,
};

/// Maximum size of the dynamic table before any setting (RFC 9113, section 6.5.2).
pub(super) const TABLE_BYTES_MAX: usize = 4_096;

/// The overhead of a field in the size of a table and of a header list (RFC 7541, section 4.1).
pub(super) const FIELD_BYTES: usize = 32;
