//! Lines of a terminal: the width of a text, and cutting or wrapping it.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The number of columns of a terminal that every report fits.
pub const WIDTH: usize = 80;

/// The number of columns of a text on the screen: one for each character.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// `text` in at most `columns` columns, cut at its end with `…`.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(kept) = columns.checked_sub(1) else { return String::new() };
    text.chars().take(kept).chain(['…']).collect()
}

/// `text` in at most `columns` columns, cut in its middle: names often differ only at their end.
#[must_use]
pub fn cut_middle(text: &str, columns: usize) -> String {
    let count = width(text);
    if count <= columns {
        return text.to_owned();
    }
    let Some(kept) = columns.checked_sub(1) else { return String::new() };
    let end = kept / 2;
    text.chars().take(kept - end).chain(['…']).chain(text.chars().skip(count - end)).collect()
}

/// Wraps a text between words into lines of at most `columns` columns. The first line begins with `indent`, the others
/// with `indent` and four spaces. A word that is longer than a line is cut into several lines.
#[must_use]
pub fn wrapped(indent: &str, text: &str, columns: usize) -> Vec<String> {
    let further = format!("{indent}    ");
    let word_max = columns.saturating_sub(further.len()).max(1);
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (nth, part) in letters.chunks(word_max).enumerate() {
            let is_first_of_line = line.trim().is_empty();
            let space = usize::from(nth == 0 && !is_first_of_line);
            if width(&line) + space + part.len() > columns && !is_first_of_line {
                lines.push(core::mem::replace(&mut line, further.clone()));
            } else if space > 0 {
                line.push(' ');
            }
            line.extend(part);
        }
    }
    lines.push(line);
    lines
}

/// The widths of columns that share `room`: short columns get their `wanted` width, long ones share the rest.
#[must_use]
pub fn share_room(wanted: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|column| wanted[*column]);
    let mut widths = vec![0; wanted.len()];
    let mut left = room;
    for (nth, column) in order.into_iter().enumerate() {
        widths[column] = wanted[column].min(left / (wanted.len() - nth));
        left -= widths[column];
    }
    widths
}

/// `text` with control characters escaped, because they would end the line or move the cursor.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() { line.extend(letter.escape_default()) } else { line.push(letter) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{cut, cut_middle, one_line, share_room, wrapped};

    #[test]
    fn a_long_text_is_cut_at_its_end_or_in_its_middle() {
        assert_eq!(cut("checkout", 8), "checkout");
        assert_eq!(cut("checkout", 5), "chec…");
        assert_eq!(cut_middle("checkout", 8), "checkout");
        assert_eq!(cut_middle("checkout-1", 6), "che…-1");
    }

    #[test]
    fn nothing_is_left_of_a_text_without_columns() {
        assert_eq!(cut("checkout", 0), "");
        assert_eq!(cut_middle("checkout", 0), "");
    }

    #[test]
    fn columns_share_the_room_and_short_ones_are_whole() {
        assert_eq!(share_room(&[80, 80], 25), [12, 13]);
        assert_eq!(share_room(&[80, 4, 80], 26), [11, 4, 11]);
        assert_eq!(share_room(&[3, 4], 26), [3, 4]);
        assert_eq!(share_room(&[], 26), [0; 0]);
    }

    #[test]
    fn long_texts_wrap_between_words_and_within_a_word_that_is_longer_than_a_line() {
        assert_eq!(wrapped("", "", 8), [""]);
        assert_eq!(wrapped("  ", "one two three", 12), ["  one two", "      three"]);
        let lines = wrapped("", "a: http://host/b c", 10);
        assert_eq!(lines, ["a: http:/", "    /host/", "    b c"]);
    }

    #[test]
    fn a_control_character_does_not_reach_the_terminal() {
        assert_eq!(one_line("a\nb\x1b[2J"), r"a\nb\u{1b}[2J");
    }
}
