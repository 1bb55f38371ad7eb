//! A decoded batch of any signal.

use crate::error::{Malformed, Refused};
use crate::limits::Limits;
use crate::logs::Logs;
use crate::metrics::Points;
use crate::response::Signal;
use crate::spans::Spans;

/// What a batch was decoded to.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// Of traces.
    Spans(Spans),
    /// Of logs.
    Logs(Logs),
    /// Of metrics.
    Points(Points),
}

impl Decoded {
    /// Reads a batch of a signal.
    ///
    /// # Errors
    /// When it is none: all of it is refused. Rows that cannot be kept are counted beside the others.
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

    /// How many rows there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Spans(spans) => spans.spans.len(),
            Self::Logs(logs) => logs.records.len(),
            Self::Points(points) => points.points.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
