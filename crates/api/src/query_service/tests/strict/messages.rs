//! Tempo's messages in protobuf's JSON: a missing field has its default, an unknown field is an error.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A 64-bit number, which is text in protobuf's JSON.
#[derive(Debug, Default)]
pub(super) struct Uint64(pub(super) u64);

impl<'de> Deserialize<'de> for Uint64 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// Bytes, which are base64 in protobuf's JSON.
#[derive(Debug, Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}

/// A double: a number, or one of three texts.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
pub(super) enum Double {
    #[default]
    None,
    Finite(f64),
    NamedDouble(NamedDouble),
}

#[derive(Debug, Deserialize)]
pub(super) enum NamedDouble {
    NaN,
    Infinity,
    #[serde(rename = "-Infinity")]
    NegativeInfinity,
}

macro_rules! messages {
    ($($name:ident { $($(#[$rename:meta])? $field:ident: $kind:ty),* $(,)? })*) => {
        $(
            #[derive(Debug, Default, Deserialize)]
            #[serde(deny_unknown_fields, default, rename_all = "camelCase")]
            pub(super) struct $name { $($(#[$rename])? pub(super) $field: $kind),* }
        )*
    };
}

messages! {
    SearchResponse { traces: Vec<TraceSearchMetadata>, metrics: SearchMetrics }
    TraceSearchMetadata {
        #[serde(rename = "traceID")]
        trace_id: String,
        root_service_name: String,
        root_trace_name: String,
        start_time_unix_nano: Uint64,
        duration_ms: u32,
        span_set: SpanSet,
        span_sets: Vec<SpanSet>,
        service_stats: BTreeMap<String, ServiceStats>,
    }
    ServiceStats { span_count: u32, error_count: u32 }
    SpanSet { spans: Vec<Span>, matched: u32, attributes: Vec<KeyValue> }
    Span {
        #[serde(rename = "spanID")]
        span_id: String,
        name: String,
        start_time_unix_nano: Uint64,
        duration_nanos: Uint64,
        attributes: Vec<KeyValue>,
    }
    SearchMetrics {
        inspected_traces: u32,
        inspected_bytes: Uint64,
        total_blocks: u32,
        completed_jobs: u32,
        total_jobs: u32,
        total_block_bytes: Uint64,
        inspected_spans: Uint64,
    }
    MetadataMetrics { inspected_bytes: Uint64, total_jobs: u32, completed_jobs: u32 }
    QueryRangeResponse {
        series: Vec<TimeSeries>,
        metrics: SearchMetrics,
        status: Option<PartialStatus>,
        message: String,
    }
    TimeSeries { labels: Vec<KeyValue>, samples: Vec<Sample>, exemplars: Vec<Exemplar> }
    Sample { timestamp_ms: Uint64, value: Double }
    Exemplar { labels: Vec<KeyValue>, value: Double, timestamp_ms: Uint64 }
    QueryInstantResponse {
        series: Vec<InstantSeries>,
        metrics: SearchMetrics,
        status: Option<PartialStatus>,
        message: String,
    }
    InstantSeries { labels: Vec<KeyValue>, value: Double }
    SearchTagsResponse { tag_names: Vec<String>, metrics: MetadataMetrics }
    SearchTagsV2Response { scopes: Vec<SearchTagsV2Scope>, metrics: MetadataMetrics }
    SearchTagsV2Scope { name: String, tags: Vec<String> }
    SearchTagValuesResponse { tag_values: Vec<String>, metrics: MetadataMetrics }
    SearchTagValuesV2Response { tag_values: Vec<TagValue>, metrics: MetadataMetrics }
    TagValue { r#type: String, value: String }
    Trace { batches: Vec<ResourceSpans> }
    TraceByIdResponse {
        trace: ResourceSpansList,
        metrics: MetadataMetrics,
        status: Option<PartialStatus>,
        message: String,
    }
    ResourceSpansList { resource_spans: Vec<ResourceSpans> }
    ResourceSpans { resource: Option<Resource>, scope_spans: Vec<ScopeSpans>, schema_url: String }
    Resource { attributes: Vec<KeyValue>, dropped_attributes_count: u32 }
    ScopeSpans { scope: Option<Scope>, spans: Vec<OtlpSpan>, schema_url: String }
    Scope {
        name: String,
        version: String,
        attributes: Vec<KeyValue>,
        dropped_attributes_count: u32,
    }
    OtlpSpan {
        trace_id: Bytes,
        span_id: Bytes,
        trace_state: String,
        parent_span_id: Bytes,
        flags: u32,
        name: String,
        kind: SpanKind,
        start_time_unix_nano: Uint64,
        end_time_unix_nano: Uint64,
        attributes: Vec<KeyValue>,
        dropped_attributes_count: u32,
        events: Vec<Event>,
        dropped_events_count: u32,
        dropped_links_count: u32,
        status: Option<Status>,
    }
    Event {
        time_unix_nano: Uint64,
        name: String,
        attributes: Vec<KeyValue>,
        dropped_attributes_count: u32,
    }
    Status { message: String, code: StatusCode }
    KeyValue { key: String, value: AnyValue }
    AnyValue {
        string_value: Option<String>,
        int_value: Option<String>,
        double_value: Option<Double>,
        bool_value: Option<bool>,
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) enum SpanKind {
    #[default]
    #[serde(rename = "SPAN_KIND_UNSPECIFIED")]
    Unspecified,
    #[serde(rename = "SPAN_KIND_INTERNAL")]
    Internal,
    #[serde(rename = "SPAN_KIND_SERVER")]
    Server,
    #[serde(rename = "SPAN_KIND_CLIENT")]
    Client,
    #[serde(rename = "SPAN_KIND_PRODUCER")]
    Producer,
    #[serde(rename = "SPAN_KIND_CONSUMER")]
    Consumer,
}

#[derive(Debug, Default, Deserialize)]
pub(super) enum StatusCode {
    #[default]
    #[serde(rename = "STATUS_CODE_UNSET")]
    Unset,
    #[serde(rename = "STATUS_CODE_OK")]
    Ok,
    #[serde(rename = "STATUS_CODE_ERROR")]
    Error,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum PartialStatus {
    Complete,
    Partial,
}
