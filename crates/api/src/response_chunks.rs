//! Streams traces and their log records in chunks. Only a window of rows and one chunk are in memory at a time.
//!
//! | form | a trace beyond the maximum of spans or bytes in [`Limits`] |
//! |---|---|
//! | version 2 of Tempo's API | its first spans, with `status: PARTIAL` and a `message`, as in Tempo |
//! | Jaeger's UI | its first spans, with a warning |
//! | all others, which have no field for a partial trace | 422, or an aborted response if it has begun |

use crate::Limits;
use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, trace_id};
use curtail_otlp::{BadRow, BatchWriter, Signal, json};
use curtail_protobuf::{bytes_field, varint_field};
use curtail_store::Columns;
use curtail_store::batch::{write_log, write_span};
use curtail_store::tree::{RowsWithId, Tree, Unread};
use futures_util::future::BoxFuture;

/// The approximate length of a chunk; the last row may exceed it.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// The number of rows that are read at once: those of a page of a run.
pub(crate) const WINDOW_ROWS: usize = 8_192;

/// The message of a trace that exceeds the maximum size, worded as in Tempo.
pub(crate) const TOO_LONG: &str =
    "Trace exceeds maximum size of a response, a partial trace is returned";

/// A response in chunks.
pub(crate) trait ResponseChunks: Send {
    /// Returns the next chunk; [`None`] after the last chunk.
    fn next(&mut self) -> NextChunk<'_>;

    /// Returns the runs that could not be read and may have more rows.
    fn unread(&self) -> &[Unread];

    /// Whether the response has a field to report missing rows; otherwise it is aborted if rows are missing.
    fn has_status(&self) -> bool;

    /// Returns the media type.
    fn content_type(&self) -> &'static str;
}

pub(crate) type NextChunk<'a> = BoxFuture<'a, Result<Option<Vec<u8>>, ApiError>>;

/// A signal, and the function that adds a row of its table to a batch.
#[derive(Clone, Copy)]
pub(crate) struct OtlpRows {
    signal: Signal,
    write: fn(&mut BatchWriter, &Columns, usize) -> Result<(), BadRow>,
}

pub(crate) const SPANS: OtlpRows = OtlpRows { signal: Signal::Traces, write: write_span };
pub(crate) const LOGS: OtlpRows = OtlpRows { signal: Signal::Logs, write: write_log };

/// Finds the spans of the trace with the ID `id` (text).
pub(crate) async fn find_trace(
    spans: &Tree,
    limits: &Limits,
    request: &QueryRequest<'_>,
    id: &str,
) -> Result<RowsWithId, ApiError> {
    let found = spans.rows_with_id(request.tenant, trace_id(id)?, limits.trace_spans).await;
    if found.is_empty() && found.unread().is_empty() {
        return Err(ApiError::not_found("there is no such trace"));
    }
    Ok(found)
}

/// Reads the rows with one ID, in order.
#[derive(Debug)]
pub(crate) struct RowReader {
    found: RowsWithId,
    fields: Vec<usize>,
    /// The index of the first row after the window.
    next: usize,
    window: Columns,
    /// The next row in the window.
    row: usize,
    unread: Vec<Unread>,
}

impl RowReader {
    pub(crate) fn new(found: RowsWithId) -> Self {
        let schema = found.table().schema();
        Self {
            fields: (0..schema.fields().len()).collect(),
            next: 0,
            window: Columns::new(schema),
            row: 0,
            unread: found.unread().to_vec(),
            found,
        }
    }

    /// Reads the next window; returns false when there are no more rows.
    pub(crate) async fn fill(&mut self) -> bool {
        while self.row == self.window.len() {
            if self.next == self.found.len() {
                return false;
            }
            let to = self.found.len().min(self.next + WINDOW_ROWS);
            let window = self.found.window(&self.fields, self.next..to).await;
            (self.next, self.row, self.window) = (to, 0, window.rows);
            self.unread.extend(window.unread);
            // Yields, so that a cancelled or timed-out query stops here.
            tokio::task::yield_now().await;
        }
        true
    }

    /// Takes the next row of the window; returns its index in the window.
    pub(crate) const fn take(&mut self) -> usize {
        self.row += 1;
        self.row - 1
    }

    pub(crate) const fn window(&self) -> &Columns {
        &self.window
    }

    /// Whether all rows of the window are taken.
    pub(crate) const fn is_taken(&self) -> bool {
        self.row == self.window.len()
    }

    pub(crate) fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// Returns the unreadable runs that were discovered while rows were read.
    pub(crate) fn late_unread(&self) -> &[Unread] {
        &self.unread[self.found.unread().len()..]
    }

    /// Returns the reason for missing rows, unless the reason is the maximum size of the response.
    pub(crate) fn partial(&self) -> Option<String> {
        if self.found.found() > self.found.len() {
            let (found, max) = (self.found.found(), self.found.len());
            return Some(format!("Trace has {found} spans, the first {max} are returned"));
        }
        // Runs that were known to be unreadable before are in the response header.
        let late = self.late_unread().len();
        (late > 0).then(|| format!("{late} runs cannot be read and may have more spans"))
    }
}

/// The encoding of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtlpForm {
    /// The mapping to JSON; absent: protobuf.
    json: Option<json::Mapping>,
    /// The JSON before the list of resources, and the JSON after the list, without the last brace.
    around: [&'static str; 2],
    /// Whether the form has a field to report missing rows.
    has_status: bool,
}

