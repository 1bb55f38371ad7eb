//! Types of values, which convert a scalar to a typed value or to an error.
//!
//! A type has a name, an example, a reader and a writer. Messages, the reference page and the JSON Schema use these.
//! Quantities have a unit (`10ms`, `64KiB`), bare numbers are counts, and shares lie in [0, 1].

use crate::quantity;
use crate::scalar::{Meaning, Scalar, shorten};
use curtail_units::{Bytes, Duration, Quantile, Ratio};
use serde_json::{Value as Json, json};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The reason why a scalar is not a value of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarError {
    /// The scalar has another type.
    Kind,
    /// The value is too small or too large.
    Range,
    /// The word is unknown.
    Word,
}

impl ScalarError {
    /// `defect` is the defect of the text, if it is known.
    pub(crate) fn describe(self, scalar: &Scalar, defect: Option<String>) -> String {
        let found = scalar.shown();
        match self {
            Self::Kind => match defect {
                Some(defect) => format!("{found} {defect}"),
                None => format!("{found} is {}", scalar.kind()),
            },
            Self::Range => format!("{found} is out of range"),
            Self::Word => format!("{found} is not known"),
        }
    }
}

/// The type of a key.
pub trait Value: Sized {
    /// The name of the type: "a duration".
    const NOUN: &'static str;
    /// An example of a value: "such as 10ms or 1.5s".
    const DETAIL: &'static str;

    /// Reads a value.
    ///
    /// # Errors
    /// When `scalar` is not a value of this type.
    fn read(scalar: &Scalar) -> Result<Self, ScalarError>;

    /// The defect of a text that [`read`](Self::read) rejects, to follow the text in an error: "has no scheme". Absent: the
    /// error states only the kind of value.
    #[must_use]
    fn defect(_text: &str) -> Option<String> {
        None
    }

    /// Writes the value as YAML that `read` accepts.
    fn write(&self) -> String;

    /// The value with which reading continues after an error; it is never part of a result.
    fn placeholder() -> Self;

