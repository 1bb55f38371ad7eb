use super::*;
use crate::columns::{Values, int, text};
use crate::memtable::Memtable;
use crate::schema::spans::SPANS;
use crate::schema::traces;
use crate::sort::RowPosition;
use curtail_otlp::{
    BatchWriter, Decoded, Limits, PlainValue, ResourceText, ScopeText, Signal, SpanRow,
};
use curtail_units::Rng;
use std::collections::BTreeMap;

const SEED: u64 = 41;

/// A span as it is sent.
#[derive(Clone, Debug, Default)]
struct Sent {
    tenant: &'static str,
    service: &'static str,
    name: &'static str,
    trace_id: u128,
    /// Its own, its parent's.
    ids: (u64, u64),
    /// From when, up to when.
    time: (u64, u64),
    status: i32,
    attributes: Vec<(&'static str, PlainValue<'static>)>,
}

/// Spans in the order of a run, in row groups of this many.
fn groups(all: &[Sent], in_group: usize) -> Vec<Columns> {
    let mut memtable = Memtable::new(&SPANS);
    for sent in all {
        let row = SpanRow {
            trace_id: sent.trace_id,
            span_id: sent.ids.0,
            parent_id: sent.ids.1,
            start_ns: sent.time.0,
            end_ns: sent.time.1,
            name: sent.name,
            status: sent.status,
            attributes: &sent.attributes,
            ..SpanRow::default()
        };
        let attributes = format!(r#"{{"service.name":"{}"}}"#, sent.service);
        let attributes = if sent.service.is_empty() { "" } else { &attributes };
        let resource = ResourceText { attributes, ..ResourceText::default() };
        let mut writer = BatchWriter::new();
        writer.span(&resource, &ScopeText::default(), &row).expect("plain JSON");
        let batch = writer.finish();
        let (spans, _) =
            Decoded::of(Signal::Traces, &batch, &Limits::default()).expect("a good batch");
        memtable.insert(sent.tenant, &batch, &spans);
    }
    let sorted: Vec<_> = memtable.sorted().collect();
    let sources: Vec<_> = sorted.iter().collect();
    let row = |row| RowPosition { batch: 0, row: u32::try_from(row).expect("few") };
    let positions: Vec<_> = (0..all.len()).map(row).collect();
    let groups = positions.chunks(in_group);
    groups.map(|positions| Columns::gather(SPANS.schema(), &sources, positions)).collect()
}

fn summarized(groups: &[Columns]) -> Vec<Columns> {
    let mut summaries = Summaries::default();
    let mut made: Vec<_> = groups.iter().flat_map(|group| summaries.take(group)).collect();
    made.extend(summaries.finish());
    made
}

/// All values of each row, as text.
fn row_texts(rows: &Columns) -> Vec<Vec<String>> {
    let value = |values: &Values, at: usize| match values {
        Values::Wide(wide) => wide[at].to_string(),
        Values::Narrow(narrow) => narrow[at].to_string(),
        Values::Longs(longs) => longs[at].to_string(),
        Values::Coded(coded) => match coded.get(at) {
            None => "none".to_owned(),
            Some(bytes) if coded.dictionary.form() == Plain::Text => text(bytes).to_owned(),
            Some([is]) => (*is == 1).to_string(),
            Some(bytes) => int(bytes).to_string(),
        },
    };
    let of_row = |row: usize| {
        let fields = 0..rows.schema().fields().len();
        let field = fields.map(|field| match rows.column(field) {
            crate::columns::Column::One(values) => value(values, row),
            crate::columns::Column::Many(lists) => {
                let entry = |entry| {
                    let parts = lists.parts().iter().map(|part| value(part, entry));
                    parts.collect::<Vec<_>>().join(" ")
                };
                lists.entries(row).map(entry).collect::<Vec<_>>().join(", ")
            }
        });
        field.collect()
    };
    (0..rows.len()).map(of_row).collect()
}

#[test]
fn a_trace_is_summarized_as_it_is() {
    let sent = |service, name, ids, time| Sent {
        tenant: "shop",
        service,
        name,
        trace_id: 7,
        ids,
        time,
        ..Sent::default()
    };
    let mut all = vec![
        sent("gateway", "GET /", (1, 0), (1_000, 2_000)),
        sent("gateway", "GET", (2, 1), (1_100, 1_800)),
        sent("items", "GET /items", (3, 2), (1_200, 1_700)),
        sent("items", "SELECT", (4, 3), (1_300, 1_600)),
        sent("", "left behind", (5, 1), (1_900, 2_400)),
    ];
    all[0].attributes = vec![("http.response.body.size", PlainValue::Int(512))];
    all[1].attributes = vec![("http.request.resend_count", PlainValue::Int(2))];
    all[2].attributes = vec![("http.request.resend_count", PlainValue::Int(0))];
    (all[0].status, all[3].status) = (1, 2);
    let made = summarized(&groups(&all, 100));
    let [rows] = &*made else { panic!("one row group, and there are {}", made.len()) };
    let want = [
        "shop",
        "7",
        "1000",
        "1400",
        "gateway",
        "GET /",
        "ok",
        "1000",
        "none",
        "512",
        "error",
        "true",
        "5",
        "1",
        "0",
        "1",
        "gateway 2 0, items 2 1,  1 0",
        // The last one began before the root's end, and had a tenth of it.
        "gateway 400, items 500,  100",
        "1",
    ];
    assert_eq!(row_texts(rows), [want]);
}

#[test]
fn missing_parts_of_a_trace_are_marked() {
    let sent =
        |trace_id, ids| Sent { tenant: "shop", trace_id, ids, time: (5, 9), ..Sent::default() };
    let all = [
        // Without a root; with an orphan; with two roots; of two tenants, each of them whole.
        sent(1, (2, 1)),
        sent(2, (1, 0)),
        sent(2, (3, 9)),
        sent(3, (1, 0)),
        sent(3, (2, 0)),
        sent(4, (1, 0)),
        Sent { tenant: "other", ..sent(4, (1, 0)) },
    ];
    let made = summarized(&groups(&all, 100));
    let row_texts = row_texts(&made[0]);
    let column = |field: usize| row_texts.iter().map(|row| &*row[field]).collect::<Vec<_>>();
    assert_eq!(column(traces::TRACE_ID), ["1", "2", "3", "4", "4"]);
    assert_eq!(column(traces::TENANT), ["shop", "shop", "shop", "shop", "other"]);
    assert_eq!(column(traces::IS_WHOLE), ["false", "false", "false", "true", "true"]);
    assert_eq!(column(traces::ORPHAN_COUNT), ["1", "1", "0", "0", "0"]);
    assert_eq!(column(traces::ROOT_DURATION), ["none", "4", "4", "4", "4"]);
    assert_eq!(column(traces::STATUS), ["unset"; 5]);
    assert_eq!(column(traces::CRITICAL_PATH), ["", " 4", " 4", " 4", " 4"]);
}

fn random(rng: &mut Rng, spans: usize) -> Vec<Sent> {
    let any = |rng: &mut Rng, choices: &[&'static str]| choices[rng.below(choices.len())];
    let sent = |_| {
        let start_ns = rng.below(100) as u64;
        Sent {
            tenant: any(rng, &["shop", "shop", "other"]),
            service: any(rng, &["gateway", "items", "users", ""]),
            name: any(rng, &["GET", "POST", ""]),
            trace_id: 1 + rng.below(spans.div_ceil(5)) as u128,
            ids: (1 + rng.below(6) as u64, rng.below(6) as u64),
            time: (start_ns, start_ns + rng.below(50) as u64),
            status: i32::try_from(rng.below(3)).expect("small"),
            attributes: Vec::new(),
        }
    };
    (0..spans).map(sent).collect()
}

#[test]
fn counts_are_those_of_all_spans_and_the_path_is_as_long_as_the_root() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all = random(&mut rng, 3_000);
    // Spans, errors, start, end.
    let mut want = BTreeMap::<_, (i64, i64, u64, u64)>::new();
    for sent in &all {
        let totals = want.entry((sent.trace_id, sent.tenant)).or_insert((0, 0, u64::MAX, 0));
        let errors = totals.1 + i64::from(sent.status == 2);
        *totals = (totals.0 + 1, errors, totals.2.min(sent.time.0), totals.3.max(sent.time.1));
    }
    let made = summarized(&groups(&all, 700));
    let mut seen = 0;
    for rows in &made {
        for row in 0..rows.len() {
            let trace_id = rows.wide(traces::TRACE_ID)[row];
            let tenant = rows.coded(traces::TENANT).text(row);
            let (spans, errors, start, end) = want[&(trace_id, tenant)];
            let long = |field: usize| rows.longs(field)[row];
            assert_eq!((long(traces::SPAN_COUNT), long(traces::ERROR_COUNT)), (spans, errors));
            assert_eq!(long(traces::START), start.cast_signed());
            assert_eq!(long(traces::DURATION), (end - start).cast_signed());
            let part = |field: usize, part: usize| -> i64 {
                let lists = rows.lists(field);
                let Values::Longs(part) = &lists.parts()[part] else { panic!("a number") };
                part[lists.entries(row)].iter().sum()
            };
            assert_eq!(part(traces::SERVICES, 1), spans);
            assert_eq!(part(traces::SERVICES, 2), errors);
            let root_ns = rows.coded(traces::ROOT_DURATION).int(row);
            assert_eq!(part(traces::CRITICAL_PATH, 1), root_ns.unwrap_or(0));
            seen += 1;
        }
    }
    assert_eq!(seen, want.len());
}

#[test]
fn row_groups_cut_no_trace_and_names_that_are_forgotten_are_learnt_again() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all = random(&mut rng, 400);
    let want: Vec<_> = summarized(&groups(&all, 400)).iter().flat_map(row_texts).collect();
    for in_group in [1, 3, 77] {
        let mut summaries = Summaries::default();
        let mut made = Vec::new();
        for group in groups(&all, in_group) {
            // As it is when there are very many.
            summaries.forget_names();
            made.extend(summaries.take(&group));
        }
        made.extend(summaries.finish());
        let got: Vec<_> = made.iter().flat_map(row_texts).collect();
        assert_eq!(got, want, "row groups of {in_group}");
    }
}

