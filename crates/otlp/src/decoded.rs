//! A decoded batch of any signal.

use crate::error::{Malformed, Refused};
use crate::limits::Limits;
use crate::logs::Logs;
use crate::metrics::Points;
use crate::response::Signal;
use crate::spans::Spans;

/// The rows of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A batch of traces.
    Spans(Spans),
    /// A batch of logs.
    Logs(Logs),
    /// A batch of metrics.
    Points(Points),
}

impl Decoded {
    /// Reads a batch of a signal.
    ///
    /// # Errors
    /// When the batch is malformed, which rejects the whole batch. Rows that cannot be stored are only counted.
    pub fn of(signal: Signal, batch: &[u8], limits: &Limits) -> Result<(Self, Refused), Malformed> {
        Ok(match signal {
            Signal::Traces => {
                let (spans, refused) = Spans::decode(batch, limits)?;
                (Self::Spans(spans), refused)
            }
            Signal::Logs => {
                let (logs, refused) = Logs::decode(batch, limits)?;
                (Self::Logs(logs), refused)
            }
            Signal::Metrics => {
                let (points, refused) = Points::decode(batch, limits)?;
                (Self::Points(points), refused)
            }
        })
    }

    /// The number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Spans(spans) => spans.spans.len(),
            Self::Logs(logs) => logs.records.len(),
            Self::Points(points) => points.points.len(),
        }
    }

    /// Whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
