//! Values as text: bytes as hexadecimal digits, nested values as JSON, null as an empty text.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use std::sync::LazyLock;

static PLAIN: FormatOptions<'static> = FormatOptions::new();
static JSON: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// The values of a batch.
pub(super) struct Cells<'a> {
    columns: Vec<Cell<'a>>,
    json: Vec<u8>,
}

enum Cell<'a> {
    Plain(ArrayFormatter<'a>),
    Json(NullableEncoder<'a>),
}

impl<'a> Cells<'a> {
    pub(super) fn new(rows: &'a RecordBatch) -> Result<Self, ArrowError> {
        let fields = rows.schema_ref().fields().iter().zip(rows.columns());
        let columns = fields.map(|(field, array)| {
            Ok(if field.data_type().is_nested() {
                Cell::Json(make_encoder(field, array, &JSON)?)
            } else {
                Cell::Plain(ArrayFormatter::try_new(array, &PLAIN)?)
            })
        });
        Ok(Self { columns: columns.collect::<Result<_, ArrowError>>()?, json: Vec::new() })
    }

    /// Appends a value as text.
    pub(super) fn put(
        &mut self,
        row: usize,
        column: usize,
        to: &mut String,
    ) -> Result<(), ArrowError> {
        match &mut self.columns[column] {
            Cell::Plain(cell) => cell.value(row).write(to),
            Cell::Json(cell) if cell.is_null(row) => Ok(()),
            Cell::Json(cell) => {
                self.json.clear();
                cell.encode(row, &mut self.json);
                to.push_str(&String::from_utf8_lossy(&self.json));
                Ok(())
            }
        }
    }
}
