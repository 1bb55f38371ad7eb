//! Tables for a terminal: names are aligned to the left, numbers to the right.
//!
//! A name that is too wide is cut with `…`; a number is never cut.

use crate::lines::{self, WIDTH, cut, one_line, width};
use alloc::string::String;
use alloc::vec::Vec;

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Names, exactly this many columns wide.
    Left(usize),
    /// Numbers, at least this many columns wide.
    Right(usize),
    /// The last column: text that takes the rest of the line.
    Rest,
}

/// The columns of a table, with the same space between any two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    columns: Vec<Column>,
    gap: usize,
}

impl Columns {
    /// A table of `columns`, one space apart.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), gap: 1 }
    }

    /// The same table with its columns `gap` spaces apart.
    #[must_use]
    pub fn apart(self, gap: usize) -> Self {
        Self { gap, ..self }
    }

    /// A line of the table, without spaces at its end. Missing cells are empty.
    #[must_use]
    pub fn row<C: AsRef<str>>(&self, cells: impl IntoIterator<Item = C>) -> String {
        let mut line = String::new();
        for (nth, (cell, column)) in cells.into_iter().zip(&self.columns).enumerate() {
            if nth > 0 {
                pad(&mut line, self.gap);
            }
            let cell = cell.as_ref();
            match *column {
                Column::Left(columns) => {
                    let cell = cut(cell, columns);
                    line.push_str(&cell);
                    pad(&mut line, columns.saturating_sub(width(&cell)));
                }
                Column::Right(columns) => {
                    pad(&mut line, columns.saturating_sub(width(cell)));
                    line.push_str(cell);
                }
                Column::Rest => line.push_str(cell),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

fn pad(line: &mut String, spaces: usize) {
    line.extend(core::iter::repeat_n(' ', spaces));
}

/// A text for a terminal, line by line. No line is wider than the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    text: String,
    width: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self::new(WIDTH)
    }
}

impl Page {
    /// An empty page for a terminal of `width` columns.
    #[must_use]
    pub const fn new(width: usize) -> Self {
        Self { text: String::new(), width }
    }

    /// Adds a line; a line that is too long is cut, and control characters are escaped.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(&cut(&one_line(line.as_ref().trim_end()), self.width));
        self.text.push('\n');
    }

    /// Adds an empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Adds a long text in several lines. The first begins with `indent`, the others with `indent` and four spaces.
    pub fn wrapped(&mut self, indent: &str, text: &str) {
        for line in lines::wrapped(indent, text, self.width) {
            self.line(line);
        }
    }

    /// Adds a line of a table.
    pub fn row<C: AsRef<str>>(&mut self, columns: &Columns, cells: impl IntoIterator<Item = C>) {
        self.line(columns.row(cells));
    }

    /// The text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Column::{Left, Rest, Right};
    use super::{Columns, Page};

    #[test]
    fn names_stand_to_the_left_and_numbers_to_the_right() {
        let columns = Columns::new([Left(6), Right(4), Rest]);
        assert_eq!(columns.row(["a", "12", "and so on"]), "a        12 and so on");
        assert_eq!(columns.row(["a"]), "a", "no space at the end");
        assert_eq!(columns.clone().apart(2).row(["a", "12"]), "a         12");
    }

    #[test]
    fn a_wide_name_is_cut_and_a_wide_number_is_not() {
        let columns = Columns::new([Left(6), Right(4)]);
        assert_eq!(columns.row(["a-long-name", "123456"]), "a-lon… 123456");
    }

    #[test]
    fn a_column_without_width_is_empty() {
        assert_eq!(Columns::new([Left(0), Right(4)]).row(["a-name", "12"]), "   12");
    }

    #[test]
    fn no_line_of_a_page_is_wider_than_the_terminal() {
        let mut page = Page::new(10);
        page.line("0123456789abc");
        page.blank();
        page.wrapped("", "several words of text");
        page.row(&Columns::new([Left(2), Rest]), ["ab", "0123456789"]);
        assert_eq!(
            page.finish(),
            "012345678…\n\nseveral\n    words\n    of\n    text\nab 012345…\n"
        );
    }
}
