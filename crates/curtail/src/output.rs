//! Helpers of all commands: the formats of results, standard output, and arguments with a few named values.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use curtail_units::Quantile;
use std::io::{self, Write as _};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Writes a result to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a message to standard error, if that is open.
pub(crate) fn print_message(text: &str) {
    let _written = writeln!(io::stderr(), "{text}");
}

/// The name of a value on the command line, its help, and the value.
pub(crate) type NamedValue<T> = (&'static str, &'static str, T);

/// Returns a parser of an argument that is one of a few names.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [NamedValue<T>],
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).map(move |text| {
        let found = values.iter().find(|(name, ..)| *name == text);
        found.expect("clap accepts only these names").2
    })
}

/// Parses an argument that is a quantile.
pub(crate) fn quantile(text: &str) -> Result<Quantile, String> {
    let number: f64 = text.parse().map_err(|_| "expected a quantile from 0 to 1")?;
    Quantile::new(number).map_err(|error| error.to_string())
}
