//! The maximum of a number for each value of a text, in each page of a run: for example the slowest span of each service.
//!
//! The page index has only the extremes of all rows of a page. With this [index](MaxIndex), JSON in the file's
//! metadata, a query for the slowest spans of a service reads only their pages. Other readers ignore the index.
//!
//! **Limits**: pages with more than [`TEXTS_MAX`] distinct texts have no entry. An open run holds at most a kilobyte
//! for each page.

use super::PAGE_ROWS;
use crate::columns::{Columns, short};
use crate::schema::MaxIndex;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

const TEXTS_MAX: usize = 64;

/// An index of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Maxima {
    /// The JSON name is that of the first index of this kind, which existing files have.
    #[serde(rename = "services")]
    texts: Vec<String>,
    /// The maxima by row group and page; [`None`] if they are unknown.
    groups: Vec<Vec<Option<OfPage>>>,
}

/// The maxima of a page: indexes in [`Maxima::texts`], and the maximum of each.
type OfPage = Vec<(u32, i64)>;

/// The maximum of the rows with a text in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageMaximum {
    /// The page has no entry.
    Unknown,
    /// No row of the page has the text.
    NoRow,
    /// The maximum.
    Is(i64),
}

impl Maxima {
    /// Parses the metadata of a file; invalid metadata is empty.
    pub(super) fn read(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }

    pub(super) fn of(&self, text: &str) -> MaximaOfText<'_> {
        let number = (0..).zip(&self.texts).find(|(_, known)| *known == text);
        MaximaOfText { maxima: self, number: number.map(|(number, _)| number) }
    }
}

/// The maxima of the rows with one text.
#[derive(Clone, Copy, Debug)]
pub struct MaximaOfText<'a> {
    maxima: &'a Maxima,
    /// The index in [`Maxima::texts`]; [`None`] if no row has the text.
    number: Option<u32>,
}

impl MaximaOfText<'_> {
    /// The maximum in a page of a row group, both counted from zero.
    #[must_use]
    pub fn in_page(&self, group: usize, page: usize) -> PageMaximum {
        let pages = self.maxima.groups.get(group);
        let Some(Some(of_page)) = pages.and_then(|pages| pages.get(page)) else {
            return PageMaximum::Unknown;
        };
        let found = of_page.iter().find(|(number, _)| Some(*number) == self.number);
        found.map_or(PageMaximum::NoRow, |(_, maximum)| PageMaximum::Is(*maximum))
    }
}

/// An index of a run that is being written.
#[derive(Debug)]
pub(super) struct NewMaxima {
    index: &'static MaxIndex,
    maxima: Maxima,
    numbers: HashMap<String, u32>,
}

impl NewMaxima {
    pub(super) fn new(index: &'static MaxIndex) -> Self {
        Self { index, maxima: Maxima::default(), numbers: HashMap::new() }
    }

    /// Adds a row group.
    pub(super) fn push(&mut self, rows: &Columns) {
        let (texts, numbers) = (rows.coded(self.index.text), rows.longs(self.index.number));
        let mut maxima = vec![None; texts.dictionary.len() as usize + 1];
        let mut pages = Vec::new();
        for from in (0..rows.len()).step_by(PAGE_ROWS) {
            maxima.fill(None);
            for row in from..rows.len().min(from + PAGE_ROWS) {
                let of_text = &mut maxima[texts.code(row) as usize];
                *of_text = (*of_text).max(Some(numbers[row]));
            }
            // No query asks for rows without a text.
            let there = || (1..).zip(&maxima[1..]).filter_map(|(code, max)| Some((code, (*max)?)));
            let is_short = there().take(TEXTS_MAX + 1).count() <= TEXTS_MAX;
            pages.push(is_short.then(|| {
                there().map(|(code, max)| (self.number(texts.dictionary.get(code)), max)).collect()
            }));
        }
        self.maxima.groups.push(pages);
    }

    fn number(&mut self, text: &[u8]) -> u32 {
        let text = crate::columns::text(text);
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = short(self.maxima.texts.len());
        self.numbers.insert(text.to_owned(), number);
        self.maxima.texts.push(text.to_owned());
        number
    }

    /// Returns the index as JSON for the file's metadata.
    pub(super) fn finish(&self) -> String {
        serde_json::to_string(&self.maxima).expect("it can be written as JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::envelope::SERVICE;
    use crate::schema::spans::{DURATION, SLOWEST, SPANS};

    /// Rows with these services and durations.
    fn rows(of: impl IntoIterator<Item = (String, i64)>) -> Columns {
        let mut columns = Columns::new(SPANS.schema());
        for (service, duration) in of {
            columns.push_long(DURATION, duration);
            if !service.is_empty() {
                columns.set_value(SERVICE, service.as_bytes());
            }
            columns.end_row();
        }
        columns
    }

    #[test]
    fn what_is_written_is_read() {
        let named = |name: &str, duration| (name.to_owned(), duration);
        let mut new = NewMaxima::new(&SPANS.indexes[SLOWEST]);
        new.push(&rows([named("a", 5), named("b", -7), named("", 100), named("a", 9)]));
        let page = (0..PAGE_ROWS).map(|_| named("b", 1));
        new.push(&rows(page.chain([named("c", 3)])));
        let read = Maxima::read(&new.finish());
        assert_eq!(read, new.maxima);
        assert_eq!(read.of("a").in_page(0, 0), PageMaximum::Is(9));
        assert_eq!(read.of("b").in_page(0, 0), PageMaximum::Is(-7));
        assert_eq!(read.of("c").in_page(0, 0), PageMaximum::NoRow);
        assert_eq!(
            (read.of("b").in_page(1, 0), read.of("c").in_page(1, 0)),
            (PageMaximum::Is(1), PageMaximum::NoRow)
        );
        assert_eq!(
            (read.of("b").in_page(1, 1), read.of("c").in_page(1, 1)),
            (PageMaximum::NoRow, PageMaximum::Is(3))
        );
        assert_eq!(
            (read.of("b").in_page(1, 2), read.of("b").in_page(2, 0)),
            (PageMaximum::Unknown, PageMaximum::Unknown)
        );
    }

    #[test]
    fn of_too_many_services_and_of_what_is_not_understood_nothing_is_known() {
        let mut new = NewMaxima::new(&SPANS.indexes[SLOWEST]);
        new.push(&rows((0..TEXTS_MAX).map(|nth| (format!("{nth}"), 1))));
        new.push(&rows((0..=TEXTS_MAX).map(|nth| (format!("{nth}"), 1))));
        let read = Maxima::read(&new.finish());
        assert_eq!(
            (read.of("7").in_page(0, 0), read.of("7").in_page(1, 0)),
            (PageMaximum::Is(1), PageMaximum::Unknown)
        );
        assert_eq!(Maxima::read("{}").of("a").in_page(0, 0), PageMaximum::Unknown);
        assert_eq!(Maxima::read("no JSON").of("a").in_page(0, 0), PageMaximum::Unknown);
    }
}
