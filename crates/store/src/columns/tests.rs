use super::*;
use crate::schema::envelope::ATTRIBUTES_TEXT;
use crate::schema::spans::{DURATION, NAME, PARENT_ID, SPAN_ID, SPANS, START, TRACE_ID};
use crate::sort::RowPosition;

#[test]
fn a_dictionary_has_every_value_once() {
    let mut dictionary = Dictionary::new(Plain::Text);
    let texts: Vec<String> =
        (0..1_000).map(|nth| "ab".repeat(nth % 40) + &nth.to_string()).collect();
    let codes: Vec<_> = texts.iter().map(|text| dictionary.intern(text.as_bytes())).collect();
    assert_eq!(codes, (1..=1_000).collect::<Vec<_>>());
    for (text, code) in texts.iter().zip(codes).rev() {
        assert_eq!(dictionary.intern(text.as_bytes()), code);
        assert_eq!(dictionary.get(code), text.as_bytes());
    }
    assert_eq!(dictionary.len(), 1_000);
    let plain = dictionary.plain().to_vec();
    let read =
        Dictionary::from_plain(Plain::Text, plain.clone(), 1_000).expect("as it was written");
    assert!(read.iter().eq(dictionary.iter()));
    assert!(Dictionary::from_plain(Plain::Text, plain.clone(), 1_001).is_none());
    assert!(
        Dictionary::from_plain(Plain::Text, plain[..plain.len() - 1].to_vec(), 1_000).is_none()
    );
}

#[test]
fn values_are_the_same_only_when_all_their_bytes_are() {
    for len in 0..70_u8 {
        let one: Vec<u8> = (0..len).collect();
        assert!(is_same(&one, &one.clone()));
        for nth in 0..usize::from(len) {
            let mut other = one.clone();
            other[nth] ^= 1;
            assert!(!is_same(&one, &other), "byte {nth} of {len}");
        }
        assert!(!is_same(&one, &(0..=len).collect::<Vec<_>>()));
    }
}

/// Three rows: with a name and two entries, with nothing, with an entry.
fn rows(names: [&str; 2]) -> Columns {
    let mut rows = Columns::new(SPANS.schema());
    for nth in 0..3_u32 {
        rows.push_wide(TRACE_ID, u128::from(nth));
        rows.push_narrow(SPAN_ID, u64::from(nth));
        rows.push_narrow(PARENT_ID, 0);
        rows.push_long(START, i64::from(nth));
        rows.push_long(DURATION, 1);
        if nth == 0 {
            rows.set_value(NAME, names[0].as_bytes());
            rows.set_value(NAME, b"another");
            rows.push_entry(ATTRIBUTES_TEXT).coded(b"a").coded(names[0].as_bytes());
            rows.push_entry(ATTRIBUTES_TEXT).coded(b"b").coded(b"2");
        }
        if nth == 2 {
            rows.push_entry(ATTRIBUTES_TEXT).coded(b"a").coded(names[1].as_bytes());
        }
        rows.end_row();
    }
    rows
}

fn facts(rows: &Columns, row: usize) -> (u128, &str, Vec<&str>) {
    let lists = rows.lists(ATTRIBUTES_TEXT);
    let Values::Coded(values) = &lists.parts()[1] else { panic!("texts") };
    let values = lists.entries(row).map(|entry| values.text(entry)).collect();
    (rows.wide(TRACE_ID)[row], rows.coded(NAME).text(row), values)
}

#[test]
fn rows_have_what_they_were_given_in_any_order() {
    let (one, other) = (rows(["x", "y"]), rows(["y", "z"]));
    let all: Vec<_> = (0..3).map(|row| facts(&one, row)).collect();
    assert_eq!(all, [(0, "x", vec!["x", "2"]), (1, "", vec![]), (2, "", vec!["y"])]);
    let positions = [(1, 2), (0, 0), (1, 1), (1, 0), (0, 2)];
    let positions = positions.map(|(batch, row)| RowPosition { batch, row });
    let gathered = Columns::gather(SPANS.schema(), &[&one, &other], &positions);
    let all: Vec<_> = (0..gathered.len()).map(|row| facts(&gathered, row)).collect();
    let want = [
        (2, "", vec!["z"]),
        (0, "x", vec!["x", "2"]),
        (1, "", vec![]),
        (0, "y", vec!["y", "2"]),
        (2, "", vec!["y"]),
    ];
    assert_eq!(all, want);
    // What two sources share is there once.
    assert_eq!(gathered.coded(NAME).dictionary.len(), 2);
}
