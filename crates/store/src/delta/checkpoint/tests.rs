use super::super::action::{Add, Format, Metadata, Protocol, Remove, Transaction};
use super::*;
use curtail_units::Rng;
use serde_json::json;
use std::collections::BTreeMap;

const SEED: u64 = 11;

fn metadata() -> Action {
    let text = |text: &str| text.to_owned();
    Action::MetaData(Metadata {
        id: text("one"),
        name: None,
        format: Format { provider: text("parquet"), options: BTreeMap::new() },
        schema_string: text(r#"{"type":"struct","fields":[]}"#),
        partition_columns: vec![text("day"), text("shard")],
        configuration: BTreeMap::from([(text("delta.a"), text("1")), (text("b"), text(""))]),
        created_time: Some(-1),
    })
}

fn protocol() -> Action {
    Action::Protocol(Protocol::OURS)
}

/// Any map from none to three entries, with and without values.
fn map(rng: &mut Rng) -> BTreeMap<String, Option<String>> {
    let entry = |nth| (format!("key {nth}"), Some(format!("wert \u{e4} {nth}")));
    let mut map: BTreeMap<_, _> = (0..rng.below(4)).map(entry).collect();
    map.values_mut().for_each(|value| *value = value.take().filter(|_| rng.chance(0.7)));
    map
}

fn action(nth: usize, rng: &mut Rng) -> Action {
    let number = |rng: &mut Rng| rng.below(1 << 40).cast_signed() as i64 - (1 << 39);
    let path = format!("day=2026-11-22/{nth}");
    match rng.below(3) {
        0 => Action::Add(Add {
            path,
            partition_values: map(rng),
            size: rng.below(1 << 40) as u64,
            modification_time: number(rng),
            data_change: rng.chance(0.5),
            stats: rng.chance(0.5).then(|| format!(r#"{{"numRecords":{nth}}}"#)),
            tags: rng.chance(0.5).then(|| map(rng)),
        }),
        1 => Action::Remove(Remove {
            path,
            deletion_timestamp: rng.chance(0.5).then(|| number(rng)),
            data_change: rng.chance(0.5),
        }),
        _ => Action::Txn(Transaction {
            app_id: path,
            version: number(rng),
            last_updated: rng.chance(0.5).then(|| number(rng)),
        }),
    }
}

fn some() -> Vec<Action> {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut rows = vec![protocol(), metadata()];
    rows.extend((0..300).map(|nth| action(nth, &mut rng)));
    rows
}

#[test]
fn all_that_is_written_is_read() {
    let rows = some();
    let read = decode(encode(&rows).expect("a file")).expect("rows");
    assert_eq!(read, rows);
    assert_eq!(decode(encode(&[]).expect("a file")).expect("rows"), []);
    let with_options = json!({ "metaData": {
        "id": "i", "name": "n", "format": { "provider": "p", "options": { "a": "b" } },
        "schemaString": "", "partitionColumns": [], "configuration": {},
    }});
    let row = Action::of(serde_json::from_value(with_options).expect("it is metadata"))
        .expect("it is known");
    assert_eq!(decode(encode(std::slice::from_ref(&row)).expect("a file")).expect("rows"), [row]);
}

#[test]
fn row_groups_follow_each_other() {
    let row = |version| Transaction { app_id: "log".to_owned(), version, last_updated: None };
    let rows: Vec<_> = (0..70_000).map(|version| Action::Txn(row(version))).collect();
    assert!(decode(encode(&rows).expect("a file")).expect("rows") == rows);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_none() {
    let whole = encode(&some()).expect("a file");
    for length in 0..whole.len() {
        let cut = decode(whole.slice(..length));
        assert!(matches!(cut, Err(CheckpointError::Parquet(_))), "{length} bytes: {cut:?}");
    }
}

#[test]
fn a_page_that_is_damaged_anywhere_is_found() {
    let whole = encode(&some()).expect("a file");
    let pages = read::pages(&whole).len();
    assert!(pages > 5000, "{pages} bytes of pages");
    for nth in 0..pages {
        let mut bytes = whole.to_vec();
        bytes[nth] ^= 1 << (nth % 8);
        let damaged = decode(bytes.into());
        assert!(matches!(damaged, Err(CheckpointError::Damaged)), "byte {nth}: {damaged:?}");
    }
}

#[test]
fn a_damaged_file_without_a_checksum_causes_no_panic() {
    let whole = encode(&some()[..6]).expect("a file");
    let key = whole.windows(CHECKSUM.len()).position(|bytes| bytes == CHECKSUM.as_bytes());
    let mut of_others = whole.to_vec();
    of_others[key.expect("it has one")] = b'x';
    let mut damaged = 0;
    for nth in 0..whole.len() {
        let mut bytes = of_others.clone();
        bytes[nth] ^= 0xff;
        damaged += usize::from(matches!(decode(bytes.into()), Err(CheckpointError::Damaged)));
    }
    assert!(damaged > 0, "the reader of records panics at some");
}

#[test]
fn a_number_that_is_no_long_is_refused_by_name() {
    let add = json!({ "add": {
        "path": "a", "partitionValues": {}, "size": u64::MAX, "modificationTime": 0, "dataChange": true,
    }});
    let row =
        Action::of(serde_json::from_value(add).expect("it is an addition")).expect("it is known");
    let error = encode(&[row]).expect_err("it is too large").to_string();
    assert!(error.contains(r#""add.size" is 18446744073709551615, expected INT64"#), "{error}");
}

/// What others write: other columns, another order, nothing that must be there.
const FOREIGN: &str = "message arrow_schema {
    optional group sidecar { optional binary path (UTF8); }
    optional group domainMetadata { optional binary domain (UTF8); }
    optional group add {
        optional boolean dataChange;
        optional group deletionVector { optional binary storageType (UTF8); optional int32 offset; }
        optional group stats_parsed { optional int64 numRecords; }
        optional int64 modificationTime;
        optional int64 size;
        optional group partitionValues (MAP) {
            repeated group entries { required binary keys (UTF8); optional binary values (UTF8); }
        }
        optional binary path (UTF8);
    }
    optional group protocol {
        optional int32 minReaderVersion;
        optional int32 minWriterVersion;
        optional group readerFeatures (LIST) { repeated group array { optional binary element (UTF8); } }
    }
    optional group txn { optional int64 unknown; }
    optional int64 add_count;
}";

fn foreign(rows: &[serde_json::Value]) -> Result<Vec<Action>, CheckpointError> {
    let schema = parse_message_type(FOREIGN).expect("it is a schema");
    decode(write::encode_as(schema, rows).expect("a file"))
}

#[test]
fn columns_that_are_not_known_are_passed_over() {
    let rows = [
        json!({ "add": {
            "path": "a", "size": 3, "modificationTime": 4, "dataChange": false,
            "stats_parsed": { "numRecords": 3 }, "partitionValues": {},
        }}),
        json!({ "domainMetadata": { "domain": "d" }, "add_count": 1 }),
        json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": ["x"] } }),
    ];
    let add = Add {
        path: "a".to_owned(),
        partition_values: BTreeMap::new(),
        size: 3,
        modification_time: 4,
        data_change: false,
        stats: None,
        tags: None,
    };
    assert_eq!(foreign(&rows).expect("rows"), [Action::Add(add), protocol()]);
}

#[test]
fn missing_and_unexpected_fields_of_a_row_are_named() {
    let error =
        foreign(&[json!({ "add": { "path": "a", "size": -3 } })]).expect_err("a size is needed");
    assert!(matches!(error, CheckpointError::Row(_)), "{error}");
    let error = foreign(&[json!({ "sidecar": { "path": "x" } })]).expect_err("it is elsewhere");
    assert!(matches!(error, CheckpointError::Later), "{error}");
}
