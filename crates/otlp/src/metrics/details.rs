//! Reads the details of a point from [`Point::message`]: counts and bounds, quantiles, exemplars.

use super::{Form, Measured, Point, Points};
use crate::attributes::{Attribute, key_value};
use crate::error::Broken;
use crate::schema::{
    BUCKETS, EXEMPLAR, EXPONENTIAL_POINT, HISTOGRAM_POINT, KEY_VALUE, Message, NUMBER_POINT,
    SUMMARY_POINT, VALUE_AT_QUANTILE,
};
use crate::slice::Slice;
use crate::spans::id;
use crate::wire::{FIXED64, LEN, Reader, VARINT};

/// The buckets, quantiles and exemplars of a point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The distribution of a histogram or a summary.
    pub distribution: Distribution,
    /// The exemplars, in the order of the point.
    pub exemplars: Vec<Exemplar>,
    /// The attributes of exemplars.
    pub attributes: Vec<Attribute>,
}

/// The distribution of a histogram, an exponential histogram or a summary. The fields of other forms are zero or
/// empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// The number of measured values.
    pub count: u64,
    /// The sum of the values; absent: unset.
    pub sum: Option<f64>,
    /// The minimum.
    pub min: Option<f64>,
    /// The maximum.
    pub max: Option<f64>,
    /// Histogram: the upper bound of each bucket except the last.
    pub bounds: Vec<f64>,
    /// Histogram: the count of each bucket.
    pub bucket_counts: Vec<u64>,
    /// Exponential histogram: the scale; the base is 2 to the power of 2^-scale.
    pub scale: i32,
    /// Exponential histogram: the count of zeros.
    pub zero_count: u64,
    /// Exponential histogram: the maximum absolute value that counts as zero.
    pub zero_threshold: f64,
    /// Exponential histogram: the buckets above zero.
    pub positive: Option<Buckets>,
    /// Exponential histogram: the buckets below zero.
    pub negative: Option<Buckets>,
    /// Summary: the quantiles.
    pub quantiles: Vec<AtQuantile>,
}

/// Adjacent buckets of an exponential histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// The index of the first bucket, whose lower bound is the base to the power of this index.
    pub offset: i32,
    /// The count of each bucket.
    pub counts: Vec<u64>,
}

/// A quantile of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AtQuantile {
    /// From 0 to 1.
    pub quantile: f64,
    /// The value at the quantile.
    pub value: f64,
}

/// A measured value of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exemplar {
    /// The time, in nanoseconds since 1970, as sent.
    pub time_ns: u64,
    /// The value.
    pub measured: Measured,
    /// The ID of the trace; zero: none.
    pub trace_id: u128,
    /// The ID of the span; zero: none.
    pub span_id: u64,
    /// The attributes of the exemplar, in [`Details::attributes`].
    pub attributes: Slice,
}

impl Form {
    const fn point(self) -> &'static Message {
        match self {
            Self::None | Self::Gauge | Self::Sum => &NUMBER_POINT,
            Self::Histogram => &HISTOGRAM_POINT,
            Self::ExponentialHistogram => &EXPONENTIAL_POINT,
            Self::Summary => &SUMMARY_POINT,
        }
    }
}

impl Points {
    /// Reads the buckets, quantiles and exemplars of a point.
    ///
    /// # Panics
    /// When `self`, `point` and `batch` are not of the same batch.
    #[must_use]
    pub fn details(&self, point: &Point, batch: &[u8]) -> Details {
        let form = self.metrics[point.metric as usize].form;
        let mut details = Details::default();
        let reader = Reader::at(batch, point.message, form.point());
        details.read(reader, form).expect("points are walked to their ends when they are decoded");
        details
    }
}

