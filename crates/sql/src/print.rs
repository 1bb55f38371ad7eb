//! Prints query results.
//!
//! | format | output |
//! |---|---|
//! | [`Format::Table`] | aligned columns, for people; buffered until the end, because the widths of columns depend on all rows |
//! | [`Format::Json`] | an object a line, with all columns; maps are objects |
//! | [`Format::Csv`] | RFC 4180, with a header; nested values are JSON |
//!
//! Bytes are hexadecimal digits in all formats.

mod cells;
mod grid;

use crate::error::QueryError;
use cells::Cells;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::execution::memory_pool::MemoryReservation;
use grid::Grid;
use std::collections::HashSet;
use std::io::{self, Write};

/// The format of a printed result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// An aligned table.
    Table,
    /// One object per line.
    Json,
    /// One row per line, after a header.
    Csv,
}

/// Why a result was not printed.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// The reader has closed the output.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The result cannot be printed in this format.
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// Prints a result, batch after batch.
#[derive(Debug)]
pub struct Printer<W> {
    out: W,
    format: Format,
    /// The buffered rows of a table; empty in all other formats.
    grid: Grid,
}

impl<W: Write> Printer<W> {
    /// Begins a result with these columns; `reservation` accounts for the memory of buffered rows.
    ///
    /// # Errors
    /// When the format has column names and two columns have the same name, or the output is closed.
    pub fn new(
        format: Format,
        columns: &Schema,
        kept: MemoryReservation,
        mut out: W,
    ) -> Result<Self, PrintError> {
        match format {
            Format::Table => {}
            Format::Json => each_has_a_name(columns)?,
            Format::Csv => head(columns, &mut out)?,
        }
        Ok(Self { out, format, grid: Grid::new(columns, kept) })
    }

    /// Prints rows, or buffers rows of a table.
    ///
    /// # Errors
    /// When the output is closed, or the memory for buffered rows does not suffice.
    pub fn rows(&mut self, rows: &RecordBatch) -> Result<(), PrintError> {
        match self.format {
            Format::Table => Ok(self.grid.push(rows)?),
            Format::Json => json(rows, &mut self.out),
            Format::Csv => csv(rows, &mut self.out),
        }
    }

    /// Prints the buffered rows.
    ///
    /// # Errors
    /// When the output is closed.
    pub fn end(mut self) -> io::Result<()> {
        if self.format == Format::Table {
            self.grid.print(&mut self.out)?;
        }
        self.out.flush()
    }
}

fn each_has_a_name(columns: &Schema) -> Result<(), QueryError> {
    let mut seen = HashSet::new();
    match columns.fields().iter().find(|field| !seen.insert(field.name())) {
        None => Ok(()),
        Some(twice) => Err(QueryError::Invalid(format!(
            "two columns are called {}: an object has one of each, so name them with AS",
            twice.name()
        ))),
    }
}

fn json(rows: &RecordBatch, out: &mut impl Write) -> Result<(), PrintError> {
    let mut lines = Vec::new();
    let mut writer =
        WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut lines);
    writer.write(rows).and_then(|()| writer.finish()).map_err(unprintable)?;
    Ok(out.write_all(&lines)?)
}

fn csv(rows: &RecordBatch, out: &mut impl Write) -> Result<(), PrintError> {
    let mut cells = Cells::new(rows).map_err(unprintable)?;
    let (mut lines, mut cell) = (String::new(), String::new());
    for row in 0..rows.num_rows() {
        for column in 0..rows.num_columns() {
            cell.clear();
            cells.put(row, column, &mut cell).map_err(unprintable)?;
            quoted(&cell, column, &mut lines);
        }
        lines.push_str("\r\n");
    }
    Ok(out.write_all(lines.as_bytes())?)
}

fn head(columns: &Schema, out: &mut impl Write) -> io::Result<()> {
    let mut line = String::new();
    for (nth, field) in columns.fields().iter().enumerate() {
        quoted(field.name(), nth, &mut line);
    }
    line.push_str("\r\n");
    out.write_all(line.as_bytes())
}

/// Appends a cell of CSV, in quotes if necessary.
fn quoted(cell: &str, column: usize, line: &mut String) {
    if column > 0 {
        line.push(',');
    }
    if cell.contains([',', '"', '\r', '\n']) {
        line.push('"');
        line.push_str(&cell.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(cell);
    }
}

fn unprintable(error: ArrowError) -> PrintError {
    QueryError::of(error.into()).into()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_cell_is_one_cell() {
        let mut line = String::new();
        for (column, cell) in ["a", "", "1,5", "say \"x\"", "two\nlines"].iter().enumerate() {
            quoted(cell, column, &mut line);
        }
        assert_eq!(line, "a,,\"1,5\",\"say \"\"x\"\"\",\"two\nlines\"");
    }
}
