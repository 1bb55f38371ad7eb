//! The schema of OTLP's messages: numbers, JSON names and kinds of their fields.
//!
//! The decoders of rows are handwritten, for speed. The decoder of JSON, the check of a message and the texts of errors
//! use this schema.
//!
//! **Source**: opentelemetry-proto 1.9, the folders `common`, `resource`, `trace`, `logs`, `metrics`.

use crate::wire::{FIXED32, FIXED64, LEN, VARINT};

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) name: &'static str,
    /// The fields, ordered by number.
    pub(crate) fields: &'static [Field],
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// The name of the field in JSON.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_repeated: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    Bytes,
    /// Bytes that are hexadecimal digits in JSON.
    Id,
    Bool,
    /// The names of the values, from 0. Only traces have names, because they are also written in protobuf's own JSON.
    Enum(&'static [&'static str]),
    Uint32,
    /// An integer of 32 bits with the sign in the lowest bit.
    Sint32,
    Fixed32,
    /// An integer of 64 bits, which is text in JSON.
    Int64,
    Uint64,
    Fixed64,
    Sfixed64,
    Double,
    Message(&'static Message),
}

impl Kind {
    /// The wire type of one value.
    pub(crate) const fn wire_type(self) -> u8 {
        match self {
            Self::Text | Self::Bytes | Self::Id | Self::Message(_) => LEN,
            Self::Bool
            | Self::Enum(_)
            | Self::Uint32
            | Self::Sint32
            | Self::Int64
            | Self::Uint64 => VARINT,
            Self::Fixed32 => FIXED32,
            Self::Fixed64 | Self::Sfixed64 | Self::Double => FIXED64,
        }
    }
}

impl Field {
    /// Whether several numbers may be packed in one field.
    pub(crate) const fn may_be_packed(&self) -> bool {
        self.is_repeated && self.kind.wire_type() != LEN
    }
}

impl Message {
    pub(crate) fn field(&self, number: u32) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.number == number)
    }

    /// Whether the message is a list or a map, whose content is one level deeper.
    pub(crate) fn is_container(&self) -> bool {
        matches!(self.name, "ArrayValue" | "KeyValueList")
    }

    /// Returns the message of a field.
    pub(crate) fn part(&self, number: u32) -> &'static Self {
        match self.field(number).map(|field| field.kind) {
            Some(Kind::Message(message)) => message,
            _ => unreachable!("{}.{number} is no message", self.name),
        }
    }
}

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_repeated: false }
}

const fn many(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_repeated: true }
}

static SPAN_KINDS: [&str; 6] = [
    "SPAN_KIND_UNSPECIFIED",
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
];

static STATUS_CODES: [&str; 3] = ["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"];

macro_rules! messages {
    ($($constant:ident $name:literal { $($field:expr),* $(,)? })*) => {
        $(pub(crate) static $constant: Message =
            Message { name: $name, fields: &[$($field),*] };)*
    };
}

use Kind::{
    Bool, Bytes, Double, Enum, Fixed32, Fixed64, Id, Int64, Sfixed64, Sint32, Text, Uint32, Uint64,
};

