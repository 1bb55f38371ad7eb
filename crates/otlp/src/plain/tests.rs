use super::*;
use crate::Limits;
use crate::logs::Logs;
use curtail_protobuf as protobuf;
use curtail_units::Rng;

const SEED: u64 = 20_260_117;

/// A value as it is made up.
#[derive(Clone, Debug)]
enum Any {
    Empty,
    Text(String),
    Bool(bool),
    Int(i64),
    Double(f64),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    Bytes(Vec<u8>),
}

impl Any {
    /// How many lists and maps lie in each other.
    fn depth(&self) -> usize {
        match self {
            Self::List(parts) => 1 + parts.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(members) => {
                1 + members.iter().map(|(_, value)| value.depth()).max().unwrap_or(0)
            }
            Self::Empty
            | Self::Text(_)
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Double(_)
            | Self::Bytes(_) => 0,
        }
    }

    /// The content of an `AnyValue`.
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => {}
            Self::Text(text) => protobuf::bytes_field(out, 1, text.as_bytes()),
            Self::Bool(is_true) => protobuf::varint_field(out, 2, u64::from(*is_true)),
            Self::Int(number) => protobuf::varint_field(out, 3, number.cast_unsigned()),
            Self::Double(number) => protobuf::fixed64_field(out, 4, number.to_bits()),
            Self::List(parts) => protobuf::long_message_field(out, 5, |out| {
                for part in parts {
                    protobuf::long_message_field(out, 1, |out| part.write(out));
                }
            }),
            Self::Map(members) => {
                protobuf::long_message_field(out, 6, |out| write_members(out, 1, members))
            }
            Self::Bytes(bytes) => protobuf::bytes_field(out, 7, bytes),
        }
    }
}

fn write_members(out: &mut Vec<u8>, field: u32, members: &[(String, Any)]) {
    for (key, value) in members {
        protobuf::long_message_field(out, field, |out| {
            protobuf::bytes_field(out, 1, key.as_bytes());
            protobuf::long_message_field(out, 2, |out| value.write(out));
        });
    }
}

