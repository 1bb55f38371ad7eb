//! Whether two rows are equal in all fields.

use super::{Column, Columns, Lists, Values};

impl Columns {
    /// Whether a row equals a row of other columns with the same schema.
    pub(crate) fn is_same_row(&self, row: usize, other: &Self, other_row: usize) -> bool {
        self.columns.iter().zip(&other.columns).all(|columns| match columns {
            (Column::One(one), Column::One(other)) => one.is_same(row, other, other_row),
            (Column::Many(one), Column::Many(other)) => one.is_same(row, other, other_row),
            (Column::One(_), Column::Many(_)) | (Column::Many(_), Column::One(_)) => false,
        })
    }
}

impl Values {
    fn is_same(&self, at: usize, other: &Self, other_at: usize) -> bool {
        match (self, other) {
            (Self::Wide(one), Self::Wide(other)) => value(one, at) == value(other, other_at),
            (Self::Narrow(one), Self::Narrow(other)) => value(one, at) == value(other, other_at),
            (Self::Longs(one), Self::Longs(other)) => value(one, at) == value(other, other_at),
            (Self::Coded(one), Self::Coded(other)) => one.get(at) == other.get(other_at),
            (Self::Wide(_) | Self::Narrow(_) | Self::Longs(_) | Self::Coded(_), _) => false,
        }
    }
}

/// The value of a row; columns that are null in every row are empty.
fn value<T: Copy + Default>(values: &[T], at: usize) -> T {
    values.get(at).copied().unwrap_or_default()
}

impl Lists {
    fn is_same(&self, row: usize, other: &Self, other_row: usize) -> bool {
        let (entries, others) = (self.entries(row), other.entries(other_row));
        entries.len() == others.len()
            && entries.zip(others).all(|(at, other_at)| {
                let mut parts = self.parts.iter().zip(&other.parts);
                parts.all(|(part, other)| part.is_same(at, other, other_at))
            })
    }
}