impl OtlpForm {
    /// `Trace`, which has the same encoding as OTLP's message; or that message.
    pub(crate) const PROTOBUF: Self = Self { json: None, around: [""; 2], has_status: false };
    /// `TraceByIDResponse`, whose first field is a `Trace`.
    pub(crate) const PROTOBUF_RESPONSE: Self = Self { has_status: true, ..Self::PROTOBUF };
    /// `Trace` in Tempo's JSON.
    pub(crate) const TEMPO_JSON: Self =
        Self { json: Some(json::Mapping::Protobuf), ..Self::json(r#"{"batches":["#, "]") };
    /// `TraceByIDResponse` in Tempo's JSON.
    pub(crate) const JSON_RESPONSE: Self = Self {
        around: [r#"{"trace":{"resourceSpans":["#, r#"]},"metrics":{}"#],
        has_status: true,
        ..Self::TEMPO_JSON
    };

    /// OTLP's JSON between `before` and `after`, followed by a brace.
    pub(crate) const fn json(before: &'static str, after: &'static str) -> Self {
        Self { json: Some(json::Mapping::Otlp), around: [before, after], has_status: false }
    }

    /// Adds a batch; `is_first` is true for the first batch.
    fn batch(
        self,
        out: &mut Vec<u8>,
        signal: Signal,
        batch: Vec<u8>,
        is_first: bool,
    ) -> Result<(), ApiError> {
        let Some(mapping) = self.json else {
            // Protobuf merges repeated occurrences of a message.
            if self.has_status {
                bytes_field(out, 1, &batch)
            } else {
                out.extend(batch)
            }
            return Ok(());
        };
        let json = json::from_protobuf(&batch, signal, mapping);
        let json = json.map_err(|_| ApiError::damaged())?;
        // The elements of the only list in the JSON: {"resourceSpans":[…]}.
        let elements = json.find('[').and_then(|at| json.get(at + 1..json.len() - 2));
        if !is_first {
            out.push(b',');
        }
        out.extend_from_slice(elements.unwrap_or_default().as_bytes());
        Ok(())
    }

    /// Ends the response; a form with a status reports the reason for missing rows.
    fn end(self, out: &mut Vec<u8>, partial: Option<&str>) {
        let partial = partial.filter(|_| self.has_status);
        out.extend_from_slice(self.around[1].as_bytes());
        match (self.json, partial) {
            (None, None) => {}
            (None, Some(message)) => {
                // Field 3 is `status`, field 4 is `message`.
                varint_field(out, 3, 1);
                bytes_field(out, 4, message.as_bytes());
            }
            (Some(_), None) => out.push(b'}'),
            (Some(_), Some(message)) => {
                let message = serde_json::Value::from(message);
                let status = format!(r#","status":"PARTIAL","message":{message}}}"#);
                out.extend_from_slice(status.as_bytes());
            }
        }
    }
}

/// The rows with one ID as OTLP.
pub(crate) struct OtlpChunks {
    reader: RowReader,
    rows: OtlpRows,
    form: OtlpForm,
    bytes_left: usize,
    is_begun: bool,
    has_batch: bool,
    is_done: bool,
    partial: Option<String>,
}

impl OtlpChunks {
    /// # Errors
    /// When there are more rows than are returned, and the form cannot report that.
    pub(crate) fn new(
        found: RowsWithId,
        rows: OtlpRows,
        form: OtlpForm,
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        let reader = RowReader::new(found);
        let partial = reader.partial();
        if let Some(partial) = &partial
            && !form.has_status
        {
            return Err(ApiError::large(&format!("{partial} at /api/v2/traces")));
        }
        Ok(Self {
            reader,
            rows,
            form,
            bytes_left: limits.response_bytes,
            is_begun: false,
            has_batch: false,
            is_done: false,
            partial,
        })
    }

    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        if self.is_done {
            return Ok(None);
        }
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            out.extend_from_slice(self.form.around[0].as_bytes());
        }
        let batch = self.batch().await?;
        let is_last = match batch {
            Some(batch) => {
                let is_first = !std::mem::replace(&mut self.has_batch, true);
                self.form.batch(&mut out, self.rows.signal, batch, is_first)?;
                // Most traces are one chunk.
                !self.reader.fill().await
            }
            None => true,
        };
        let is_full = out.len() > self.bytes_left && !is_last;
        self.bytes_left = self.bytes_left.saturating_sub(out.len());
        if is_full {
            self.partial = Some(TOO_LONG.to_owned());
        }
        if is_last || is_full {
            self.is_done = true;
            if is_full && !self.form.has_status {
                return Err(ApiError::large(
                    "the trace is larger than the maximum size of a response",
                ));
            }
            let partial = self.partial.take().or_else(|| self.reader.partial());
            self.form.end(&mut out, partial.as_deref());
        }
        Ok(Some(out))
    }

    /// Returns the next batch, from one or several windows.
    async fn batch(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        let mut writer = BatchWriter::new();
        while writer.bytes() < CHUNK_BYTES && self.reader.fill().await {
            while !self.reader.is_taken() && writer.bytes() < CHUNK_BYTES {
                let row = self.reader.take();
                (self.rows.write)(&mut writer, self.reader.window(), row)
                    .map_err(|_| ApiError::damaged())?;
            }
        }
        let is_empty = writer.bytes() == 0;
        Ok((!is_empty).then(|| writer.finish()))
    }
}

impl ResponseChunks for OtlpChunks {
    fn next(&mut self) -> NextChunk<'_> {
        Box::pin(self.chunk())
    }

    fn unread(&self) -> &[Unread] {
        self.reader.unread()
    }

    fn has_status(&self) -> bool {
        self.form.has_status
    }

    fn content_type(&self) -> &'static str {
        if self.form.json.is_some() { "application/json" } else { "application/protobuf" }
    }
}
