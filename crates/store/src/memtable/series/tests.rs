use crate::memtable::Memtable;
use crate::schema::points::{POINTS, SERIES_ID};
use curtail_otlp::{Decoded, Form, Limits, PlainValue, ResourceText, ScopeText, Signal};
use metrics_writer::{MetricText, MetricsWriter, PointRow};
use std::collections::HashSet;

#[path = "../../../../otlp/tests/support/metrics_writer.rs"]
mod metrics_writer;

const METRIC: MetricText<'static> = MetricText {
    name: "requests",
    description: "",
    unit: "1",
    form: Form::Sum,
    temporality: 2,
    is_monotonic: true,
    metadata: "",
};
const RESOURCE: ResourceText<'static> = ResourceText {
    attributes: r#"{"service.name":"shop","host.name":"a"}"#,
    dropped_attributes: 0,
    schema_url: "",
};
const SCOPE: ScopeText<'static> = ScopeText {
    name: "http",
    version: "1",
    attributes: r#"{"a":1,"b":2}"#,
    dropped_attributes: 0,
    schema_url: "",
};

/// IDs of the series of points with these attributes.
fn ids<'a>(
    tenant: &str,
    around: (&ResourceText<'_>, &ScopeText<'_>, &MetricText<'_>),
    all: impl IntoIterator<Item = Vec<(&'a str, PlainValue<'a>)>>,
) -> Vec<u128> {
    let mut writer = MetricsWriter::new();
    for attributes in all {
        let row = PointRow { attributes: &attributes, ..PointRow::default() };
        writer.point(around.0, around.1, around.2, &row).expect("plain JSON");
    }
    let batch = writer.finish();
    let (points, _) = Decoded::of(Signal::Metrics, &batch, &Limits::default()).expect("a batch");
    let mut memtable = Memtable::new(&POINTS);
    memtable.insert(tenant, &batch, &points);
    memtable.columns().wide(SERIES_ID).to_vec()
}

fn own() -> Vec<(&'static str, PlainValue<'static>)> {
    vec![("route", PlainValue::Text("/cart")), ("status", PlainValue::Int(200))]
}

#[test]
fn the_id_of_a_series_is_the_same_for_ever() {
    let kinds = vec![
        ("double", PlainValue::Double(0.5)),
        ("bool", PlainValue::Bool(true)),
        ("json", PlainValue::Json(r#"[1,{"a":null}]"#)),
        ("a longer key, of more than a word", PlainValue::Text("größer")),
    ];
    let found = ids("shop", (&RESOURCE, &SCOPE, &METRIC), [own(), Vec::new(), kinds]);
    let known = [
        0x7f55_1b92_71ce_c904_7f33_eba0_45dd_0793,
        0xe066_5967_41da_f20b_ec6e_de1f_1e44_a38f,
        0x5b4f_4e9d_b8d1_3c85_1a02_2881_f53a_0655,
    ];
    assert_eq!(found, known, "{found:x?}");
}

#[test]
fn the_order_of_attributes_and_what_only_describes_do_not_matter() {
    let id_of = |resource: &ResourceText<'_>,
                 scope: &ScopeText<'_>,
                 metric: &MetricText<'_>,
                 own| { ids("shop", (resource, scope, metric), [own])[0] };
    let id = id_of(&RESOURCE, &SCOPE, &METRIC, own());
    let resource =
        ResourceText { attributes: r#"{"host.name":"a","service.name":"shop"}"#, ..RESOURCE };
    let scope = ScopeText { attributes: r#"{"b":2,"a":1}"#, schema_url: "u", ..SCOPE };
    let metric = MetricText { description: "how many", metadata: r#"{"a":1}"#, ..METRIC };
    let reversed = own().into_iter().rev().collect();
    assert_eq!(id_of(&resource, &scope, &metric, reversed), id);
}

#[test]
fn whatever_else_differs_is_another_series() {
    let around = (&RESOURCE, &SCOPE, &METRIC);
    let mut all = ids(
        "shop",
        around,
        [
            own(),
            Vec::new(),
            vec![("route", PlainValue::Text("/cart"))],
            vec![("route", PlainValue::Int(200)), ("status", PlainValue::Text("/cart"))],
            vec![("route", PlainValue::Text("/cart")), ("status", PlainValue::Double(200.0))],
            vec![("route", PlainValue::Text("/cart")), ("status", PlainValue::Text("200"))],
            vec![("route", PlainValue::Text("/cart")), ("status", PlainValue::Json("null"))],
            vec![("route", PlainValue::Text("/cart")), ("status", PlainValue::Bool(true))],
            [own(), own()].concat(),
        ],
    );
    all.extend(ids("others", around, [own()]));
    let resource = ResourceText { attributes: r#"{"service.name":"shop"}"#, ..RESOURCE };
    all.extend(ids("shop", (&resource, &SCOPE, &METRIC), [own()]));
    for scope in [
        ScopeText { name: "httpx", ..SCOPE },
        ScopeText { version: "2", ..SCOPE },
        ScopeText { name: "http1", version: "", ..SCOPE },
        ScopeText { attributes: r#"{"a":2,"b":1}"#, ..SCOPE },
    ] {
        all.extend(ids("shop", (&RESOURCE, &scope, &METRIC), [own()]));
    }
    for metric in [
        MetricText { name: "request", ..METRIC },
        MetricText { unit: "s", ..METRIC },
        MetricText { form: Form::Gauge, ..METRIC },
        MetricText { temporality: 1, ..METRIC },
        MetricText { is_monotonic: false, ..METRIC },
    ] {
        all.extend(ids("shop", (&RESOURCE, &SCOPE, &metric), [own()]));
    }
    let different: HashSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:x?}");
}

/// Attributes that are numbers in a row are what a weak hash would mix up, and a sum of hashes even more.
#[test]
fn series_that_hardly_differ_have_ids_of_which_both_halves_differ() {
    let pairs = (0..400_i64).flat_map(|one| (0..400_i64).map(move |other| (one, other)));
    let attributes =
        pairs.map(|(one, other)| vec![("a", PlainValue::Int(one)), ("b", PlainValue::Int(other))]);
    let all = ids("shop", (&RESOURCE, &SCOPE, &METRIC), attributes);
    assert_eq!(all.len(), 160_000);
    for half in [0, 64] {
        let different: HashSet<_> =
            all.iter().map(|id| id >> half & u128::from(u64::MAX)).collect();
        assert_eq!(different.len(), all.len());
        // Of each bit, about half are one: the deviation is 200.
        for bit in 0..64 {
            let ones = all.iter().filter(|id| *id >> (half + bit) & 1 == 1).count();
            assert!((79_000..81_000).contains(&ones), "bit {}: {ones}", half + bit);
        }
    }
}
