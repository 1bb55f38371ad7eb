//! Points of metrics, in all forms.

use super::{any, around, attributes, own, resource, scope, trace_id};
use crate::metrics_writer::{ExemplarRow, MetricText, MetricsWriter, PointRow};
use curtail_otlp::{
    AtQuantile, Buckets, Details, Distribution, Exemplar, Form, Limits, Measured, Point, Points,
    Slice,
};
use curtail_units::Rng;
use std::fmt::Debug;

const FORMS: [Form; 5] =
    [Form::Gauge, Form::Sum, Form::Histogram, Form::ExponentialHistogram, Form::Summary];

/// Points of a few metrics and series.
pub(crate) fn batch(rng: &mut Rng, points: usize, metrics: usize) -> Vec<u8> {
    let names: Vec<_> = (0..metrics).map(|nth| format!("metric {nth}")).collect();
    let mut writer = MetricsWriter::new();
    for _ in 0..points {
        let form = any(rng, &FORMS);
        let name = if rng.chance(0.1) { "" } else { &names[rng.below(metrics)] };
        let metric = MetricText {
            name,
            description: any(rng, &["", "what it is"]),
            unit: any(rng, &["", "ms", "By"]),
            form,
            // Fields that a gauge and a summary do not have are no loss.
            temporality: if has_temporality(form) { any(rng, &[0, 1, 2, 7, -1]) } else { 0 },
            is_monotonic: form == Form::Sum && rng.chance(0.5),
            metadata: any(rng, &["", r#"{"prometheus.type":"info"}"#]),
        };
        let exemplars = exemplars(rng);
        let point = PointRow {
            start_ns: any(rng, &[0, 1_750_000_000_000_000_000]),
            time_ns: any(rng, &[0, 1_750_000_000_000_000_000, i64::MAX as u64]),
            measured: if form == Form::Gauge || form == Form::Sum {
                measured(rng)
            } else {
                Measured::None
            },
            distribution: distribution(rng, form),
            exemplars: &exemplars,
            attributes: &own(rng),
            flags: any(rng, &[0, 1, u32::MAX]),
        };
        writer.point(&resource(rng), &scope(rng), &metric, &point).expect("plain JSON");
    }
    writer.finish()
}

const fn has_temporality(form: Form) -> bool {
    matches!(form, Form::Sum | Form::Histogram | Form::ExponentialHistogram)
}

/// Doubles of all kinds, two NaN among them.
fn double(rng: &mut Rng) -> f64 {
    let odd = [0.0, -0.0, 1.5, f64::NAN, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX];
    if rng.chance(0.1) { f64::from_bits(0xFFF8_0000_0000_0007) } else { any(rng, &odd) }
}

/// Whole numbers up to all 64 bits.
fn count(rng: &mut Rng) -> u64 {
    if rng.chance(0.2) { any(rng, &[0, u64::MAX, 1 << 63]) } else { rng.next_u64() >> 56 }
}

fn counts(rng: &mut Rng) -> Vec<u64> {
    (0..rng.below(5)).map(|_| count(rng)).collect()
}

fn measured(rng: &mut Rng) -> Measured {
    match rng.below(3) {
        0 => Measured::None,
        1 => Measured::Int(any(rng, &[0, -1, i64::MIN, i64::MAX])),
        _ => Measured::Double(double(rng)),
    }
}

fn maybe(rng: &mut Rng) -> Option<f64> {
    rng.chance(0.5).then(|| double(rng))
}

fn distribution(rng: &mut Rng, form: Form) -> Distribution {
    let nothing = Distribution::default();
    let counted = |rng: &mut Rng| Distribution {
        count: count(rng),
        sum: maybe(rng),
        ..Distribution::default()
    };
    match form {
        Form::None | Form::Gauge | Form::Sum => nothing,
        Form::Histogram => Distribution {
            min: maybe(rng),
            max: maybe(rng),
            bounds: (0..rng.below(4)).map(|_| double(rng)).collect(),
            bucket_counts: counts(rng),
            ..counted(rng)
        },
        Form::ExponentialHistogram => Distribution {
            min: maybe(rng),
            max: maybe(rng),
            scale: any(rng, &[0, 20, -10, i32::MIN, i32::MAX]),
            zero_count: count(rng),
            zero_threshold: double(rng),
            positive: buckets(rng),
            negative: buckets(rng),
            ..counted(rng)
        },
        Form::Summary => Distribution {
            quantiles: (0..rng.below(3))
                .map(|_| AtQuantile { quantile: double(rng), value: double(rng) })
                .collect(),
            ..counted(rng)
        },
    }
}

/// None, some without a count, some.
fn buckets(rng: &mut Rng) -> Option<Buckets> {
    let offset = any(rng, &[0, -3, i32::MIN, i32::MAX]);
    rng.chance(0.7).then(|| Buckets { offset, counts: counts(rng) })
}

fn exemplars(rng: &mut Rng) -> Vec<ExemplarRow<'static>> {
    (0..rng.below(3))
        .map(|_| {
            let exemplar = Exemplar {
                time_ns: any(rng, &[0, 1, u64::MAX]),
                measured: measured(rng),
                trace_id: if rng.chance(0.5) { trace_id(rng.below(9)) } else { 0 },
                span_id: if rng.chance(0.5) { rng.next_u64() } else { 0 },
                ..Exemplar::default()
            };
            (exemplar, any(rng, &["", r#"{"user.id":"u","n":[1,2.5]}"#]))
        })
        .collect()
}

/// All that a batch says of each point, in an order that does not depend on that of the batch.
pub(crate) fn facts(batch: &[u8]) -> Vec<String> {
    let (rows, rejected) = Points::decode(batch, &Limits::default()).expect("a batch");
    assert_eq!(rejected.count, 0);
    let mut facts: Vec<_> = rows.points.iter().map(|point| facts_of(batch, &rows, point)).collect();
    facts.sort();
    facts
}

fn facts_of(batch: &[u8], rows: &Points, point: &Point) -> String {
    let text = |slice: Slice| String::from_utf8_lossy(slice.of(batch));
    let metric = &rows.metrics[point.metric as usize];
    let details = rows.details(point, batch);
    let parts: [&dyn Debug; 10] = [
        &(text(metric.name), text(metric.description), text(metric.unit)),
        &(metric.form, metric.temporality, metric.is_monotonic),
        &attributes(batch, metric.metadata.of(&rows.attributes)),
        &(point.time_ns, point.start_ns, point.flags),
        &with_bits(point.measured),
        &bits_of(&details.distribution),
        &(details.distribution.positive.as_ref(), details.distribution.negative.as_ref()),
        &facts_of_exemplars(batch, &details),
        &attributes(batch, point.attributes.of(&rows.attributes)),
        &around(batch, &rows.envelope, metric.scope),
    ];
    format!("{parts:?}")
}

fn with_bits(measured: Measured) -> String {
    match measured {
        Measured::Double(number) => format!("{:x}", number.to_bits()),
        Measured::None | Measured::Int(_) => format!("{measured:?}"),
    }
}

/// Doubles by their bits, so that one NaN is not as good as another.
fn bits_of(distribution: &Distribution) -> String {
    let quantiles = distribution.quantiles.iter().flat_map(|at| [at.quantile, at.value]);
    let sum_and_extremes =
        [distribution.sum, distribution.min, distribution.max].map(|value| value.map(f64::to_bits));
    let bounds: Vec<_> = distribution
        .bounds
        .iter()
        .chain([&distribution.zero_threshold])
        .map(|b| b.to_bits())
        .collect();
    let quantiles: Vec<_> = quantiles.map(f64::to_bits).collect();
    let counts = (
        distribution.count,
        &distribution.bucket_counts,
        distribution.scale,
        distribution.zero_count,
    );
    format!("{sum_and_extremes:x?} {bounds:x?} {quantiles:x?} {counts:?}")
}

fn facts_of_exemplars(batch: &[u8], details: &Details) -> Vec<String> {
    let facts = details.exemplars.iter().map(|exemplar| {
        let ids = (exemplar.time_ns, exemplar.trace_id, exemplar.span_id);
        let own = attributes(batch, exemplar.attributes.of(&details.attributes));
        format!("{ids:?} {} {own:?}", with_bits(exemplar.measured))
    });
    facts.collect()
}
