mod by_id;
mod measured;
mod of_service;

use super::*;
use crate::files::failing::Failing;
use crate::log::Record;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::{DURATION, NAME, PARENT_ID, SPAN_ID, STATUS, TRACE_ID};
use crate::tree::{self, Tree};
use crate::{Settings, Store, StoreParts};
use curtail_otlp::{
    BatchWriter, Decoded, EventRow, Limits, LinkRow, PlainValue, ResourceText, ScopeText, Signal,
    SpanRow,
};
use curtail_sketch::{Precision, rank};
use curtail_units::{Quantile, Rng};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SEED: u64 = 4_711;
const MINUTE_NS: u64 = 60_000_000_000;

/// A span as it was sent.
#[derive(Clone, Debug)]
struct Sent {
    span_id: u64,
    tenant: &'static str,
    service: &'static str,
    name: &'static str,
    start_ns: i64,
    duration_ns: i64,
    status: i32,
    code: Option<i64>,
    price: Option<f64>,
    region: Option<&'static str>,
    event: Option<&'static str>,
}

fn any<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len())]
}

fn sent(rng: &mut Rng, span_id: u64) -> Sent {
    Sent {
        span_id,
        tenant: any(rng, &["shop", "shop", "shop", "other"]),
        service: any(rng, &["cart", "items", "users"]),
        name: any(rng, &["GET /", "POST /", ""]),
        start_ns: 1_750_000_000_000_000_000
            + i64::try_from(rng.below(600)).expect("small") * 1_000_000_000,
        duration_ns: i64::try_from(rng.next_u64() % 2_000_000).expect("small") - 1_000,
        status: any(rng, &[0, 1, 2]),
        code: any(rng, &[None, Some(200), Some(404), Some(503)]),
        price: any(rng, &[None, Some(1.5), Some(10.0), Some(-3.0)]),
        region: any(rng, &[None, Some("eu"), Some("us")]),
        event: any(rng, &[None, None, Some("exception"), Some("cache.miss")]),
    }
}