    /// A JSON Schema that accepts at least what `read` accepts.
    #[must_use]
    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Value for String {
    const NOUN: &'static str = "text";
    const DETAIL: &'static str = "(in quotes if it looks like a number)";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        scalar.text().map(str::to_owned).ok_or(ScalarError::Kind)
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
}

impl Value for PathBuf {
    const NOUN: &'static str = "a path";
    const DETAIL: &'static str = "such as /path/to/file";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        scalar.text().filter(|text| !text.is_empty()).map(Self::from).ok_or(ScalarError::Kind)
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

/// Implements [`Value`] for a type whose values are written as they are displayed.
#[macro_export]
macro_rules! displayed_value {
    ($type:ty, $noun:literal, $detail:literal, $read:expr, $placeholder:expr, $schema:tt) => {
        $crate::displayed_value!($type, $noun, $detail, $read, $placeholder, $schema, |_| None);
    };
    ($type:ty, $noun:literal, $detail:literal, $read:expr, $placeholder:expr, $schema:tt, $defect:expr) => {
        impl $crate::Value for $type {
            const NOUN: &'static str = $noun;
            const DETAIL: &'static str = $detail;

            fn read(scalar: &$crate::Scalar) -> Result<Self, $crate::ScalarError> {
                $read(scalar)
            }

            fn defect(text: &str) -> Option<String> {
                let defect: fn(&str) -> Option<String> = $defect;
                defect(text)
            }

            fn write(&self) -> String {
                self.to_string()
            }

            fn placeholder() -> Self {
                $placeholder
            }

            fn schema() -> serde_json::Value {
                serde_json::json!($schema)
            }
        }
    };
}

fn read_bool(scalar: &Scalar) -> Result<bool, ScalarError> {
    if let Meaning::Truth(truth) = scalar.meaning() { Ok(*truth) } else { Err(ScalarError::Kind) }
}

/// YAML 1.1 read these words as truth values.
fn bool_defect(text: &str) -> Option<String> {
    let is_old = matches!(text.to_ascii_lowercase().as_str(), "on" | "off" | "yes" | "no");
    is_old.then(|| "is text in YAML 1.2".to_owned())
}

displayed_value!(bool, "true or false", "", read_bool, false, { "type": "boolean" }, bool_defect);

fn read_whole<T: TryFrom<i128>>(scalar: &Scalar) -> Result<T, ScalarError> {
    let Meaning::Whole(number) = scalar.meaning() else { return Err(ScalarError::Kind) };
    T::try_from(*number).map_err(|_| ScalarError::Range)
}

macro_rules! whole_number {
    ($type:ty, $detail:literal) => {
        // The placeholder is not 0: a caller may divide by a count.
        displayed_value!($type, "a whole number", $detail, read_whole, 1, {
            "type": "integer", "minimum": Self::MIN, "maximum": Self::MAX
        });
    };
}

whole_number!(u8, "from 0 to 255");
whole_number!(u16, "from 0 to 65535");
whole_number!(u32, "from 0 to 4294967295");
whole_number!(u64, "from 0 to 18446744073709551615");
whole_number!(usize, "from 0 to 18446744073709551615");

fn read_finite(scalar: &Scalar) -> Result<f64, ScalarError> {
    match scalar.meaning() {
        Meaning::Whole(number) => Ok(*number as f64),
        Meaning::Number(number) if number.is_finite() => Ok(*number),
        Meaning::Number(_) => Err(ScalarError::Range),
        Meaning::Nothing | Meaning::Truth(_) | Meaning::LeadingZero | Meaning::Text(_) => {
            Err(ScalarError::Kind)
        }
    }
}

displayed_value!(f64, "a number", "such as 2 or 0.5", read_finite, 1.0, { "type": "number" });

macro_rules! unit_interval_value {
    ($type:ty, $noun:literal, $detail:literal, $placeholder:expr) => {
        displayed_value!(
            $type,
            $noun,
            $detail,
            |scalar| Self::new(read_finite(scalar)?).map_err(|_| ScalarError::Range),
            $placeholder,
            { "type": "number", "minimum": 0, "maximum": 1 }
        );
    };
}

unit_interval_value!(Quantile, "a quantile", "from 0 to 1 (0.99, not 99)", Self::P50);
unit_interval_value!(Ratio, "a ratio", "from 0 to 1 (0.02 for 2 %)", Self::ZERO);

macro_rules! quantity_value {
    ($type:ty, $noun:literal, $detail:literal, $units:expr, $new:expr, $get:expr, $placeholder:expr) => {
        impl Value for $type {
            const NOUN: &'static str = $noun;
            const DETAIL: &'static str = $detail;

            fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
                let text = scalar.text().ok_or(ScalarError::Kind)?;
                quantity::read(text, $units).map($new)
            }

            fn defect(text: &str) -> Option<String> {
                quantity::defect(text, $units)
            }

            fn write(&self) -> String {
                quantity::write($get(*self), $units)
            }

            fn placeholder() -> Self {
                $placeholder
            }

            fn schema() -> Json {
                json!({ "type": "string", "pattern": quantity::pattern($units) })
            }
        }
    };
}

quantity_value!(
    Duration,
    "a duration",
    "such as 10ms or 1.5s",
    quantity::DURATION_UNITS,
    Self::from_ns,
    Self::as_ns,
    Self::from_ms(1)
);
quantity_value!(
    Bytes,
    "a size",
    "such as 512B, 64KiB or 1.5MiB",
    quantity::SIZE_UNITS,
    Self::new,
    Self::get,
    Self::from_kib(1)
);

/// The defect of a port in an address; absent: the port is valid.
#[must_use]
pub fn port_defect(port: &str) -> Option<String> {
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(_) if is_number => None,
        _ if is_number => {
            Some(format!("has the port {}, which is above {}", shorten(port), u16::MAX))
        }
        _ => Some(format!("has the port {:?}, which is not a number", shorten(port))),
    }
}

impl Value for SocketAddr {
    const NOUN: &'static str = "an address with a port";
    const DETAIL: &'static str = "such as 127.0.0.1:8080 or \"[::1]:8080\" (quoted)";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        scalar.text().and_then(|text| text.parse().ok()).ok_or(ScalarError::Kind)
    }

    fn defect(text: &str) -> Option<String> {
        let Some((host, port)) = text.rsplit_once(':') else {
            let is_port = text.parse::<u16>().is_ok();
            return Some(if is_port { "has no address" } else { "has no port" }.to_owned());
        };
        let ip = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if host.is_empty() {
            Some("has no address: 0.0.0.0 and [::] stand for all".to_owned())
        } else if ip.is_none() && host.contains(':') {
            Some("has an IPv6 address without brackets, or no port".to_owned())
        } else if ip.unwrap_or(host).parse::<IpAddr>().is_err() {
            Some(format!("has the name {}, not an IP address", shorten(host)))
        } else {
            port_defect(port)
        }
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