#[test]
fn a_trace_of_very_many_spans_is_counted_and_not_whole() {
    let one = |ids| Sent { tenant: "shop", trace_id: 1, ids, time: (5, 9), ..Sent::default() };
    let root = groups(&[one((1, 0))], 1);
    let children: Vec<_> = (0..4_096).map(|nth| one((2 + nth, 1))).collect();
    let children = groups(&children, 4_096);
    let mut summaries = Summaries::default();
    let mut made = summaries.take(&root[0]);
    let times = super::super::trace::SPANS_MAX / 4_096;
    for _ in 0..times {
        made.extend(summaries.take(&children[0]));
    }
    made.extend(summaries.finish());
    let spans = i64::try_from(times * 4_096 + 1).expect("few");
    assert_eq!(made[0].longs(traces::SPAN_COUNT), [spans]);
    assert_eq!(made[0].coded(traces::IS_WHOLE).get(0), Some(&[0][..]));
    // One less, and it is whole.
    let mut summaries = Summaries::default();
    let mut made = summaries.take(&root[0]);
    for _ in 1..times {
        made.extend(summaries.take(&children[0]));
    }
    made.extend(summaries.finish());
    assert_eq!(made[0].coded(traces::IS_WHOLE).get(0), Some(&[1][..]));
}