/// Attributes are field 6 of a log record.
fn record(attributes: &[(String, Any)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_members(&mut out, 6, attributes);
    out
}

fn batch(record: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::long_message_field(&mut out, 1, |out| {
        protobuf::long_message_field(out, 2, |out| protobuf::bytes_field(out, 2, record));
    });
    out
}

/// The attributes of a log record as plain JSON.
fn plain_of(record: &[u8], depth: u32) -> String {
    let batch = batch(record);
    let limits = Limits { depth, ..Limits::default() };
    let (logs, rejected) = Logs::decode(&batch, &limits).expect("a batch");
    assert_eq!((logs.records.len(), rejected.count), (1, 0), "{rejected}");
    let mut out = Vec::new();
    attributes(&mut out, logs.records[0].attributes.of(&logs.attributes), &batch);
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn record_of(plain: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    write_attributes(&mut out, 6, plain.as_bytes()).map_err(|error| error.to_string())?;
    Ok(out)
}

fn member(key: &str, value: Any) -> (String, Any) {
    (key.to_owned(), value)
}

#[test]
fn each_value_is_what_json_has_for_it_and_comes_back() {
    let text = |text: &str| Any::Text(text.to_owned());
    let map = |key, value| Any::Map(vec![member(key, value)]);
    for (value, plain) in [
        (text("GET /"), r#""GET /""#),
        (
            text("größer “quoted” \" \\ \n \0 \u{1} 🦀"),
            r#""größer “quoted” \" \\ \n \u0000 \u0001 🦀""#,
        ),
        (text(""), r#""""#),
        (Any::Bool(true), "true"),
        (Any::Bool(false), "false"),
        (Any::Int(0), "0"),
        (Any::Int(i64::MIN), "-9223372036854775808"),
        (Any::Int(i64::MAX), "9223372036854775807"),
        (Any::Double(1.0), "1.0"),
        (Any::Double(-0.0), "-0.0"),
        (Any::Double(0.1), "0.1"),
        (Any::Double(1e15), "1000000000000000.0"),
        (Any::Double(f64::MAX), "1.7976931348623157e+308"),
        (Any::Double(5e-324), "5e-324"),
        (Any::Double(f64::NAN), r#"{"@double":"NaN"}"#),
        (Any::Double(f64::INFINITY), r#"{"@double":"Infinity"}"#),
        (Any::Double(f64::NEG_INFINITY), r#"{"@double":"-Infinity"}"#),
        (Any::Bytes(vec![0, 1, 255]), r#"{"@bytes":"AAH/"}"#),
        (Any::Bytes(vec![]), r#"{"@bytes":""}"#),
        (Any::Empty, "null"),
        (Any::List(vec![text("a"), Any::Empty, Any::List(vec![])]), r#"["a",null,[]]"#),
        (Any::Map(vec![]), "{}"),
        (map("", Any::Int(1)), r#"{"":1}"#),
        (map("@double", text("NaN")), r#"{"@map":{"@double":"NaN"}}"#),
        (map("@map", map("@", Any::Map(vec![]))), r#"{"@map":{"@map":{"@map":{"@":{}}}}}"#),
        (
            Any::Map(vec![
                member("a", Any::Int(1)),
                member("@bytes", Any::Int(2)),
                member("a", Any::Int(1)),
            ]),
            r#"{"a":1,"@bytes":2,"a":1}"#,
        ),
    ] {
        let record = record(&[member("@key", value.clone())]);
        let found = plain_of(&record, 16);
        assert_eq!(found, format!(r#"{{"@key":{plain}}}"#));
        assert_eq!(record_of(&found).expect("plain JSON"), record, "{found}");
        let (mut alone, mut want) = (Vec::new(), Vec::new());
        write_value(&mut alone, plain.as_bytes()).expect("plain JSON");
        value.write(&mut want);
        assert_eq!(alone, want, "{plain}");
    }
}

/// What is hard to get through, and what is usual.
fn made_up(rng: &mut Rng, depth: u32) -> Any {
    let doubles =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, -0.0, 0.0];
    match rng.below(if depth == 0 { 8 } else { 14 }) {
        0 => Any::Empty,
        1 => Any::Text(made_up_text(rng)),
        2 => Any::Bool(rng.chance(0.5)),
        3 => Any::Int([i64::MIN, i64::MAX, -1, 0, 1 << 53][rng.below(5)]),
        4 => Any::Int(rng.next_u64().cast_signed() >> rng.below(64)),
        5 => Any::Double(doubles[rng.below(doubles.len())]),
        6 => {
            // Every exponent alike, and so one in 2,048 below the normal ones; those more often.
            let bits = rng.next_u64() >> if rng.chance(0.1) { 12 } else { 0 };
            let number = f64::from_bits(bits);
            Any::Double(if number.is_nan() { f64::NAN } else { number })
        }
        7 => Any::Bytes((0..rng.below(9)).map(|_| rng.next_u64().to_le_bytes()[0]).collect()),
        8..=10 => Any::List((0..rng.below(5)).map(|_| made_up(rng, depth - 1)).collect()),
        _ => Any::Map(made_up_members(rng, depth - 1)),
    }
}

fn made_up_members(rng: &mut Rng, depth: u32) -> Vec<(String, Any)> {
    let keys = ["", "a", "a", "@", "@double", "@bytes", "@map", "url.path", "\"", "\\u0040"];
    let key = |rng: &mut Rng| match rng.below(keys.len() + 4) {
        nth if nth < keys.len() => keys[nth].to_owned(),
        _ => made_up_text(rng),
    };
    (0..rng.below(5)).map(|_| (key(rng), made_up(rng, depth))).collect()
}

fn made_up_text(rng: &mut Rng) -> String {
    let ranges =
        [(0, 0x20), (0x20, 0x60), (0x20, 0x60), (0x7F, 0x800), (0x2020, 0x10), (0xFFF0, 0x1_0000)];
    let len = if rng.chance(0.05) { 200 } else { rng.below(12) };
    let one = |_| {
        let (first, len) = ranges[rng.below(ranges.len())];
        char::from_u32(first + u32::try_from(rng.below(len)).expect("short")).unwrap_or('"')
    };
    (0..len).map(one).collect()
}

#[test]
fn whatever_is_made_up_comes_back_byte_by_byte() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut deep = 0;
    for _ in 0..20_000 {
        let attributes = made_up_members(&mut rng, 6);
        let record = record(&attributes);
        let plain = plain_of(&record, 16);
        assert_eq!(record_of(&plain).expect("plain JSON"), record, "{attributes:?}\n{plain}");
        serde_json::from_str::<serde_json::Value>(&plain).expect("other readers take it");
        deep += attributes.iter().filter(|(_, value)| value.depth() == 6).count();
    }
    assert!(deep > 1_000, "only {deep} of the values are as deep as they may be");
}

#[test]
fn values_are_read_back_down_to_the_maximum_depth() {
    let nested = |depth| {
        let leaf = Any::Double(f64::NAN);
        let value = (0..depth).fold(leaf, |inner, _| Any::Map(vec![member("@", inner)]));
        record(&[member("deep", value)])
    };
    let record = nested(62);
    let plain = plain_of(&record, 62);
    assert_eq!(record_of(&plain).expect("plain JSON"), record);
    let error = record_of(&plain_of(&nested(63), 63)).expect_err("too deep");
    assert!(error.contains("recursion limit exceeded"), "{error}");
}

#[test]
fn of_a_value_that_was_set_twice_the_last_counts_as_it_does_for_the_decoder() {
    let mut out = Vec::new();
    protobuf::long_message_field(&mut out, 6, |out| {
        protobuf::bytes_field(out, 1, b"list");
        protobuf::long_message_field(out, 2, |out| {
            protobuf::long_message_field(out, 5, |out| {
                protobuf::long_message_field(out, 1, |out| {
                    Any::Text("lost".to_owned()).write(out);
                    // A field of a later version.
                    protobuf::bytes_field(out, 99, b"lost");
                    Any::Int(7).write(out);
                });
                protobuf::bytes_field(out, 98, b"lost");
            });
        });
    });
    assert_eq!(plain_of(&out, 16), r#"{"list":[7]}"#);
}

#[test]
fn errors_name_their_place_and_leave_nothing() {
    for (plain, message) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        (
            "[]",
            "invalid type: sequence, expected an object: keys and plain values at line 1 column 0",
        ),
        ("{\"a\":1,\n\"b\":}", "expected value at line 2 column 5"),
        (
            r#"{"a":9223372036854775808}"#,
            "invalid value: integer `9223372036854775808`, expected a whole number below 2^63 at line 1 column 24",
        ),
        (r#"{"a":1e999}"#, "number out of range at line 1 column 10"),
        (
            r#"{"a":{"@double":"1.0"}}"#,
            r#"invalid value: string "1.0", expected NaN, Infinity or -Infinity at line 1 column 22"#,
        ),
        (
            r#"{"a":{"@bytes":"?"}}"#,
            r#"invalid value: string "?", expected bytes in base64 at line 1 column 19"#,
        ),
        (
            r#"{"a":{"@bytes":"AAA"}}"#,
            r#"invalid value: string "AAA", expected bytes in base64 at line 1 column 21"#,
        ),
        (
            r#"{"a":{"@bytes":[1]}}"#,
            "invalid type: sequence, expected a string at line 1 column 15",
        ),
        (
            r#"{"a":{"@map":[]}}"#,
            "invalid type: sequence, expected an object: keys and plain values at line 1 column 13",
        ),
        (
            r#"{"a":{"@time":1}}"#,
            "unknown field `@time`, expected one of `@double`, `@bytes`, `@map` at line 1 column 13",
        ),
        (r#"{"a":{"@map":{},"b":1}}"#, "expected nothing else beside @map at line 1 column 19"),
        (r#"{"a":1} {}"#, "trailing characters at line 1 column 9"),
        (
            "{\"a\":\"\n\"}",
            "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0",
        ),
        (r#"{"a":"\ud800"}"#, "unexpected end of hex escape at line 1 column 13"),
    ] {
        assert_eq!(record_of(plain), Err(format!("not plain JSON: {message}")), "{plain}");
        let mut out = b"before".to_vec();
        write_attributes(&mut out, 6, plain.as_bytes()).expect_err("not plain JSON");
        assert_eq!(out, b"before");
    }
    write_attributes(&mut Vec::new(), 6, b"{\"\xFF\":1}").expect_err("not UTF-8");
    write_value(&mut Vec::new(), b"1 2").expect_err("two values");
}

#[test]
fn noise_is_refused_or_is_plain_json() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut outcomes = [0, 0];
    for _ in 0..20_000 {
        let mut plain = plain_of(&record(&made_up_members(&mut rng, 4)), 16).into_bytes();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(plain.len());
            let byte = b"{}[]\",:@0e-.ntu\\\xC3"[rng.below(17)];
            match rng.below(3) {
                0 => plain[at] = byte,
                1 => plain.insert(at, byte),
                _ => plain.truncate(at + 1),
            }
        }
        let mut record = Vec::new();
        let is_read = write_attributes(&mut record, 6, &plain).is_ok();
        if is_read {
            let again = record_of(&plain_of(&record, 127)).expect("plain JSON");
            assert_eq!(again, record, "{}", String::from_utf8_lossy(&plain));
        }
        outcomes[usize::from(is_read)] += 1;
    }
    assert!(outcomes.iter().all(|&count| count > 1_000), "{outcomes:?}");
}

#[test]
fn a_value_that_nests_deeper_than_allowed_never_comes_here() {
    let nested = (0..17).fold(Any::Empty, |inner, _| Any::List(vec![inner]));
    let batch = batch(&record(&[member("deep", nested)]));
    let (logs, rejected) = Logs::decode(&batch, &Limits::default()).expect("a batch");
    assert_eq!((logs.records.len(), logs.attributes.len(), rejected.count), (0, 0, 1));
}
