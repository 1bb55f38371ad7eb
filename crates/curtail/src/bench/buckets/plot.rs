//! A plot of the error by quantile, drawn with letters, at most 80 columns wide.
//!
//! The horizontal axis counts nines: p90, p99 and p99.9 are at equal distances. An error beyond [`SHOWN_MAX`] is drawn
//! at the edge.

use super::report::{Report, Row, SHOWN_MAX};
use curtail_report::figures::nine_ticks;
use curtail_text::Page;
use curtail_text::numbers::signed_percent;

const WIDTH: usize = 66;
const HEIGHT: usize = 17;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

/// The mark of a position that several layouts share.
const SEVERAL: char = '*';

pub(super) fn render(report: &Report<'_>) -> String {
    let rows: Vec<(char, &Row)> = LETTERS.chars().zip(&report.rows).collect();
    let errors = rows.iter().flat_map(|(_, row)| row.curve.iter().map(|(_, error)| shown(*error)));
    let (low, high) = errors.fold((0.0_f64, 0.0_f64), |(low, high), e| (low.min(e), high.max(e)));
    let nines_max = rows.iter().filter_map(|(_, row)| row.curve.last()).map(|(nines, _)| *nines);
    let nines_max = nines_max.fold(1.0, f64::max);
    let height = (high - low).max(0.01);
    let mut cells = vec![[' '; WIDTH]; HEIGHT];
    let line_of = |error: f64| place((high - error) / height, HEIGHT);
    cells[line_of(0.0)] = ['-'; WIDTH];
    for (letter, row) in &rows {
        for (nines, error) in &row.curve {
            let cell = &mut cells[line_of(shown(*error))][place(nines / nines_max, WIDTH)];
            let is_free = [' ', '-', *letter].contains(cell);
            *cell = if is_free { *letter } else { SEVERAL };
        }
    }
    let mut page = Page::default();
    legend(&rows, &mut page);
    for (nth, line) in cells.iter().enumerate() {
        let label = match nth {
            _ if nth == line_of(0.0) => "0".to_owned(),
            0 => signed_percent(high),
            _ if nth == HEIGHT - 1 => signed_percent(low),
            _ => String::new(),
        };
        let line: String = line.iter().collect();
        page.line(format!("{label:>9} |{line}"));
    }
    ticks(nines_max, &mut page);
    page.finish()
}

fn legend(rows: &[(char, &Row)], page: &mut Page) {
    let names: String =
        rows.iter().map(|(letter, row)| format!("{letter} {}, ", row.layout)).collect();
    page.wrapped("", &format!("Error by quantile: {names}{SEVERAL} several"));
}

/// Writes the quantiles below the plot.
fn ticks(nines_max: f64, page: &mut Page) {
    let mut line = [' '; WIDTH];
    for (nines, name) in nine_ticks(nines_max) {
        let from = place(nines / nines_max, WIDTH).min(WIDTH - name.len());
        for (cell, letter) in line[from..].iter_mut().zip(name.chars()) {
            *cell = letter;
        }
    }
    let line: String = line.iter().collect();
    page.line(format!("{:>9} +{}", "", "-".repeat(WIDTH)));
    page.line(format!("{:11}{line}", ""));
}

fn shown(error: f64) -> f64 {
    error.clamp(-SHOWN_MAX, SHOWN_MAX)
}

/// Returns the index of the position nearest to `share` (0: the first, 1: the last) of `count` equidistant positions.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float to integer saturates"
)]
fn place(share: f64, count: usize) -> usize {
    ((share * (count - 1) as f64).round() as usize).min(count - 1)
}
