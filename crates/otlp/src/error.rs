//! The errors of a batch, and of its rows.

/// A batch that is no OTLP message, and is rejected as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}, in {message}: {fault}")]
pub struct Malformed {
    /// The position of the fault in the batch, in bytes.
    pub at: usize,
    /// The name of the message with the fault.
    pub message: &'static str,
    /// The fault.
    pub fault: Fault,
}

/// [`Malformed`] within this crate: boxed, so that results fit into registers.
pub(crate) type Broken = Box<Malformed>;

/// A fault in the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum Fault {
    /// The batch ends within a number.
    #[error("a number is cut off")]
    CutOff,
    /// A number does not fit into 64 bits.
    #[error("a number has more than ten bytes")]
    TooLong,
    /// A length exceeds the rest of the message.
    #[error("a length of {len} bytes where the message has {left} more")]
    Length { len: u64, left: usize },
    /// A field number does not lie between 1 and 2^29 - 1.
    #[error("{0} is no field number")]
    FieldNumber(u64),
    /// A wire type is that of a group, which OTLP does not use, or is unknown to protobuf.
    #[error("a field of wire type {0}, which OTLP does not have")]
    WireType(u8),
    /// A known field has another wire type than in the schema.
    #[error("field {field} has wire type {found}, expected {expected}")]
    OtherType { field: u32, found: u8, expected: u8 },
    /// The batch is too large.
    #[error("the batch has {len} bytes, allowed are {max}")]
    Batch { len: usize, max: u32 },
    /// The batch has too many parts.
    #[error(
        "the batch has more than {max} resources, scopes, rows, attributes, events and links together"
    )]
    Parts { max: u32 },
    /// Messages are nested too deeply for JSON.
    #[error("messages are nested more than {max} deep")]
    Depth { max: u32 },
}

/// Why a row of a valid batch is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum RowFault {
    /// The trace ID is not 16 bytes, or all zeros.
    #[error("its trace ID is not 16 bytes, or zero")]
    TraceId,
    /// The span ID is not 8 bytes, or all zeros.
    #[error("its span ID is not 8 bytes, or zero")]
    SpanId,
    /// The parent's span ID is neither 8 bytes nor absent.
    #[error("its parent's span ID is not 8 bytes")]
    ParentId,
    /// A link has no trace ID of 16 bytes, or no span ID of 8 bytes.
    #[error("one of its links has no trace ID of 16 bytes, or no span ID of 8")]
    LinkId,
    /// A text is not UTF-8, as protobuf requires.
    #[error("one of its texts is not UTF-8")]
    NotUtf8,
    /// A time, in nanoseconds since 1970, does not fit into 63 bits.
    #[error("one of its times lies after the year 2262")]
    Time,
    /// The row, or one of its events or links, has too many attributes.
    #[error("more than {max} attributes")]
    Attributes { max: u32 },
    /// The row has too many events or links.
    #[error("more than {max} events or links")]
    Events { max: u32 },
    /// Lists or maps are nested too deeply.
    #[error("a value with lists or maps nested more than {max} deep")]
    Depth { max: u32 },
    /// The resource, scope or metric of the row is invalid.
    #[error(
        "its resource, scope or metric has too many attributes, values nested too deep, or text that is not UTF-8"
    )]
    Envelope,
}

/// The rejected rows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The number of rows.
    pub count: u64,
    /// The first rejected row.
    pub first: Option<RefusedRow>,
}

/// A rejected row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// The number of the row in the batch, from 1.
    pub number: u64,
    /// The trace ID of the row; zero: none.
    pub trace_id: u128,
    /// The span ID of the row; zero: none.
    pub span_id: u64,
    /// The reason.
    pub fault: RowFault,
}

impl Refused {
    pub(crate) fn add(&mut self, row: RefusedRow) {
        self.count += 1;
        self.first.get_or_insert(row);
    }
}

impl std::fmt::Display for RefusedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} of the batch", self.number)?;
        if self.span_id != 0 {
            write!(f, ", span {:016x}", self.span_id)?;
        }
        if self.trace_id != 0 {
            write!(f, ", trace {:032x}", self.trace_id)?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl std::fmt::Display for Refused {
    /// Writes a message for the sender: `3 rejected; the first is number 7 of the batch, span 00f067aa0ba902b7: its
    /// trace ID is not 16 bytes, or zero`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.first {
            Some(first) => write!(f, "{} rejected; the first is {first}", self.count),
            None => write!(f, "none rejected"),
        }
    }
}