messages! {
    TRACES "TracesData" { many(1, "resourceSpans", Kind::Message(&RESOURCE_SPANS)) }
    RESOURCE_SPANS "ResourceSpans" {
        one(1, "resource", Kind::Message(&RESOURCE)),
        many(2, "scopeSpans", Kind::Message(&SCOPE_SPANS)),
        one(3, "schemaUrl", Text),
    }
    SCOPE_SPANS "ScopeSpans" {
        one(1, "scope", Kind::Message(&SCOPE)),
        many(2, "spans", Kind::Message(&SPAN)),
        one(3, "schemaUrl", Text),
    }
    SPAN "Span" {
        one(1, "traceId", Id),
        one(2, "spanId", Id),
        one(3, "traceState", Text),
        one(4, "parentSpanId", Id),
        one(5, "name", Text),
        one(6, "kind", Enum(&SPAN_KINDS)),
        one(7, "startTimeUnixNano", Fixed64),
        one(8, "endTimeUnixNano", Fixed64),
        many(9, "attributes", Kind::Message(&KEY_VALUE)),
        one(10, "droppedAttributesCount", Uint32),
        many(11, "events", Kind::Message(&EVENT)),
        one(12, "droppedEventsCount", Uint32),
        many(13, "links", Kind::Message(&LINK)),
        one(14, "droppedLinksCount", Uint32),
        one(15, "status", Kind::Message(&STATUS)),
        one(16, "flags", Fixed32),
    }
    STATUS "Status" { one(2, "message", Text), one(3, "code", Enum(&STATUS_CODES)) }
    EVENT "Event" {
        one(1, "timeUnixNano", Fixed64),
        one(2, "name", Text),
        many(3, "attributes", Kind::Message(&KEY_VALUE)),
        one(4, "droppedAttributesCount", Uint32),
    }
    LINK "Link" {
        one(1, "traceId", Id),
        one(2, "spanId", Id),
        one(3, "traceState", Text),
        many(4, "attributes", Kind::Message(&KEY_VALUE)),
        one(5, "droppedAttributesCount", Uint32),
        one(6, "flags", Fixed32),
    }

    RESOURCE "Resource" {
        many(1, "attributes", Kind::Message(&KEY_VALUE)),
        one(2, "droppedAttributesCount", Uint32),
        many(3, "entityRefs", Kind::Message(&ENTITY_REF)),
    }
    ENTITY_REF "EntityRef" {
        one(1, "schemaUrl", Text),
        one(2, "type", Text),
        many(3, "idKeys", Text),
        many(4, "descriptionKeys", Text),
    }
    SCOPE "InstrumentationScope" {
        one(1, "name", Text),
        one(2, "version", Text),
        many(3, "attributes", Kind::Message(&KEY_VALUE)),
        one(4, "droppedAttributesCount", Uint32),
    }
    KEY_VALUE "KeyValue" { one(1, "key", Text), one(2, "value", Kind::Message(&ANY_VALUE)) }
    ANY_VALUE "AnyValue" {
        one(1, "stringValue", Text),
        one(2, "boolValue", Bool),
        one(3, "intValue", Int64),
        one(4, "doubleValue", Double),
        one(5, "arrayValue", Kind::Message(&ARRAY_VALUE)),
        one(6, "kvlistValue", Kind::Message(&KEY_VALUE_LIST)),
        one(7, "bytesValue", Bytes),
    }
    ARRAY_VALUE "ArrayValue" { many(1, "values", Kind::Message(&ANY_VALUE)) }
    KEY_VALUE_LIST "KeyValueList" { many(1, "values", Kind::Message(&KEY_VALUE)) }

    LOGS "LogsData" { many(1, "resourceLogs", Kind::Message(&RESOURCE_LOGS)) }
    RESOURCE_LOGS "ResourceLogs" {
        one(1, "resource", Kind::Message(&RESOURCE)),
        many(2, "scopeLogs", Kind::Message(&SCOPE_LOGS)),
        one(3, "schemaUrl", Text),
    }
    SCOPE_LOGS "ScopeLogs" {
        one(1, "scope", Kind::Message(&SCOPE)),
        many(2, "logRecords", Kind::Message(&LOG_RECORD)),
        one(3, "schemaUrl", Text),
    }
    LOG_RECORD "LogRecord" {
        one(1, "timeUnixNano", Fixed64),
        one(2, "severityNumber", Enum(&[])),
        one(3, "severityText", Text),
        one(5, "body", Kind::Message(&ANY_VALUE)),
        many(6, "attributes", Kind::Message(&KEY_VALUE)),
        one(7, "droppedAttributesCount", Uint32),
        one(8, "flags", Fixed32),
        one(9, "traceId", Id),
        one(10, "spanId", Id),
        one(11, "observedTimeUnixNano", Fixed64),
        one(12, "eventName", Text),
    }

    METRICS "MetricsData" { many(1, "resourceMetrics", Kind::Message(&RESOURCE_METRICS)) }
    RESOURCE_METRICS "ResourceMetrics" {
        one(1, "resource", Kind::Message(&RESOURCE)),
        many(2, "scopeMetrics", Kind::Message(&SCOPE_METRICS)),
        one(3, "schemaUrl", Text),
    }
    SCOPE_METRICS "ScopeMetrics" {
        one(1, "scope", Kind::Message(&SCOPE)),
        many(2, "metrics", Kind::Message(&METRIC)),
        one(3, "schemaUrl", Text),
    }
    METRIC "Metric" {
        one(1, "name", Text),
        one(2, "description", Text),
        one(3, "unit", Text),
        one(5, "gauge", Kind::Message(&GAUGE)),
        one(7, "sum", Kind::Message(&SUM)),
        one(9, "histogram", Kind::Message(&HISTOGRAM)),
        one(10, "exponentialHistogram", Kind::Message(&EXPONENTIAL_HISTOGRAM)),
        one(11, "summary", Kind::Message(&SUMMARY)),
        many(12, "metadata", Kind::Message(&KEY_VALUE)),
    }
    GAUGE "Gauge" { many(1, "dataPoints", Kind::Message(&NUMBER_POINT)) }
    SUM "Sum" {
        many(1, "dataPoints", Kind::Message(&NUMBER_POINT)),
        one(2, "aggregationTemporality", Enum(&[])),
        one(3, "isMonotonic", Bool),
    }
    HISTOGRAM "Histogram" {
        many(1, "dataPoints", Kind::Message(&HISTOGRAM_POINT)),
        one(2, "aggregationTemporality", Enum(&[])),
    }
    EXPONENTIAL_HISTOGRAM "ExponentialHistogram" {
        many(1, "dataPoints", Kind::Message(&EXPONENTIAL_POINT)),
        one(2, "aggregationTemporality", Enum(&[])),
    }
    SUMMARY "Summary" { many(1, "dataPoints", Kind::Message(&SUMMARY_POINT)) }
    NUMBER_POINT "NumberDataPoint" {
        one(2, "startTimeUnixNano", Fixed64),
        one(3, "timeUnixNano", Fixed64),
        one(4, "asDouble", Double),
        many(5, "exemplars", Kind::Message(&EXEMPLAR)),
        one(6, "asInt", Sfixed64),
        many(7, "attributes", Kind::Message(&KEY_VALUE)),
        one(8, "flags", Uint32),
    }
    HISTOGRAM_POINT "HistogramDataPoint" {
        one(2, "startTimeUnixNano", Fixed64),
        one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64),
        one(5, "sum", Double),
        many(6, "bucketCounts", Fixed64),
        many(7, "explicitBounds", Double),
        many(8, "exemplars", Kind::Message(&EXEMPLAR)),
        many(9, "attributes", Kind::Message(&KEY_VALUE)),
        one(10, "flags", Uint32),
        one(11, "min", Double),
        one(12, "max", Double),
    }
    EXPONENTIAL_POINT "ExponentialHistogramDataPoint" {
        many(1, "attributes", Kind::Message(&KEY_VALUE)),
        one(2, "startTimeUnixNano", Fixed64),
        one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64),
        one(5, "sum", Double),
        one(6, "scale", Sint32),
        one(7, "zeroCount", Fixed64),
        one(8, "positive", Kind::Message(&BUCKETS)),
        one(9, "negative", Kind::Message(&BUCKETS)),
        one(10, "flags", Uint32),
        many(11, "exemplars", Kind::Message(&EXEMPLAR)),
        one(12, "min", Double),
        one(13, "max", Double),
        one(14, "zeroThreshold", Double),
    }
    BUCKETS "Buckets" { one(1, "offset", Sint32), many(2, "bucketCounts", Uint64) }
    SUMMARY_POINT "SummaryDataPoint" {
        one(2, "startTimeUnixNano", Fixed64),
        one(3, "timeUnixNano", Fixed64),
        one(4, "count", Fixed64),
        one(5, "sum", Double),
        many(6, "quantileValues", Kind::Message(&VALUE_AT_QUANTILE)),
        many(7, "attributes", Kind::Message(&KEY_VALUE)),
        one(8, "flags", Uint32),
    }
    VALUE_AT_QUANTILE "ValueAtQuantile" { one(1, "quantile", Double), one(2, "value", Double) }
    EXEMPLAR "Exemplar" {
        one(2, "timeUnixNano", Fixed64),
        one(3, "asDouble", Double),
        one(4, "spanId", Id),
        one(5, "traceId", Id),
        one(6, "asInt", Sfixed64),
        many(7, "filteredAttributes", Kind::Message(&KEY_VALUE)),
    }
}
