//! Text in columns: the width of the terminal, and what does not fit is cut.

/// The columns without a terminal, and the least with one.
const COLUMNS_MIN: usize = 80;

/// The columns of standard output.
pub(crate) fn of_stdout() -> usize {
    let size = terminal_size::terminal_size_of(std::io::stdout());
    size.map_or(COLUMNS_MIN, |(width, _)| usize::from(width.0).max(COLUMNS_MIN))
}

/// `text` in at most `len` columns, cut at its end.
pub(crate) fn shortened(text: &str, len: usize) -> String {
    if text.chars().count() <= len {
        return text.to_owned();
    }
    text.chars().take(len.saturating_sub(1)).chain(['…']).collect()
}

/// `text` in at most `len` columns, cut in its middle: names often differ only at their end.
pub(crate) fn shortened_inside(text: &str, len: usize) -> String {
    let count = text.chars().count();
    if count <= len {
        return text.to_owned();
    }
    let kept = len.saturating_sub(1);
    let end = kept / 2;
    text.chars().take(kept - end).chain(['…']).chain(text.chars().skip(count - end)).collect()
}

/// The widths of columns that want `wanted` and share `room`: short ones have what they want, long ones the rest.
pub(crate) fn widths(wanted: &[usize], room: usize) -> Vec<usize> {
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

#[cfg(test)]
mod tests {
    use super::{shortened, shortened_inside, widths};

    #[test]
    fn a_long_text_is_cut_at_its_end_or_in_its_middle() {
        assert_eq!(shortened("checkout", 8), "checkout");
        assert_eq!(shortened("checkout", 5), "chec…");
        assert_eq!(shortened_inside("checkout", 8), "checkout");
        assert_eq!(shortened_inside("checkout-1", 6), "che…-1");
    }

    #[test]
    fn columns_share_the_room_and_short_ones_are_whole() {
        assert_eq!(widths(&[80, 80], 25), [12, 13]);
        assert_eq!(widths(&[80, 4, 80], 26), [11, 4, 11]);
        assert_eq!(widths(&[3, 4], 26), [3, 4]);
        assert_eq!(widths(&[], 26), [0; 0]);
    }
}
