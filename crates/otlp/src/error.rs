//! What can be wrong with a batch, and whose loss it is.

/// A batch that is no message of OTLP: all of it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}, in {message}: {fault}")]
pub struct Malformed {
    /// Where in the batch.
    pub at: usize,
    /// The message that it is in.
    pub message: &'static str,
    /// What is wrong.
    pub fault: Fault,
}

/// The same within this crate. It is never the usual case, and what is usual should fit into registers.
pub(crate) type Broken = Box<Malformed>;

/// What is wrong with the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The batch ends within a number.
    #[error("a number is cut off")]
    CutOff,
    /// A number that does not fit into 64 bits.
    #[error("a number has more than ten bytes")]
    TooLong,
    /// A length that leads out of the message.
    #[error("a length of {len} bytes where the message has {left} more")]
    Length {
        /// What is said.
        len: u64,
        /// What is there.
        left: usize,
    },
    /// A field number of protobuf lies between 1 and 2^29 - 1.
    #[error("{0} is no field number")]
    FieldNumber(u64),
    /// Groups, which OTLP has none of, and what protobuf does not know.
    #[error("a field of wire type {0}, which OTLP does not have")]
    WireType(u8),
    /// A known field in the form of another type.
    #[error("field {field} has wire type {found}, expected {expected}")]
    OtherType {
        /// Its number.
        field: u32,
        /// What came.
        found: u8,
        /// What the schema says.
        expected: u8,
    },
    /// The whole batch.
    #[error("the batch has {len} bytes, allowed are {max}")]
    Batch {
        /// What came.
        len: usize,
        /// [`crate::Limits::batch_bytes`].
        max: u32,
    },
    /// What a batch consists of.
    #[error(
        "the batch has more than {max} resources, scopes, rows, attributes, events and links together"
    )]
    Parts {
        /// [`crate::Limits::parts`].
        max: u32,
    },
    /// Lists or maps in each other.
    #[error("values lie more than {max} deep in each other")]
    Depth {
        /// [`crate::Limits::depth`].
        max: u32,
    },
}

/// Why a row is left out of a batch that is otherwise good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// 16 bytes that are not all zero are expected.
    #[error("its trace ID is not 16 bytes, or zero")]
    TraceId,
    /// 8 bytes that are not all zero are expected.
    #[error("its span ID is not 8 bytes, or zero")]
    SpanId,
    /// 8 bytes, or none, are expected.
    #[error("its parent's span ID is not 8 bytes")]
    ParentId,
    /// 16 and 8 bytes are expected.
    #[error("one of its links has no trace ID of 16 bytes, or no span ID of 8")]
    LinkId,
    /// Protobuf's strings are UTF-8.
    #[error("one of its texts is not UTF-8")]
    NotUtf8,
    /// Nanoseconds since 1970 must fit into 63 bits.
    #[error("one of its times lies after the year 2262")]
    Time,
    /// More than [`crate::Limits::attributes`].
    #[error("it has more attributes than are allowed")]
    Attributes,
    /// More than [`crate::Limits::events`].
    #[error("it has more events or links than are allowed")]
    Events,
    /// What stands around it has more attributes than are allowed, or text that is not UTF-8.
    #[error("its resource, scope or metric has too many attributes, or text that is not UTF-8")]
    Around,
}

/// Rows that were left out of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub count: u64,
    /// Why the first of them was.
    pub first: Option<RowFault>,
}

impl Refused {
    pub(crate) fn add(&mut self, fault: RowFault) {
        self.count += 1;
        self.first.get_or_insert(fault);
    }
}

impl std::fmt::Display for Refused {
    /// For the sender: `3 refused; the first: its trace ID is not 16 bytes, or zero`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.first {
            Some(first) => write!(f, "{} refused; the first: {first}", self.count),
            None => write!(f, "none refused"),
        }
    }
}
