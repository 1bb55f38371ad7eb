//! The properties of a table: how often a checkpoint is due, and how long old commits and files are kept.
//!
//! A time is `interval 30 days`: pairs of an integer and a unit from `week` to `millisecond`; `interval` is optional.

use super::action::Metadata;

const CHECKPOINT_INTERVAL: &str = "delta.checkpointInterval";
const LOG_RETENTION: &str = "delta.logRetentionDuration";
const DELETED_FILE_RETENTION: &str = "delta.deletedFileRetentionDuration";

/// In commits. Checkpoints are rare, because each writes the entries of all live files.
const CHECKPOINT_INTERVAL_DEFAULT: u64 = 100;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// An invalid property.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table's property {key} is {text:?}, expected {expected}")]
pub struct PropertyError {
    /// The key of the property.
    pub key: &'static str,
    /// The invalid value.
    pub text: String,
    /// The expected form.
    pub expected: &'static str,
}

impl Metadata {
    /// The number of commits between two checkpoints: `delta.checkpointInterval`, else 100.
    pub(crate) fn checkpoint_interval(&self) -> Result<u64, PropertyError> {
        let Some(text) = self.configuration.get(CHECKPOINT_INTERVAL) else {
            return Ok(CHECKPOINT_INTERVAL_DEFAULT);
        };
        text.parse().ok().filter(|commits| *commits > 0).ok_or_else(|| PropertyError {
            key: CHECKPOINT_INTERVAL,
            text: text.clone(),
            expected: "a whole number above zero",
        })
    }

    /// Retention of a commit that is covered by a checkpoint, in milliseconds:
    /// `delta.logRetentionDuration`, else 30 days.
    pub(crate) fn log_retention_ms(&self) -> Result<i64, PropertyError> {
        self.time_ms(LOG_RETENTION, 30 * DAY_MS)
    }

    /// Retention of a file that was removed from the table, in milliseconds:
    /// `delta.deletedFileRetentionDuration`, else 7 days.
    pub(crate) fn deleted_file_retention_ms(&self) -> Result<i64, PropertyError> {
        self.time_ms(DELETED_FILE_RETENTION, 7 * DAY_MS)
    }

    fn time_ms(&self, key: &'static str, default_ms: i64) -> Result<i64, PropertyError> {
        let Some(text) = self.configuration.get(key) else { return Ok(default_ms) };
        let expected = "a time such as `interval 30 days`";
        interval_ms(text).ok_or_else(|| PropertyError { key, text: text.clone(), expected })
    }
}

fn interval_ms(text: &str) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let mut words = text.split_ascii_whitespace().peekable();
    words.next_if_eq(&"interval");
    words.peek()?;
    let mut total_ms = 0_i64;
    while let Some(number) = words.next() {
        let number: u32 = number.parse().ok()?;
        let unit = words.next()?;
        let unit_ms = match unit.strip_suffix('s').unwrap_or(unit) {
            "week" => 7 * DAY_MS,
            "day" => DAY_MS,
            "hour" => DAY_MS / 24,
            "minute" => 60_000,
            "second" => 1000,
            "millisecond" => 1,
            _ => return None,
        };
        total_ms = total_ms.checked_add(i64::from(number) * unit_ms)?;
    }
    Some(total_ms)
}

#[cfg(test)]
mod tests;