fn record(sent: &Sent) -> Record {
    let mut attributes = Vec::new();
    // One has a column of its own, the other is in a map.
    attributes.extend(sent.code.map(|code| ("http.response.status_code", PlainValue::Int(code))));
    attributes.extend(sent.price.map(|price| ("shop.price", PlainValue::Double(price))));
    let other = ("service.name", PlainValue::Text("other"));
    attributes.extend((sent.region == Some("eu")).then_some(other));
    let region =
        sent.region.map_or(String::new(), |region| format!(r#","cloud.region":"{region}""#));
    let resource = format!(r#"{{"service.name":"{}"{region}}}"#, sent.service);
    let row = SpanRow {
        trace_id: u128::from(sent.span_id / 4 + 1),
        span_id: sent.span_id,
        name: sent.name,
        start_ns: sent.start_ns.cast_unsigned(),
        end_ns: (sent.start_ns + sent.duration_ns).cast_unsigned(),
        status: sent.status,
        attributes: &attributes,
        events: &sent
            .event
            .map(|name| EventRow {
                name,
                attributes: r#"{"exception.type":"Timeout"}"#,
                ..EventRow::default()
            })
            .into_iter()
            .collect::<Vec<_>>(),
        links: &sent
            .region
            .map(|_| LinkRow { trace_id: 77, span_id: sent.span_id, ..LinkRow::default() })
            .into_iter()
            .collect::<Vec<_>>(),
        ..SpanRow::default()
    };
    let mut writer = BatchWriter::new();
    let resource = ResourceText { attributes: &resource, ..ResourceText::default() };
    let scope = ScopeText {
        name: "http",
        attributes: r#"{"scope.kind":"client"}"#,
        ..ScopeText::default()
    };
    writer.span(&resource, &scope, &row).expect("plain JSON");
    let (batch, tenant) = (writer.finish().into(), sent.tenant.into());
    Record { signal: Signal::Traces, tenant, received_ns: 0, batch }
}

/// A store with nothing in it.
async fn empty() -> (StoreParts, Arc<Store>) {
    let settings = Settings {
        files: Arc::new(Failing::default()),
        tables: tree::Settings {
            objects: Arc::new(InMemory::new()),
            root: Path::from("data"),
            writer: "one".to_owned(),
            final_rows: tree::FINAL_ROWS,
            known: Default::default(),
        },
        memtable_bytes: usize::MAX,
        batch_key: crate::recent::BatchKey::new([7; 32]),
    };
    let (parts, _) = Store::open(&settings, 0, "f0b1").await.expect("memory");
    let store = Arc::clone(&parts.store);
    (parts, store)
}

/// Spans in runs, in a sealed memtable and in that which is being filled.
async fn filled(all: &[Sent]) -> Arc<Tree> {
    let tree = filled_in(all, 4).await;
    assert_eq!(tree.size().1, 2);
    tree
}

/// The same in `parts` parts; two of them are memtables.
async fn filled_in(all: &[Sent], parts: u64) -> Arc<Tree> {
    let (mut roles, store) = empty().await;
    let len = all.len().div_ceil(usize::try_from(parts).expect("small"));
    for (part, segment) in all.chunks(len).zip(1..) {
        for sent in part {
            let record = record(sent);
            let rows = Decoded::of(record.signal, &record.batch, &Limits::default());
            store.insert(segment, &record, rows.expect("a batch").0);
        }
        if segment < parts {
            store.seal(segment);
        }
        if segment < parts - 1 {
            roles.flusher.flush(0).await.expect("memory");
        }
    }
    Arc::clone(store.spans())
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test)
}

fn condition(field: SpanField, test: Test) -> Condition {
    Condition::Is(field, test)
}

fn text(text: &str) -> Value<'static> {
    Value::from(text)
}

fn matches(pattern: &str) -> Pattern {
    Pattern::new(pattern).expect("a pattern")
}

type SpanPredicate = fn(&Sent) -> bool;

/// Filters, each with the equivalent predicate on the sent spans.
fn filters() -> Vec<(Filter, SpanPredicate)> {
    let all = Filter::of("shop");
    let code = || SpanField::Attribute("http.response.status_code".to_owned());
    let price = || SpanField::Attribute("shop.price".to_owned());
    let region = || SpanField::Resource("cloud.region".to_owned());
    let with = |conditions: Vec<Condition>| Filter { conditions, ..all.clone() };
    let from = 1_750_000_100_000_000_000;
    let mut all: Vec<(Filter, SpanPredicate)> = vec![
        (all.clone(), |_| true),
        (Filter { starts: from..from + 7_000_000_000, ..all.clone() }, |sent| {
            (100..107).contains(&((sent.start_ns - 1_750_000_000_000_000_000) / 1_000_000_000))
        }),
        (Filter { durations: 1_990_000..=i64::MAX, ..all.clone() }, |sent| {
            sent.duration_ns >= 1_990_000
        }),
        (with(vec![condition(SpanField::Column(SERVICE), Test::Is(text("cart")))]), |sent| {
            sent.service == "cart"
        }),
        (with(vec![condition(SpanField::Column(NAME), Test::IsNot(text("GET /")))]), |sent| {
            // An empty name is a different name.
            sent.name != "GET /"
        }),
        (with(vec![condition(SpanField::Column(STATUS), Test::Is(text("error")))]), |sent| {
            sent.status == 2
        }),
        (with(vec![condition(code(), Test::Is(Value::Int(404)))]), |sent| sent.code == Some(404)),
        (
            with(vec![
                condition(code(), Test::AtLeast(Value::Int(400))),
                condition(code(), Test::AtMost(Value::Int(599))),
            ]),
            |sent| sent.code.is_some_and(|code| code >= 400),
        ),
        (with(vec![condition(code(), Test::Is(text("404")))]), |_| false),
        (with(vec![condition(price(), Test::Exists)]), |sent| sent.price.is_some()),
        (with(vec![condition(price(), Test::Is(Value::Int(10)))]), |sent| sent.price == Some(10.0)),
        (with(vec![condition(price(), Test::IsNot(Value::Double(1.5)))]), |sent| {
            sent.price.is_some_and(|price| price.to_bits() != 1.5_f64.to_bits())
        }),
        (with(vec![condition(region(), Test::Is(text("eu")))]), |sent| sent.region == Some("eu")),
        (with(vec![condition(SpanField::Attribute("none".to_owned()), Test::Exists)]), |_| false),
        (
            with(vec![
                condition(region(), Test::IsNot(text("eu"))),
                condition(code(), Test::AtLeast(Value::Int(500))),
                condition(SpanField::Column(SERVICE), Test::Is(text("items"))),
            ]),
            |sent| sent.region == Some("us") && sent.code == Some(503) && sent.service == "items",
        ),
    ];
    all.extend(combined());
    all
}

/// Conditions of conditions, and of what is in lists.
fn combined() -> Vec<(Filter, SpanPredicate)> {
    let code = |test| condition(SpanField::Attribute("http.response.status_code".to_owned()), test);
    let price = |test| condition(SpanField::Attribute("shop.price".to_owned()), test);
    let service = |test| condition(SpanField::Column(SERVICE), test);
    let event = |entry, test| condition(SpanField::Entry(entry), test);
    let key = |key: &str| key.to_owned();
    let all: Vec<(Condition, SpanPredicate)> = vec![
        (
            Condition::Any(vec![
                code(Test::Is(Value::Int(503))),
                Condition::All(vec![
                    price(Test::AtLeast(Value::Int(1))),
                    price(Test::AtMost(Value::Double(2.0))),
                    service(Test::IsNot(text("cart"))),
                ]),
            ]),
            |sent| {
                sent.code == Some(503)
                    || sent.price.is_some_and(|price| (1.0..=2.0).contains(&price))
                        && sent.service != "cart"
            },
        ),
        (Condition::Any(Vec::new()), |_| false),
        (Condition::All(Vec::new()), |_| true),
        (Condition::Not(Box::new(price(Test::Exists))), |sent| sent.price.is_none()),
        (Condition::Not(Box::new(Condition::All(Vec::new()))), |_| false),
        (service(Test::Matches(matches(".*e.s"))), |sent| sent.service != "cart"),
        (condition(SpanField::Column(NAME), Test::MatchesNot(matches("GET.*"))), |sent| {
            sent.name != "GET /"
        }),
        (event(Entry::EventName, Test::Is(text("exception"))), |sent| {
            sent.event == Some("exception")
        }),
        (event(Entry::Event(key("exception.type")), Test::Matches(matches("Time.*"))), |sent| {
            sent.event.is_some()
        }),
        (event(Entry::Event(key("none")), Test::Exists), |_| false),
        (event(Entry::LinkTrace, Test::Is(Value::Id(77))), |sent| sent.region.is_some()),
        (event(Entry::LinkSpan, Test::Is(Value::Id(4_711))), |sent| {
            sent.region.is_some() && sent.span_id == 4_711
        }),
        (condition(SpanField::Either(key("cloud.region")), Test::Is(text("us"))), |sent| {
            sent.region == Some("us")
        }),
        (condition(SpanField::Either(key("shop.price")), Test::Is(Value::Int(10))), |sent| {
            sent.price == Some(10.0)
        }),
        // The span says another than its resource.
        (condition(SpanField::Either(key("service.name")), Test::Is(text("other"))), |sent| {
            sent.region == Some("eu")
        }),
        (condition(SpanField::Either(key("service.name")), Test::Is(text("cart"))), |sent| {
            sent.region != Some("eu") && sent.service == "cart"
        }),
        (condition(SpanField::Scope(key("scope.kind")), Test::Is(text("client"))), |_| true),
        (condition(SpanField::Column(SPAN_ID), Test::Is(Value::Id(99))), |sent| sent.span_id == 99),
        (condition(SpanField::Column(TRACE_ID), Test::Is(Value::Id(99))), |sent| {
            sent.span_id / 4 + 1 == 99
        }),
        (condition(SpanField::Column(PARENT_ID), Test::Exists), |_| false),
        (condition(SpanField::Column(DURATION), Test::AtMost(Value::Int(1_500_000))), |sent| {
            sent.duration_ns <= 1_500_000
        }),
    ];
    let with = |(condition, is_match)| {
        (Filter { conditions: vec![condition], ..Filter::of("shop") }, is_match)
    };
    all.into_iter().map(with).collect()
}

#[test]
fn the_slowest_and_the_newest_are_those_of_all() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=20_000).map(|span_id| sent(&mut rng, span_id)).collect();
    run(async {
        let tree = filled(&all).await;
        for (filter, same) in filters() {
            for (order, count) in
                [(Order::Slowest, 20), (Order::Newest, 3), (Order::Slowest, 30_000)]
            {
                let top = tree.top(&filter, order, HitUnit::Span, count).await;
                let by = |duration_ns: i64, start_ns: i64| match order {
                    Order::Slowest => duration_ns,
                    Order::Newest => start_ns,
                };
                let mut want: Vec<_> = all
                    .iter()
                    .filter(|sent| sent.tenant == "shop" && same(sent))
                    .map(|sent| by(sent.duration_ns, sent.start_ns))
                    .collect();
                want.sort_by(|a, b| b.cmp(a));
                want.truncate(count);
                // Which of several equal spans are returned is not defined.
                let got: Vec<_> =
                    top.hits.iter().map(|hit| by(hit.duration_ns, hit.start_ns)).collect();
                assert_eq!(got, want, "{order:?} {filter:?}");
                for hit in &top.hits {
                    let sent = &all[usize::try_from(hit.span_id).expect("small") - 1];
                    assert!(same(sent) && sent.tenant == "shop", "{hit:?}");
                    assert_eq!((&*hit.service, &*hit.name), (sent.service, sent.name));
                    assert_eq!(hit.trace_id, u128::from(hit.span_id / 4 + 1));
                }
                assert!(top.unread.is_empty());
            }
        }
    });
}

