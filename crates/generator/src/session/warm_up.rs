//! How long load is sent to a service before it counts.

use curtail_config::{Scalar, Value, Wrong};
use curtail_units::Duration;
use serde_json::{Value as Json, json};

/// The maximum time of a warm-up that ends when the service is steady.
pub const WARM_UP_MAX: Duration = Duration::from_secs(120);

/// How long load is sent before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// Not at all.
    None,
    /// Until the service is steady, for a maximum time.
    Steady {
        /// Then it counts all the same, and the results say that the service was not steady.
        at_most: Duration,
    },
    /// This time.
    Lasts(Duration),
}

impl Value for WarmUp {
    const NOUN: &'static str = "none, auto";
    const DETAIL: &'static str = "or a time such as 30s";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        match scalar.text() {
            Some("none") => Ok(Self::None),
            Some("auto") => Ok(Self::Steady { at_most: WARM_UP_MAX }),
            _ => <Duration as Value>::read(scalar).map(Self::Lasts),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Steady { .. } => "auto".to_owned(),
            Self::Lasts(lasts) => lasts.write(),
        }
    }

    fn placeholder() -> Self {
        Self::None
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}
