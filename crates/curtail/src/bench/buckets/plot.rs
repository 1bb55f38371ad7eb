//! The error along all quantiles, drawn with letters, at most 80 columns wide.
//!
//! From left to right the quantile grows by nines: p90, p99 and p99.9 stand at equal distances. An error beyond
//! [`SHOWN_MAX`] is drawn at the edge.

use super::report::{self, Report, Row, SHOWN_MAX};
use super::table::percent;
use std::fmt::Write as _;

/// What a line may have.
const COLUMNS_MAX: usize = 80;

const WIDTH: usize = 66;
const HEIGHT: usize = 17;

/// Layouts that are drawn: one letter each.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

/// Several layouts are here.
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
    let mut text = legend(&rows);
    for (nth, line) in cells.iter().enumerate() {
        let label = match nth {
            _ if nth == line_of(0.0) => "0".to_owned(),
            0 => percent(high),
            _ if nth == HEIGHT - 1 => percent(low),
            _ => String::new(),
        };
        let line: String = line.iter().collect();
        writeln!(text, "{label:>9} |{}", line.trim_end()).expect("a text takes everything");
    }
    text + &ticks(nines_max)
}

fn legend(rows: &[(char, &Row)]) -> String {
    let mut lines = vec!["Error by quantile:".to_owned()];
    let names = rows.iter().map(|(letter, row)| format!(" {letter} {},", row.layout));
    for name in names.chain([format!(" {SEVERAL} several")]) {
        let last = lines.last_mut().expect("there is one from the start");
        if last.chars().count() + name.chars().count() > COLUMNS_MAX {
            lines.push(name);
        } else {
            last.push_str(&name);
        }
    }
    lines.join("\n") + "\n"
}

/// The quantiles below the plot.
fn ticks(nines_max: f64) -> String {
    let mut line = [' '; WIDTH];
    for (nines, name) in report::ticks(nines_max) {
        let from = place(nines / nines_max, WIDTH).min(WIDTH - name.len());
        for (cell, letter) in line[from..].iter_mut().zip(name.chars()) {
            *cell = letter;
        }
    }
    let line: String = line.iter().collect();
    format!("{:>9} +{}\n{:11}{}\n", "", "-".repeat(WIDTH), "", line.trim_end())
}

fn shown(error: f64) -> f64 {
    error.clamp(-SHOWN_MAX, SHOWN_MAX)
}

/// The nearest of `count` places to a share of the way from the first to the last.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float to integer saturates, and the result is held within the places"
)]
fn place(share: f64, count: usize) -> usize {
    ((share * (count - 1) as f64).round() as usize).min(count - 1)
}