#[test]
fn traces_come_in_the_order_of_their_first_spans() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=20_000).map(|span_id| sent(&mut rng, span_id)).collect();
    run(async {
        let tree = filled(&all).await;
        for (filter, same) in filters() {
            let top = tree.top(&filter, Order::Slowest, HitUnit::Trace, 50).await;
            let mut slowest = BTreeMap::<u128, i64>::new();
            for sent in all.iter().filter(|sent| sent.tenant == "shop" && same(sent)) {
                let of_trace = slowest.entry(u128::from(sent.span_id / 4 + 1)).or_insert(i64::MIN);
                *of_trace = sent.duration_ns.max(*of_trace);
            }
            let got: Vec<_> =
                top.hits.iter().map(|hit| (hit.duration_ns, slowest[&hit.trace_id])).collect();
            assert!(got.iter().all(|(hit, slowest)| hit == slowest), "{filter:?}");
            let mut want: Vec<_> = slowest.into_values().collect();
            want.sort_by(|one, other| other.cmp(one));
            want.truncate(50);
            assert_eq!(got.into_iter().map(|(hit, _)| hit).collect::<Vec<_>>(), want);
            let traces: BTreeSet<_> = top.hits.iter().map(|hit| hit.trace_id).collect();
            assert_eq!(traces.len(), top.hits.len(), "a trace comes once");
        }
    });
}

