//! Decodes metric points.
//!
//! The buckets, quantiles and exemplars of a point are checked, but stay encoded in the batch:
//! [`Point::message`] is the position of the encoded point, and [`Points::details`] decodes it.

mod details;

pub use details::{AtQuantile, Buckets, Details, Distribution, Exemplar};

use crate::attributes::{Attribute, push};
use crate::check::check_field;
use crate::envelope::{Envelope, ReadRow};
use crate::error::Broken;
use crate::judge::Judge;
use crate::schema::{METRIC, METRICS, Message};
use crate::slice::{Slice, short};
use crate::wire::{FIXED64, LEN, Reader, VARINT};

/// The points of one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    /// The points, in the order of the batch.
    pub points: Vec<Point>,
    /// The metrics of the points.
    pub metrics: Vec<Metric>,
    /// The attributes of points and metrics.
    pub attributes: Vec<Attribute>,
    /// The resources and scopes of the rows.
    pub envelope: Envelope,
}

/// A metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metric {
    /// The name.
    pub name: Slice,
    /// The description, for people.
    pub description: Slice,
    /// The unit in UCUM: `ms`, `By`, `{request}`.
    pub unit: Slice,
    /// The form of the points.
    pub form: Form,
    /// 1: values since the last point; 2: values since the start; 0: unset, or a form without temporality.
    pub temporality: i32,
    /// Whether the metric is a sum that never falls.
    pub is_monotonic: bool,
    /// The metadata, in [`Points::attributes`].
    pub metadata: Slice,
    /// The index of the scope in [`Envelope::scopes`].
    pub scope: u32,
}

/// The form of the points of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The metric has no points of a known form.
    #[default]
    None,
    /// A current number.
    Gauge,
    /// A sum.
    Sum,
    /// Counts between explicit bounds.
    Histogram,
    /// Counts between powers of a base.
    ExponentialHistogram,
    /// Quantiles, a legacy form.
    Summary,
}

/// A measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The index of the metric in [`Points::metrics`].
    pub metric: u32,
    /// The start of the measured interval, in nanoseconds since 1970, below 2^63; zero: unset.
    pub start_ns: u64,
    /// The time of the measurement, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The number of the point, if its form has one.
    pub measured: Measured,
    /// The position of the point's message in the batch.
    pub message: Slice,
    /// The attributes, in [`Points::attributes`].
    pub attributes: Slice,
    /// The flags; 1: no value was recorded.
    pub flags: u32,
}

/// The number of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Measured {
    /// No number, because the point is a histogram or a summary, or the number is unset.
    #[default]
    None,
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
}

impl Form {
    /// Returns the field numbers of attributes and of flags in points of this form.
    pub(crate) const fn fields(self) -> (u32, u32) {
        match self {
            Self::None | Self::Gauge | Self::Sum | Self::Summary => (7, 8),
            Self::Histogram => (9, 10),
            Self::ExponentialHistogram => (1, 10),
        }
    }

    /// Returns the form of the points in a field of a metric.
    const fn of_field(field: u32) -> Option<Self> {
        match field {
            5 => Some(Self::Gauge),
            7 => Some(Self::Sum),
            9 => Some(Self::Histogram),
            10 => Some(Self::ExponentialHistogram),
            11 => Some(Self::Summary),
            _ => None,
        }
    }
}

impl ReadRow for Points {
    const BATCH: &'static Message = &METRICS;

    /// Reads a metric. Walks the message twice, as for a resource, because fields of a metric may follow its points.
    fn read_row(
        &mut self,
        within: &mut Reader<'_>,
        scope: u32,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        judge.part(within)?;
        let message = within.message(&METRIC)?;
        let mut metric = Metric { scope, ..Metric::default() };
        let from = self.attributes.len();
        let mut reader = message;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => metric.name = judge.checked(&mut reader)?,
                (2, LEN) => metric.description = judge.checked(&mut reader)?,
                (3, LEN) => metric.unit = judge.checked(&mut reader)?,
                (12, LEN) => push(&mut reader, &mut self.attributes, from, judge)?,
                (field, LEN) if Form::of_field(field).is_some() => {
                    metric.form = Form::of_field(field).unwrap_or_default();
                    temporality(reader.message(METRIC.part(field))?, &mut metric)?;
                }
                _ => reader.other(tag)?,
            }
        }
        metric.metadata = Slice::to_end(from, &self.attributes);
        let number = short(self.metrics.len());
        self.metrics.push(metric);
        let outer = judge.begin_rows();
        let mut reader = message;
        while let Some(tag) = reader.tag()? {
            match Form::of_field(tag.field).filter(|form| *form == metric.form) {
                Some(_) => self.points(reader.message(METRIC.part(tag.field))?, number, judge)?,
                None => reader.skip(tag)?,
            }
        }
        judge.end_rows(outer);
        Ok(())
    }
}

/// Reads all fields of a sum or a histogram except its points.
fn temporality(mut reader: Reader<'_>, metric: &mut Metric) -> Result<(), Broken> {
    while let Some(tag) = reader.tag()? {
        match (tag.field, tag.wire_type) {
            (2, VARINT) => metric.temporality = reader.enumerated()?,
            (3, VARINT) => metric.is_monotonic = reader.varint()? != 0,
            _ => reader.other(tag)?,
        }
    }
    Ok(())
}

impl Points {
    fn points(
        &mut self,
        mut reader: Reader<'_>,
        metric: u32,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let of_point = reader.schema().part(1);
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => self.point(reader.message(of_point)?, metric, judge)?,
                _ => reader.skip(tag)?,
            }
        }
        Ok(())
    }

    fn point(
        &mut self,
        mut reader: Reader<'_>,
        metric: u32,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let from = self.attributes.len();
        judge.part(&reader)?;
        let form = self.metrics[metric as usize].form;
        let is_number = matches!(form, Form::Gauge | Form::Sum);
        let (attributes, flags) = form.fields();
        let mut point = Point { metric, message: reader.whole(), ..Point::default() };
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (2, FIXED64) => point.start_ns = judge.time(&mut reader)?,
                (3, FIXED64) => point.time_ns = judge.time(&mut reader)?,
                (4, FIXED64) if is_number => {
                    point.measured = Measured::Double(f64::from_bits(reader.fixed64()?));
                }
                (6, FIXED64) if is_number => {
                    point.measured = Measured::Int(reader.fixed64()?.cast_signed());
                }
                (field, LEN) if field == attributes => {
                    push(&mut reader, &mut self.attributes, from, judge)?;
                }
                (field, VARINT) if field == flags => point.flags = reader.count()?,
                _ => {
                    check_field(&mut reader, tag, judge, 0)?;
                }
            }
        }
        if judge.keeps(0, 0) {
            point.attributes = Slice::to_end(from, &self.attributes);
            self.points.push(point);
        } else {
            self.attributes.truncate(from);
        }
        Ok(())
    }
}
