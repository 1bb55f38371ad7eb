use super::*;
use crate::schema::{RESOURCE, SPAN};

fn reader(bytes: &[u8]) -> Reader<'_> {
    Reader::new(bytes, &SPAN)
}

/// Walks a message to its end.
fn walked(bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = reader(bytes);
    while let Some(tag) = reader.tag().map_err(|broken| *broken)? {
        reader.other(tag).map_err(|broken| *broken)?;
    }
    Ok(())
}

#[test]
fn numbers_of_every_length_are_read() {
    for bits in 0..64 {
        for number in [1 << bits, (1 << bits) - 1, u64::MAX >> bits] {
            let mut bytes = Vec::new();
            curtail_protobuf::varint(&mut bytes, number);
            let mut reader = reader(&bytes);
            assert_eq!(reader.varint().expect("a number"), number);
            assert!(reader.rest().is_empty());
            for len in 0..bytes.len() {
                let cut_off = Reader::new(&bytes[..len], &SPAN).varint();
                assert_eq!(cut_off.expect_err("cut off").fault, Fault::CutOff);
            }
        }
    }
    for (bytes, number) in [(&[0x80, 0x80, 0][..], 0), (&[0xFF; 9], 0)] {
        let padded = [bytes, &[1]].concat();
        let read = reader(&padded).varint().expect("a number");
        assert_eq!(read, if bytes.len() == 9 { u64::MAX } else { number }, "{padded:?}");
    }
}

#[test]
fn signs_in_the_last_bit_are_read() {
    for (bits, number) in [(0, 0), (1, -1), (2, 1), (3, -2), (u64::MAX, i64::MIN)] {
        let mut bytes = Vec::new();
        curtail_protobuf::varint(&mut bytes, bits);
        assert_eq!(reader(&bytes).zigzag().expect("a number"), number);
    }
}

#[test]
fn errors_name_their_place() {
    for (bytes, at, fault) in [
        (&[0x80][..], 0, Fault::CutOff),
        (&[0x30], 1, Fault::CutOff),
        (&[0x30, 0xFF], 1, Fault::CutOff),
        (&[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02], 1, Fault::TooLong),
        (&[0x39, 1, 2, 3], 1, Fault::CutOff),
        (&[0x2A, 3, b'a', b'b'], 2, Fault::Length { len: 3, left: 2 }),
        (&[0x30, 1, 0x02], 3, Fault::FieldNumber(0)),
        (&[0xFA, 0xFF, 0xFF, 0xFF, 0x7F], 5, Fault::FieldNumber(0xFFF_FFFF + 0xF000_0000)),
        // A name that is a number.
        (&[0x28, 1], 1, Fault::OtherType { field: 5, found: 0, expected: 2 }),
        // Groups, in a field that is not known.
        (&[0xA3, 0x06], 2, Fault::WireType(3)),
        (&[0xA6, 0x06], 2, Fault::WireType(6)),
    ] {
        let malformed = walked(bytes).expect_err("malformed");
        assert_eq!((malformed.at, malformed.fault), (at, fault), "{bytes:x?}");
        assert_eq!(malformed.message, "Span");
    }
}

#[test]
fn fields_of_later_versions_are_passed_over() {
    let unknown = [0xA0, 0x06, 5, 0xA1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xA2, 0x06, 1, 9];
    let more = [0xA5, 0x06, 1, 2, 3, 4];
    walked(&[&unknown[..], &more].concat()).expect("nothing wrong");
}

#[test]
fn a_message_ends_where_it_says() {
    let bytes = [0x0A, 2, 0x10, 7, 0x10, 9];
    let mut outer = reader(&bytes);
    assert_eq!(outer.tag().expect("a tag"), Some(Tag { field: 1, wire_type: LEN }));
    let mut inner = outer.message(&RESOURCE).expect("a message");
    assert_eq!(inner.whole(), Slice { at: 2, len: 2 });
    assert_eq!(inner.tag().expect("a tag"), Some(Tag { field: 2, wire_type: VARINT }));
    assert_eq!(inner.varint().expect("a number"), 7);
    assert_eq!(inner.tag().expect("the end"), None);
    assert_eq!(outer.rest(), [0x10, 9]);
}
