use super::*;
use crate::files::failing::Failing;
use crate::log::Record;
use crate::memtable::SpanRows;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::{NAME, STATUS};
use crate::tree::{self, Tree};
use crate::{Settings, Store};
use curtail_otlp::{
    Decoded, Limits, PlainValue, ResourceText, ScopeText, Signal, SpanRow, TracesWriter,
};
use curtail_sketch::{Precision, rank};
use curtail_units::{Quantile, Rng};
use object_store::memory::InMemory;
use object_store::path::Path;
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
}

fn any<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len())]
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
    }
}

fn record(of: &Sent) -> Record {
    let mut attributes = Vec::new();
    // One has a column of its own, the other is in a map.
    attributes.extend(of.code.map(|code| ("http.response.status_code", PlainValue::Int(code))));
    attributes.extend(of.price.map(|price| ("shop.price", PlainValue::Double(price))));
    let region = of.region.map_or(String::new(), |region| format!(r#","cloud.region":"{region}""#));
    let resource = format!(r#"{{"service.name":"{}"{region}}}"#, of.service);
    let row = SpanRow {
        trace_id: u128::from(of.span_id / 4 + 1),
        span_id: of.span_id,
        name: of.name,
        start_ns: of.start_ns.cast_unsigned(),
        end_ns: (of.start_ns + of.duration_ns).cast_unsigned(),
        status: of.status,
        attributes: &attributes,
        ..SpanRow::default()
    };
    let mut writer = TracesWriter::new();
    let resource = ResourceText { attributes: &resource, ..ResourceText::default() };
    writer.span(&resource, &ScopeText::default(), &row).expect("plain JSON");
    let (batch, tenant) = (writer.finish().into(), of.tenant.into());
    Record { signal: Signal::Traces, tenant, received_ns: 0, batch }
}

/// Spans in runs, in a sealed memtable and in that which is being filled.
async fn filled(all: &[Sent]) -> Arc<Tree<SpanRows>> {
    let settings = Settings {
        files: Arc::new(Failing::default()),
        tables: tree::Settings {
            objects: Arc::new(InMemory::new()),
            root: Path::from("data"),
            writer: "one".to_owned(),
        },
        memtable_bytes: usize::MAX,
    };
    let (mut keeper, _) = Store::open(&settings, 0, "f0b1").await.expect("memory");
    let store = Arc::clone(keeper.store());
    for (part, segment) in all.chunks(all.len().div_ceil(4)).zip(1..) {
        for sent in part {
            let record = record(sent);
            let rows = Decoded::of(record.signal, &record.batch, &Limits::default());
            store.insert(segment, &record, &rows.expect("a batch").0);
        }
        if segment < 4 {
            store.seal(segment);
        }
        if segment < 3 {
            keeper.flush(0).await.expect("memory");
        }
    }
    assert_eq!(store.spans().size().1, 2);
    Arc::clone(store.spans())
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test)
}

fn condition(of: Of, test: Test) -> Condition {
    Condition { of, test }
}

fn text(text: &str) -> Literal {
    Literal::Text(text.to_owned())
}

type Said = fn(&Sent) -> bool;

/// Filters, and the same said of what was sent.
fn filters() -> Vec<(Filter, Said)> {
    let all = Filter::of("shop");
    let code = || Of::Attribute("http.response.status_code".to_owned());
    let price = || Of::Attribute("shop.price".to_owned());
    let region = || Of::Resource("cloud.region".to_owned());
    let with = |conditions: Vec<Condition>| Filter { conditions, ..all.clone() };
    let from = 1_750_000_100_000_000_000;
    vec![
        (all.clone(), |_| true),
        (Filter { starts: from..from + 7_000_000_000, ..all.clone() }, |sent| {
            (100..107).contains(&((sent.start_ns - 1_750_000_000_000_000_000) / 1_000_000_000))
        }),
        (Filter { durations: 1_990_000..=i64::MAX, ..all.clone() }, |sent| {
            sent.duration_ns >= 1_990_000
        }),
        (with(vec![condition(Of::Column(SERVICE), Test::Is(text("cart")))]), |sent| {
            sent.service == "cart"
        }),
        (with(vec![condition(Of::Column(NAME), Test::IsNot(text("GET /")))]), |sent| {
            // One that has no name is no other name.
            sent.name == "POST /"
        }),
        (with(vec![condition(Of::Column(STATUS), Test::Is(text("error")))]), |sent| {
            sent.status == 2
        }),
        (with(vec![condition(code(), Test::Is(Literal::Int(404)))]), |sent| sent.code == Some(404)),
        (with(vec![condition(code(), Test::Within(400.0..=599.0))]), |sent| {
            sent.code.is_some_and(|code| code >= 400)
        }),
        (with(vec![condition(code(), Test::Is(text("404")))]), |_| false),
        (with(vec![condition(price(), Test::Exists)]), |sent| sent.price.is_some()),
        (with(vec![condition(price(), Test::Is(Literal::Int(10)))]), |sent| {
            sent.price == Some(10.0)
        }),
        (with(vec![condition(price(), Test::IsNot(Literal::Double(1.5)))]), |sent| {
            sent.price.is_some_and(|price| price.to_bits() != 1.5_f64.to_bits())
        }),
        (with(vec![condition(region(), Test::Is(text("eu")))]), |sent| sent.region == Some("eu")),
        (with(vec![condition(Of::Attribute("none".to_owned()), Test::Exists)]), |_| false),
        (
            with(vec![
                condition(region(), Test::IsNot(text("eu"))),
                condition(code(), Test::Within(500.0..=599.0)),
                condition(Of::Column(SERVICE), Test::Is(text("items"))),
            ]),
            |sent| sent.region == Some("us") && sent.code == Some(503) && sent.service == "items",
        ),
    ]
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
                let top = tree.top(&filter, order, count).await;
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
                // Which ones of those that are equal come is not said.
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
fn quantiles_are_durations_of_that_rank() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=20_000).map(|span_id| sent(&mut rng, span_id)).collect();
    let quantiles = [Quantile::P50, Quantile::P99, Quantile::P999];
    run(async {
        let tree = filled(&all).await;
        for (filter, same) in filters() {
            let of = QuantilesOf {
                filter,
                quantiles: quantiles.to_vec(),
                by: vec![SERVICE, NAME],
                step_ns: Some(MINUTE_NS),
            };
            let answer = tree.quantiles(&of).await.expect("few groups");
            let minute = i64::try_from(MINUTE_NS).expect("small");
            let mut want = std::collections::BTreeMap::<_, Vec<i64>>::new();
            for sent in all.iter().filter(|sent| sent.tenant == "shop" && same(sent)) {
                let name = Some(sent.name.to_owned()).filter(|name| !name.is_empty());
                let values = vec![Some(sent.service.to_owned()), name];
                let step = sent.start_ns / minute * minute;
                want.entry((step, values)).or_default().push(sent.duration_ns);
            }
            assert_eq!(answer.groups.len(), want.len());
            for (group, ((start_ns, values), mut durations)) in answer.groups.iter().zip(want) {
                durations.sort_unstable();
                let at = |quantile| {
                    let rank = rank(quantile, durations.len() as u64);
                    durations[usize::try_from(rank).expect("small") - 1]
                };
                let count = durations.len() as u64;
                let want = Group { start_ns, values, count, quantiles: quantiles.map(at).to_vec() };
                assert_eq!(group, &want);
            }
            assert!(answer.error.abs() < f64::EPSILON);
        }
    });
}

#[test]
fn too_many_groups_are_refused() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=150_000)
        .map(|span_id| Sent {
            start_ns: i64::try_from(span_id).expect("small"),
            ..sent(&mut rng, span_id)
        })
        .collect();
    run(async {
        let tree = filled(&all).await;
        let filter = Filter::of("shop");
        let of = QuantilesOf { filter, quantiles: Vec::new(), by: Vec::new(), step_ns: Some(1) };
        assert_eq!(tree.quantiles(&of).await.err(), Some(TooManyGroups));
        let of = QuantilesOf { step_ns: None, ..of };
        let answer = tree.quantiles(&of).await.expect("one group");
        let there = all.iter().filter(|sent| sent.tenant == "shop").count();
        assert_eq!(answer.groups[0].count, there as u64);
    });
}

#[test]
fn very_many_are_counted_with_a_known_error() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut gathered = quantiles::Gathered::default();
    let mut all = [Vec::new(), Vec::new()];
    let groups = [0, 1].map(|group| gathered.group((group, Vec::new())));
    for _ in 0..quantiles::EXACT_MAX + 1_000 {
        let which = rng.below(2);
        let duration_ns = i64::try_from(rng.next_u64() % 100_000_000).expect("small");
        gathered.push(groups[which], duration_ns);
        all[which].push(duration_ns);
    }
    let asked = [Quantile::P50, Quantile::P99, Quantile::P999];
    let answer = gathered.answer(&asked, Vec::new());
    assert!((answer.error - Precision::FINE.error()).abs() < f64::EPSILON && answer.error <= 0.005);
    for (group, mut all) in answer.groups.iter().zip(all) {
        assert_eq!(group.count, all.len() as u64);
        for (got, quantile) in group.quantiles.iter().zip(asked) {
            let nth = usize::try_from(rank(quantile, all.len() as u64)).expect("small") - 1;
            let want = *all.select_nth_unstable(nth).1;
            assert!((got - want).abs() as f64 <= answer.error * want as f64, "{got} {want}");
        }
    }
}
