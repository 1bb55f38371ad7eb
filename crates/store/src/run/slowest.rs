//! The slowest span of each service in each page of a run.
//!
//! The page index has only the extremes of all spans of a page. With this list in the metadata of the file ([`KEY`], JSON), a
//! query for the slowest spans of a service reads only the pages that have them. Other readers ignore it.
//!
//! **Limits**: pages with more than [`SERVICES_MAX`] services have no entry. An open run holds at most a kilobyte for each page
//! of 8,192 spans.

use super::PAGE_ROWS;
use crate::columns::Columns;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::DURATION;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// The key in a file's metadata.
pub(super) const KEY: &str = "curtail.slowest";

const SERVICES_MAX: usize = 64;

/// The slowest spans of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slowest {
    services: Vec<String>,
    /// By row group and page; [`None`]: unknown.
    groups: Vec<Vec<Option<OfPage>>>,
}

/// The numbers of services, and the nanoseconds that the slowest span of each took.
type OfPage = Vec<(u32, i64)>;

/// The spans of a service in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Unknown.
    Nothing,
    /// There are none.
    None,
    /// The duration of the slowest, in nanoseconds.
    Most(i64),
}

impl Slowest {
    /// Parses the metadata of a file; invalid metadata is empty.
    pub(super) fn read(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }

    pub(super) fn of(&self, service: &str) -> OfService<'_> {
        let number = (0..).zip(&self.services).find(|(_, name)| *name == service);
        OfService { slowest: self, number: number.map(|(number, _)| number) }
    }
}

/// The slowest spans of one service.
#[derive(Clone, Copy, Debug)]
pub struct OfService<'a> {
    slowest: &'a Slowest,
    /// [`None`] if no span is of the service.
    number: Option<u32>,
}

impl OfService<'_> {
    /// Its spans in a page of a row group, both counted from zero.
    #[must_use]
    pub fn in_page(&self, group: usize, page: usize) -> Known {
        let pages = self.slowest.groups.get(group);
        let Some(Some(of_page)) = pages.and_then(|pages| pages.get(page)) else {
            return Known::Nothing;
        };
        let found = of_page.iter().find(|(number, _)| Some(*number) == self.number);
        found.map_or(Known::None, |(_, most)| Known::Most(*most))
    }
}

/// The slowest spans of a run that is being written.
#[derive(Debug, Default)]
pub(super) struct NewSlowest {
    slowest: Slowest,
    numbers: HashMap<String, u32>,
}

impl NewSlowest {
    /// Adds a row group of spans.
    pub(super) fn push(&mut self, rows: &Columns) {
        let (services, durations) = (rows.coded(SERVICE), rows.longs(DURATION));
        let mut most = vec![None; services.dictionary.len() as usize + 1];
        let mut pages = Vec::new();
        for from in (0..rows.len()).step_by(PAGE_ROWS) {
            most.fill(None);
            for row in from..rows.len().min(from + PAGE_ROWS) {
                let of_service = &mut most[services.code(row) as usize];
                *of_service = (*of_service).max(Some(durations[row]));
            }
            // No query asks for spans without a service.
            let there = || (1..).zip(&most[1..]).filter_map(|(code, most)| Some((code, (*most)?)));
            let is_short = there().take(SERVICES_MAX + 1).count() <= SERVICES_MAX;
            pages.push(is_short.then(|| {
                there()
                    .map(|(code, most)| (self.number(services.dictionary.get(code)), most))
                    .collect()
            }));
        }
        self.slowest.groups.push(pages);
    }

    fn number(&mut self, service: &[u8]) -> u32 {
        let service = crate::columns::text(service);
        if let Some(number) = self.numbers.get(service) {
            return *number;
        }
        let number = u32::try_from(self.slowest.services.len()).expect("fewer than rows");
        self.numbers.insert(service.to_owned(), number);
        self.slowest.services.push(service.to_owned());
        number
    }

    /// For the file's metadata.
    pub(super) fn finish(&self) -> String {
        serde_json::to_string(&self.slowest).expect("it can be written as JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::spans::SPANS;

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
        let mut new = NewSlowest::default();
        new.push(&rows([named("a", 5), named("b", -7), named("", 100), named("a", 9)]));
        let page = (0..PAGE_ROWS).map(|_| named("b", 1));
        new.push(&rows(page.chain([named("c", 3)])));
        let read = Slowest::read(&new.finish());
        assert_eq!(read, new.slowest);
        assert_eq!(read.of("a").in_page(0, 0), Known::Most(9));
        assert_eq!(read.of("b").in_page(0, 0), Known::Most(-7));
        assert_eq!(read.of("c").in_page(0, 0), Known::None);
        assert_eq!(
            (read.of("b").in_page(1, 0), read.of("c").in_page(1, 0)),
            (Known::Most(1), Known::None)
        );
        assert_eq!(
            (read.of("b").in_page(1, 1), read.of("c").in_page(1, 1)),
            (Known::None, Known::Most(3))
        );
        assert_eq!(
            (read.of("b").in_page(1, 2), read.of("b").in_page(2, 0)),
            (Known::Nothing, Known::Nothing)
        );
    }

    #[test]
    fn of_too_many_services_and_of_what_is_not_understood_nothing_is_known() {
        let mut new = NewSlowest::default();
        new.push(&rows((0..SERVICES_MAX).map(|nth| (format!("{nth}"), 1))));
        new.push(&rows((0..=SERVICES_MAX).map(|nth| (format!("{nth}"), 1))));
        let read = Slowest::read(&new.finish());
        assert_eq!(
            (read.of("7").in_page(0, 0), read.of("7").in_page(1, 0)),
            (Known::Most(1), Known::Nothing)
        );
        assert_eq!(Slowest::read("{}").of("a").in_page(0, 0), Known::Nothing);
        assert_eq!(Slowest::read("no JSON").of("a").in_page(0, 0), Known::Nothing);
    }
}
