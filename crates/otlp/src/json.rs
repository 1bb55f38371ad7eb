//! Converts OTLP in JSON to and from protobuf, by the schema.
//!
//! IDs are hexadecimal digits, other bytes base64. Integers of 64 bits are text; enumerations are numbers. Unknown
//! names and `null` are ignored. The writer also supports [protobuf's own mapping](Mapping::Protobuf), as in Tempo.
//!
//! **Source**: the OTLP specification, "JSON Protobuf Encoding"; protobuf's mapping to JSON.

mod read;
mod write;

pub use read::to_protobuf;
pub use write::from_protobuf;

use crate::response::Signal;
use crate::schema::{LOGS, METRICS, Message, TRACES};

/// Text that is not a batch in JSON.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotOtlp(serde_json::Error);

impl NotOtlp {
    /// The position of the error in its line: a byte, from 1.
    #[must_use]
    pub fn byte(&self) -> usize {
        self.0.column()
    }

    /// The error, and the expected input.
    #[must_use]
    pub fn what(&self) -> String {
        let place = format!(" at line {} column {}", self.0.line(), self.0.column());
        let message = self.0.to_string();
        message.strip_suffix(&place).unwrap_or(&message).to_owned()
    }
}

impl Signal {
    const fn batch(self) -> &'static Message {
        match self {
            Self::Traces => &TRACES,
            Self::Logs => &LOGS,
            Self::Metrics => &METRICS,
        }
    }
}

/// The encoding of IDs and enumerations in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// OTLP's mapping: IDs in hexadecimal digits, and numbers for enumerations.
    Otlp,
    /// Protobuf's mapping: IDs in base64 and, in traces, names for enumerations.
    Protobuf,
}

#[cfg(test)]
mod tests;