impl Details {
    fn read(&mut self, mut reader: Reader<'_>, form: Form) -> Result<(), Broken> {
        let (histogram, exponential) = (Form::Histogram, Form::ExponentialHistogram);
        let exemplars = match form {
            Form::None | Form::Gauge | Form::Sum => 5,
            Form::Histogram => 8,
            Form::ExponentialHistogram => 11,
            // It has none.
            Form::Summary => 0,
        };
        let is_number = matches!(form, Form::None | Form::Gauge | Form::Sum);
        while let Some(tag) = reader.tag()? {
            let of = &mut self.distribution;
            match (tag.field, tag.wire_type) {
                (field, LEN) if field == exemplars => self.exemplar(&mut reader)?,
                _ if is_number => reader.skip(tag)?,
                (4, FIXED64) => of.count = reader.fixed64()?,
                (5, FIXED64) => of.sum = Some(double(&mut reader)?),
                (6, LEN) if form == Form::Summary => of.quantiles.push(quantile(&mut reader)?),
                (6, wire_type @ (LEN | FIXED64)) if form == histogram => {
                    fixed(&mut reader, wire_type, |bits| of.bucket_counts.push(bits))?;
                }
                (7, wire_type @ (LEN | FIXED64)) if form == histogram => {
                    fixed(&mut reader, wire_type, |bits| of.bounds.push(f64::from_bits(bits)))?;
                }
                (11, FIXED64) if form == histogram => of.min = Some(double(&mut reader)?),
                (12, FIXED64) if form == histogram => of.max = Some(double(&mut reader)?),
                (6, VARINT) if form == exponential => of.scale = signed(&mut reader)?,
                (7, FIXED64) if form == exponential => of.zero_count = reader.fixed64()?,
                (8, LEN) if form == exponential => {
                    of.positive.get_or_insert_default().read(&mut reader)?;
                }
                (9, LEN) if form == exponential => {
                    of.negative.get_or_insert_default().read(&mut reader)?;
                }
                (12, FIXED64) if form == exponential => of.min = Some(double(&mut reader)?),
                (13, FIXED64) if form == exponential => of.max = Some(double(&mut reader)?),
                (14, FIXED64) if form == exponential => of.zero_threshold = double(&mut reader)?,
                _ => reader.skip(tag)?,
            }
        }
        Ok(())
    }

    fn exemplar(&mut self, within: &mut Reader<'_>) -> Result<(), Broken> {
        let from = self.attributes.len();
        let mut reader = within.message(&EXEMPLAR)?;
        let mut exemplar = Exemplar::default();
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (2, FIXED64) => exemplar.time_ns = reader.fixed64()?,
                (3, FIXED64) => exemplar.measured = Measured::Double(double(&mut reader)?),
                // An ID of another length is none.
                (4, LEN) => exemplar.span_id = u64::from_be_bytes(id(&mut reader)?),
                (5, LEN) => exemplar.trace_id = u128::from_be_bytes(id(&mut reader)?),
                (6, FIXED64) => {
                    exemplar.measured = Measured::Int(reader.fixed64()?.cast_signed());
                }
                (7, LEN) => {
                    let attribute = key_value(reader.message(&KEY_VALUE)?, |_| Ok(true))?;
                    self.attributes.push(attribute);
                }
                _ => reader.skip(tag)?,
            }
        }
        exemplar.attributes = Slice::to_end(from, &self.attributes);
        self.exemplars.push(exemplar);
        Ok(())
    }
}

impl Buckets {
    /// Reads the next message of buckets, and merges it with earlier parts of the same field.
    fn read(&mut self, within: &mut Reader<'_>) -> Result<(), Broken> {
        let mut reader = within.message(&BUCKETS)?;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, VARINT) => self.offset = signed(&mut reader)?,
                (2, VARINT) => self.counts.push(reader.varint()?),
                (2, LEN) => {
                    let mut packed = reader.message(&BUCKETS)?;
                    while !packed.rest().is_empty() {
                        self.counts.push(packed.varint()?);
                    }
                }
                _ => reader.skip(tag)?,
            }
        }
        Ok(())
    }
}

fn quantile(within: &mut Reader<'_>) -> Result<AtQuantile, Broken> {
    let mut reader = within.message(&VALUE_AT_QUANTILE)?;
    let mut at = AtQuantile::default();
    while let Some(tag) = reader.tag()? {
        match (tag.field, tag.wire_type) {
            (1, FIXED64) => at.quantile = double(&mut reader)?,
            (2, FIXED64) => at.value = double(&mut reader)?,
            _ => reader.skip(tag)?,
        }
    }
    Ok(at)
}

fn double(reader: &mut Reader<'_>) -> Result<f64, Broken> {
    reader.fixed64().map(f64::from_bits)
}

fn signed(reader: &mut Reader<'_>) -> Result<i32, Broken> {
    Ok(i32::try_from(reader.zigzag()?).unwrap_or_default())
}

/// Reads one number of eight bytes, or several numbers that are packed in one field.
fn fixed(reader: &mut Reader<'_>, wire_type: u8, mut take: impl FnMut(u64)) -> Result<(), Broken> {
    if wire_type != LEN {
        take(reader.fixed64()?);
        return Ok(());
    }
    let mut packed = reader.message(reader.schema())?;
    while !packed.rest().is_empty() {
        take(packed.fixed64()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
