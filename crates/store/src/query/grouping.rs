//! Assigns a group number to each row.
//!
//! The values by which rows are grouped have few distinct codes. The codes of a row form one number, which indexes a
//! table of groups. The key of a group is made only for the first row of the group.

use crate::columns::short;
use hashbrown::HashMap;

/// Maximum size of the table of groups. A larger one has only the combinations of values that occur.
const PLACES_MAX: u32 = 1 << 16;

/// The group of each row as a number below `places`.
#[derive(Debug)]
pub(super) struct Grouping {
    numbers: Vec<u32>,
    places: u32,
}

impl Grouping {
    /// Rows that are all in one group.
    pub(super) fn of_one(rows: usize) -> Self {
        Self { numbers: vec![0; rows], places: 1 }
    }

    /// Distinguishes rows by a value; `values` is the number of distinct values.
    pub(super) fn by(&mut self, values: usize, codes: &[u32]) {
        self.distinguish(values as u64 + 1, codes.iter().map(|code| u64::from(*code)));
    }

    /// Distinguishes rows by the time step of their start.
    pub(super) fn by_step(&mut self, step: i64, starts: &[i64]) {
        let (Some(first), Some(last)) = (starts.iter().min(), starts.iter().max()) else { return };
        let (since, step) = (first.saturating_sub(first.rem_euclid(step)), step.unsigned_abs());
        let since_first = |start: i64| start.wrapping_sub(since).cast_unsigned();
        let steps = (since_first(*last) / step).saturating_add(1);
        let reciprocal = u64::MAX / step;
        let step_of = |start: &i64| divide(since_first(*start), step, reciprocal);
        self.distinguish(steps, starts.iter().map(step_of));
    }

    /// Divides groups by a value; `values` is the number of distinct values.
    fn distinguish(&mut self, values: u64, of_rows: impl Iterator<Item = u64>) {
        let values = u32::try_from(values).ok();
        let places = values.and_then(|values| Some((values, self.places.checked_mul(values)?)));
        match places.filter(|(_, places)| *places <= PLACES_MAX) {
            None => self.renumber(of_rows),
            Some((values, places)) => {
                self.places = places;
                for (number, value) in self.numbers.iter_mut().zip(of_rows) {
                    #[expect(clippy::cast_possible_truncation, reason = "less than values")]
                    let value = value as u32;
                    *number = *number * values + value;
                }
            }
        }
    }

    /// Divides groups by a value, with a number only for the combinations that occur.
    fn renumber(&mut self, of_rows: impl Iterator<Item = u64>) {
        let mut known = HashMap::new();
        for (number, value) in self.numbers.iter_mut().zip(of_rows) {
            let next = short(known.len());
            *number = *known.entry((*number, value)).or_insert(next);
        }
        self.places = short(known.len());
    }

    /// The group of each row. `name` gets the index of the first row of each group, and returns its number.
    pub(super) fn groups(self, mut name: impl FnMut(usize) -> u32) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let mut known = vec![NONE; self.places as usize];
        let mut groups = self.numbers;
        for (nth, number) in groups.iter_mut().enumerate() {
            let known = &mut known[*number as usize];
            if *known == NONE {
                *known = name(nth);
            }
            *number = *known;
        }
        groups
    }
}

/// Divides by a multiplication with the `reciprocal`, [`u64::MAX`]` / by`, because a 64-bit division takes longer than
/// all other work on a row. The product is the quotient or one less.
fn divide(number: u64, by: u64, reciprocal: u64) -> u64 {
    let near = ((u128::from(number) * u128::from(reciprocal)) >> 64) as u64;
    near + u64::from(number - near * by >= by)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(grouping: Grouping) -> Vec<u32> {
        let mut firsts = Vec::new();
        grouping.groups(|nth| {
            firsts.push(nth);
            short(firsts.len() - 1)
        })
    }

    #[test]
    fn rows_of_one_step_are_of_one_group_before_1970_too() {
        let mut grouping = Grouping::of_one(5);
        grouping.by_step(10, &[0, 9, -1, 10, -10]);
        assert_eq!(groups(grouping), [0, 0, 1, 2, 1]);
    }

    #[test]
    fn dividing_by_the_reciprocal_is_exact() {
        for by in [1, 2, 3, 7, 1_000, 60_000_000_000, (1 << 53) - 1, 1 << 63, u64::MAX] {
            for near in
                [0_u64, 1, by, 5 * by.min(1 << 50), u64::MAX / by * by, 1 << 52, u64::MAX - 2]
            {
                for number in near.saturating_sub(2)..near.saturating_add(2) {
                    let quotient = divide(number, by, u64::MAX / by);
                    assert_eq!(quotient, number / by, "{number} / {by}");
                }
            }
        }
    }

    #[test]
    fn values_far_apart_need_no_long_table() {
        for step in [1, 1_000_000_007] {
            let mut grouping = Grouping::of_one(4);
            let starts = [i64::MIN, i64::MAX, 0, i64::MIN];
            grouping.by_step(step, &starts);
            assert!(grouping.places <= 4, "{}", grouping.places);
            grouping.by_step(step, &starts);
            assert_eq!(groups(grouping), [0, 1, 2, 0]);
        }
    }
}