#[test]
fn values_and_keys_are_those_of_the_matching_spans() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=5_000).map(|span_id| sent(&mut rng, span_id)).collect();
    let shown = |counts: &ValueCounts| -> BTreeMap<String, u64> {
        counts.values.iter().map(|value| (value.text.clone(), value.count)).collect()
    };
    run(async {
        let tree = filled(&all).await;
        for (filter, same) in filters() {
            let theirs = || all.iter().filter(|sent| sent.tenant == "shop" && same(sent));
            let mut want = BTreeMap::new();
            for price in theirs().filter_map(|sent| sent.price) {
                *want.entry(price.to_string()).or_default() += 1;
            }
            let price = SpanField::Attribute("shop.price".to_owned());
            let counts = tree.values(&filter, &price, 100).await;
            assert_eq!(shown(&counts), want);
            assert!(!counts.is_cut && counts.values.is_sorted_by(|a, b| a.count >= b.count));
            let keys = tree.keys(&filter).await;
            let has_price = theirs().any(|sent| sent.price.is_some());
            assert_eq!(keys.spans.contains("shop.price"), has_price);
            let has_region = theirs().any(|sent| sent.region.is_some());
            assert_eq!(keys.resources.contains("cloud.region"), has_region);
            let has_event = theirs().any(|sent| sent.event.is_some());
            assert_eq!(keys.events.contains("exception.type"), has_event);
            assert_eq!(keys.scopes.contains("scope.kind"), theirs().count() > 0);
        }
        let region = SpanField::Resource("cloud.region".to_owned());
        let counts = tree.values(&Filter::of("shop"), &region, 1).await;
        assert!(counts.is_cut && counts.values.len() == 1, "{counts:?}");
        assert_eq!(counts.values[0].kind, "text");
    });
}
