//! Suggestions for mistyped words.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum length of a compared word: the time for a distance grows with the product of the lengths.
const WORD_MAX: usize = 64;

/// Maximum number of known words in a text: names of operations may be many.
const LISTED_MAX: usize = 30;

/// Returns the most similar word of `known`, if it is similar enough to `word`.
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<char> = word.chars().take(WORD_MAX + 1).collect();
    if word.len() > WORD_MAX {
        return None;
    }
    let distances = known.iter().map(|known| (distance(&word, known), *known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    // One slip for every three letters; of short words not more than one.
    (distance <= (word.len() / 3).max(1)).then_some(known)
}

/// Returns the text of the words that were expected in place of `word`: the most similar known word, or all known
/// words. `none` is the text if there are no known words.
#[must_use]
pub fn expectation(word: &str, known: &[&str], none: &str) -> String {
    match (nearest(word, known), known) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, []) => none.to_owned(),
        (None, [only]) => format!("expected only {only}"),
        (None, known) => {
            let listed = known.get(..LISTED_MAX).unwrap_or(known);
            let more = known.len() - listed.len();
            let more = if more > 0 { format!(", or one of {more} more") } else { String::new() };
            format!("expected one of {}{more}", listed.join(", "))
        }
    }
}

/// Returns the number of insertions, deletions, replacements and swaps of adjacent letters between two words.
///
/// **Source**: optimal string alignment; Damerau, CACM 1964.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut rows: [Vec<usize>; 3] = [Vec::new(), Vec::new(), (0..=b.len()).collect()];
    for i in 1..=a.len() {
        rows.rotate_left(1);
        let [before_last, last, row] = &mut rows;
        *row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
    }
    rows[2][b.len()]
}

#[cfg(test)]
mod tests {
    use super::{LISTED_MAX, distance, expectation, nearest};
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn slips_are_counted() {
        for (a, b, slips) in [
            ("hedge", "hedge", 0),
            ("hegde", "hedge", 1),
            ("hedg", "hedge", 1),
            ("hedgee", "hedge", 1),
            ("badge", "hedge", 2),
            ("", "hedge", 5),
            ("hedge", "", 5),
        ] {
            assert_eq!(distance(&a.chars().collect::<Vec<_>>(), b), slips, "{a} {b}");
        }
    }

    #[test]
    fn only_a_near_word_is_offered() {
        let known = ["quantile", "delay_min", "budget"];
        assert_eq!(nearest("quantle", &known), Some("quantile"));
        assert_eq!(nearest("delaymin", &known), Some("delay_min"));
        assert_eq!(nearest("replicas", &known), None);
        assert_eq!(nearest(&"quantile".repeat(9), &known), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn a_text_lists_a_bounded_number_of_words() {
        let names: Vec<String> = (0..LISTED_MAX + 2).map(|nth| format!("GET /{nth}")).collect();
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = expectation("put", &known, "");
        assert!(text.starts_with("expected one of GET /0, GET /1, "), "{text}");
        assert!(text.ends_with("GET /29, or one of 2 more"), "{text}");
        assert_eq!(expectation("GET /331", &known, ""), "did you mean GET /31?");
        assert!(expectation("put", &known[2..], "").ends_with(", GET /31"));
    }
}
