//! How one scalar becomes one typed value, and what is said when it does not.
//!
//! A type says what it is called, what a right value looks like, how to read it and how to write it; from
//! that come messages, the reference page and the JSON Schema. Quantities with a unit are written with it
//! (`10ms`, `64KiB`), bare numbers are counts, and shares lie in [0, 1].

use crate::quantity;
use crate::scalar::{Meaning, Scalar};
use curtail_units::{Bytes, Duration, Quantile, Ratio};
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a scalar is not a value of the type that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is something else.
    Kind,
    /// It is the right thing, but too small or too large.
    Range,
    /// It is a word, but none of those that are known.
    Word,
}

impl Wrong {
    /// What is wrong with `scalar`.
    pub(crate) fn says(self, scalar: &Scalar) -> String {
        let found = scalar.shown();
        match self {
            Self::Kind => format!("{found} is {}", scalar.kind()),
            Self::Range => format!("{found} is out of range"),
            Self::Word => format!("{found} is not known"),
        }
    }
}

/// A type that a key can have.
pub trait Value: Sized {
    /// What a value is called: "a duration".
    const NOUN: &'static str;
    /// What a right value looks like: "such as 10ms or 1.5s".
    const DETAIL: &'static str;

    /// The value that `scalar` stands for.
    ///
    /// # Errors
    /// When it stands for none.
    fn read(scalar: &Scalar) -> Result<Self, Wrong>;

    /// The value as it is written in YAML; what this gives, `read` takes.
    fn write(&self) -> String;

    /// The value that reading goes on with after an error; it is never part of a result.
    fn placeholder() -> Self;

    /// The JSON Schema of what `read` takes, or of more than that.
    fn schema() -> Json;
}

impl Value for String {
    const NOUN: &'static str = "text";
    const DETAIL: &'static str = "(in quotes if it looks like a number)";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        scalar.text().map(str::to_owned).ok_or(Wrong::Kind)
    }

    fn write(&self) -> String {
        // Quoted unless it would be read back as the same text.
        let plain = self.chars().all(|c| c.is_alphanumeric() || "_-/.".contains(c))
            && !self.starts_with(['-', '.'])
            && Scalar::plain(self).text().is_some();
        if plain { self.clone() } else { Json::from(self.as_str()).to_string() }
    }

    fn placeholder() -> Self {
        Self::new()
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Value for PathBuf {
    const NOUN: &'static str = "a path";
    const DETAIL: &'static str = "such as traces/day.json";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        match scalar.text() {
            Some(text) if !text.is_empty() => Ok(Self::from(text)),
            _ => Err(Wrong::Kind),
        }
    }

    fn write(&self) -> String {
        self.to_string_lossy().into_owned().write()
    }

    fn placeholder() -> Self {
        Self::new()
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl Value for bool {
    const NOUN: &'static str = "true or false";
    const DETAIL: &'static str = "";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        if let Meaning::Truth(truth) = scalar.meaning() { Ok(*truth) } else { Err(Wrong::Kind) }
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> Self {
        false
    }

    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

macro_rules! whole_number {
    ($type:ty, $detail:literal) => {
        impl Value for $type {
            const NOUN: &'static str = "a whole number";
            const DETAIL: &'static str = $detail;

            fn read(scalar: &Scalar) -> Result<Self, Wrong> {
                let Meaning::Whole(number) = scalar.meaning() else { return Err(Wrong::Kind) };
                Self::try_from(*number).map_err(|_| Wrong::Range)
            }

            fn write(&self) -> String {
                self.to_string()
            }

            fn placeholder() -> Self {
                // Not 0: a caller that divides by a count must not be tripped by an error elsewhere.
                1
            }

            fn schema() -> Json {
                json!({ "type": "integer", "minimum": Self::MIN, "maximum": Self::MAX })
            }
        }
    };
}

whole_number!(u8, "from 0 to 255");
whole_number!(u16, "from 0 to 65535");
whole_number!(u32, "from 0 to 4294967295");
whole_number!(u64, "from 0 to 18446744073709551615");
whole_number!(usize, "from 0 to 18446744073709551615");

fn finite(scalar: &Scalar) -> Result<f64, Wrong> {
    match scalar.meaning() {
        Meaning::Whole(number) => Ok(*number as f64),
        Meaning::Number(number) if number.is_finite() => Ok(*number),
        Meaning::Number(_) => Err(Wrong::Range),
        Meaning::Nothing | Meaning::Truth(_) | Meaning::LeadingZero | Meaning::Text(_) => {
            Err(Wrong::Kind)
        }
    }
}

impl Value for f64 {
    const NOUN: &'static str = "a number";
    const DETAIL: &'static str = "such as 2 or 0.5";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        finite(scalar)
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> Self {
        1.0
    }

    fn schema() -> Json {
        json!({ "type": "number" })
    }
}

impl Value for Quantile {
    const NOUN: &'static str = "a quantile";
    const DETAIL: &'static str = "from 0 to 1 (0.99, not 99)";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        Self::new(finite(scalar)?).map_err(|_| Wrong::Range)
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> Self {
        Self::P50
    }

    fn schema() -> Json {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl Value for Ratio {
    const NOUN: &'static str = "a ratio";
    const DETAIL: &'static str = "from 0 to 1 (0.02 for 2 %)";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        Self::new(finite(scalar)?).map_err(|_| Wrong::Range)
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> Self {
        Self::ZERO
    }

    fn schema() -> Json {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl Value for Duration {
    const NOUN: &'static str = "a duration";
    const DETAIL: &'static str = "such as 10ms or 1.5s";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        let text = scalar.text().ok_or(Wrong::Kind)?;
        quantity::read(text, quantity::DURATION_UNITS).map(Self::from_ns)
    }

    fn write(&self) -> String {
        quantity::write(self.as_ns(), quantity::DURATION_UNITS)
    }

    fn placeholder() -> Self {
        Self::from_ms(1)
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": quantity::pattern(quantity::DURATION_UNITS) })
    }
}

impl Value for Bytes {
    const NOUN: &'static str = "a size";
    const DETAIL: &'static str = "such as 512B, 64KiB or 1.5MiB";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        let text = scalar.text().ok_or(Wrong::Kind)?;
        quantity::read(text, quantity::SIZE_UNITS).map(Self::new)
    }

    fn write(&self) -> String {
        quantity::write(self.get(), quantity::SIZE_UNITS)
    }

    fn placeholder() -> Self {
        Self::from_kib(1)
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": quantity::pattern(quantity::SIZE_UNITS) })
    }
}

impl Value for SocketAddr {
    const NOUN: &'static str = "an address with a port";
    const DETAIL: &'static str = "such as 127.0.0.1:8080 or \"[::1]:8080\" (quoted)";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        scalar.text().and_then(|text| text.parse().ok()).ok_or(Wrong::Kind)
    }

    fn write(&self) -> String {
        if self.is_ipv6() { format!("\"{self}\"") } else { self.to_string() }
    }

    fn placeholder() -> Self {
        Self::from(([127, 0, 0, 1], 1))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": "^.+:[0-9]+$" })
    }
}
