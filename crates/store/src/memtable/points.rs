//! Writes points of metrics into columns.

use super::RowWriter;
use super::envelope::Shared;
use super::series::Series;
use crate::columns::Columns;
use crate::schema::points::{
    BOUNDS, BUCKET_COUNTS, COUNT, DESCRIPTION, EXEMPLARS, FLAGS, IS_MONOTONIC, KIND, KINDS, MAX,
    METADATA, METRIC, MIN, NEGATIVE_COUNTS, NEGATIVE_OFFSET, POSITIVE_COUNTS, POSITIVE_OFFSET,
    QUANTILES, SCALE, SERIES_ID, START, SUM, TEMPORALITIES, TEMPORALITY, TIME, UNIT, VALUE_DOUBLE,
    VALUE_INT, ZERO_COUNT, ZERO_THRESHOLD,
};
use crate::schema::with_name;
use curtail_otlp::{Buckets, Details, Distribution, Form, Measured, Metric, Point, Points, plain};

impl RowWriter {
    pub(super) fn points(
        &mut self,
        columns: &mut Columns,
        tenant: &str,
        batch: &[u8],
        rows: &Points,
    ) {
        let envelope = &rows.envelope;
        let scopes = Shared::of(columns, tenant, batch, envelope);
        let of_scope = |scope| Series::of_scope(tenant, batch, envelope, scope);
        let series: Vec<_> = envelope.scopes.iter().map(of_scope).collect();
        for points in rows.points.chunk_by(|point, next| point.metric == next.metric) {
            let metric = &rows.metrics[points[0].metric as usize];
            let scope = metric.scope as usize;
            scopes[scope].set(columns, points.len());
            self.metric(columns, metric, rows, batch).set(columns, points.len());
            let series = series[scope].of_metric(batch, metric);
            for point in points {
                let attributes = point.attributes.of(&rows.attributes);
                columns.push_wide(SERIES_ID, series.id(attributes, batch));
                number(columns, point);
                self.details(columns, metric.form, &rows.details(point, batch), batch);
                self.attributes.take(columns, attributes, batch);
                columns.end_row();
            }
        }
    }
}

/// Writes the times and the number of a point.
fn number(columns: &mut Columns, point: &Point) {
    // The decoder accepts no time of more than 63 bits.
    columns.push_long(TIME, point.time_ns.cast_signed());
    columns.push_long(START, point.start_ns.cast_signed());
    match point.measured {
        Measured::None => {}
        Measured::Int(number) => {
            columns.set_value(VALUE_INT, &number.to_le_bytes());
        }
        Measured::Double(number) => {
            columns.set_value(VALUE_DOUBLE, &number.to_le_bytes());
        }
    }
    if point.flags != 0 {
        columns.set_value(FLAGS, &i64::from(point.flags).to_le_bytes());
    }
}

impl RowWriter {
    /// The values that all points of a metric share.
    fn metric(
        &mut self,
        columns: &mut Columns,
        metric: &Metric,
        rows: &Points,
        batch: &[u8],
    ) -> Shared {
        let mut shared = Shared::default();
        let mut share = |field, value: &[u8]| shared.0.push((field, columns.intern(field, value)));
        let texts = [(METRIC, metric.name), (DESCRIPTION, metric.description), (UNIT, metric.unit)];
        for (field, text) in texts {
            if !text.is_empty() {
                share(field, text.of(batch));
            }
        }
        let metadata = metric.metadata.of(&rows.attributes);
        if !metadata.is_empty() {
            self.json.clear();
            plain::attributes(&mut self.json, metadata, batch);
            share(METADATA, &self.json);
        }
        let kind = KINDS.iter().find(|(form, _)| *form == metric.form);
        kind.into_iter().for_each(|(_, name)| share(KIND, name.as_bytes()));
        if metric.temporality != 0 {
            let share = |name: &str| share(TEMPORALITY, name.as_bytes());
            with_name(&TEMPORALITIES, metric.temporality, share);
        }
        if metric.form == Form::Sum || metric.is_monotonic {
            share(IS_MONOTONIC, &[u8::from(metric.is_monotonic)]);
        }
        shared
    }

    fn details(&mut self, columns: &mut Columns, form: Form, details: &Details, batch: &[u8]) {
        let of = &details.distribution;
        match form {
            Form::None | Form::Gauge | Form::Sum => {}
            Form::Histogram => {
                count_and_extremes(columns, of);
                for bound in &of.bounds {
                    columns.push_entry(BOUNDS).coded(&bound.to_le_bytes());
                }
                counts(columns, BUCKET_COUNTS, &of.bucket_counts);
            }
            Form::ExponentialHistogram => {
                count_and_extremes(columns, of);
                columns.set_value(SCALE, &i64::from(of.scale).to_le_bytes());
                columns.set_value(ZERO_COUNT, &of.zero_count.to_le_bytes());
                columns.set_value(ZERO_THRESHOLD, &of.zero_threshold.to_le_bytes());
                buckets(columns, (POSITIVE_OFFSET, POSITIVE_COUNTS), of.positive.as_ref());
                buckets(columns, (NEGATIVE_OFFSET, NEGATIVE_COUNTS), of.negative.as_ref());
            }
            Form::Summary => {
                count_and_extremes(columns, of);
                for at in &of.quantiles {
                    columns
                        .push_entry(QUANTILES)
                        .coded(&at.quantile.to_le_bytes())
                        .coded(&at.value.to_le_bytes());
                }
            }
        }
        self.exemplars(columns, details, batch);
    }

    fn exemplars(&mut self, columns: &mut Columns, details: &Details, batch: &[u8]) {
        for exemplar in &details.exemplars {
            self.json.clear();
            let attributes = exemplar.attributes.of(&details.attributes);
            plain::attributes(&mut self.json, attributes, batch);
            let (value, kind, int) = match exemplar.measured {
                Measured::None => (0.0, "none", 0),
                Measured::Double(number) => (number, "double", 0),
                #[expect(clippy::cast_precision_loss, reason = "the whole one is beside it")]
                Measured::Int(number) => (number as f64, "int", number),
            };
            columns
                .push_entry(EXEMPLARS)
                .long(exemplar.time_ns.cast_signed())
                .coded(&value.to_le_bytes())
                .coded(kind.as_bytes())
                .coded(&int.to_le_bytes())
                .wide(exemplar.trace_id)
                .narrow(exemplar.span_id)
                .coded(&self.json);
        }
    }
}

fn count_and_extremes(columns: &mut Columns, of: &Distribution) {
    columns.set_value(COUNT, &of.count.to_le_bytes());
    for (field, number) in [(SUM, of.sum), (MIN, of.min), (MAX, of.max)] {
        if let Some(number) = number {
            columns.set_value(field, &number.to_le_bytes());
        }
    }
}

fn buckets(columns: &mut Columns, fields: (usize, usize), buckets: Option<&Buckets>) {
    if let Some(buckets) = buckets {
        columns.set_value(fields.0, &i64::from(buckets.offset).to_le_bytes());
        counts(columns, fields.1, &buckets.counts);
    }
}

fn counts(columns: &mut Columns, field: usize, counts: &[u64]) {
    for count in counts {
        columns.push_entry(field).coded(&count.to_le_bytes());
    }
}
