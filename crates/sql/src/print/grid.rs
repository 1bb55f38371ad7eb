//! Aligned columns: numbers to the right, other values to the left.

use super::cells::Cells;
use crate::error::QueryError;
use curtail_text::lines::{one_line, width};
use curtail_text::{Columns, Left, Right};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::memory_pool::MemoryReservation;
use std::io::{self, Write};

/// Rows that are buffered until the end, for the widths of the columns.
#[derive(Debug)]
pub(super) struct Grid {
    columns: Vec<Column>,
    /// All cells, row by row.
    cells: Vec<String>,
    reservation: MemoryReservation,
}

#[derive(Debug)]
struct Column {
    width: usize,
    is_number: bool,
}

impl Grid {
    pub(super) fn new(columns: &Schema, reservation: MemoryReservation) -> Self {
        let fields = columns.fields().iter();
        let column = |(name, is_number): (&String, bool)| Column { width: width(name), is_number };
        let cells: Vec<_> = fields.clone().map(|field| one_line(field.name())).collect();
        let are_numbers = fields.map(|field| field.data_type().is_numeric());
        let columns = cells.iter().zip(are_numbers).map(column).collect();
        Self { columns, cells, reservation }
    }

    pub(super) fn push(&mut self, rows: &RecordBatch) -> Result<(), QueryError> {
        let unprintable = |error| QueryError::of(datafusion::error::DataFusionError::from(error));
        let mut cells = Cells::new(rows).map_err(unprintable)?;
        for row in 0..rows.num_rows() {
            for (nth, column) in self.columns.iter_mut().enumerate() {
                let mut cell = String::new();
                cells.put(row, nth, &mut cell).map_err(unprintable)?;
                let cell = one_line(&cell);
                self.reservation
                    .try_grow(cell.len() + size_of::<String>())
                    .map_err(QueryError::of)?;
                column.width = column.width.max(width(&cell));
                self.cells.push(cell);
            }
        }
        Ok(())
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let columns =
            self.columns.iter().map(
                |Column { width, is_number }| {
                    if *is_number { Right(*width) } else { Left(*width) }
                },
            );
        let columns = Columns::new(columns).apart(2);
        for row in self.cells.chunks(self.columns.len().max(1)) {
            writeln!(out, "{}", columns.row(row))?;
        }
        Ok(())
    }
}
