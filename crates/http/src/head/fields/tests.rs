use super::*;

/// The fields that our parser finds there.
fn read(text: &str) -> Fields {
    let mut parsed = [httparse::EMPTY_HEADER; 16];
    let parsed = httparse::parse_headers(text.as_bytes(), &mut parsed).expect("fields");
    let httparse::Status::Complete((_, parsed)) = parsed else { panic!("an end") };
    Fields::parsed(text.as_bytes(), parsed)
}

fn all(fields: &Fields) -> Vec<(String, String)> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|(_, name, value)| (text(name), text(value))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn fields_stand_in_their_order_with_small_names_and_whole_values() {
    let fields = read("Host: a\r\nX-Odd:  \u{e9} B \r\nTE:\r\nhost: b\r\nEmpty:\r\n\r\n");
    let want = [("host", "a"), ("x-odd", "\u{e9} B"), ("te", ""), ("host", "b"), ("empty", "")];
    assert_eq!(all(&fields), pairs(&want));
    assert_eq!(fields.get(Known::Host), Some(&b"a"[..]));
    assert_eq!(fields.all(Known::Host).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(fields.get(Known::Te), Some(&b""[..]));
    assert!(!fields.has(Known::Upgrade) && fields.get(Known::Upgrade).is_none());
}

#[test]
fn what_is_added_and_removed_is_there_and_is_not() {
    let mut fields = read("host: a\r\nConnection: x-mine\r\nX-Mine: 1\r\nexpect: 1\r\n\r\n");
    fields.push(Known::Te, b"trailers");
    fields.set(Known::Host, b"b");
    fields.remove_named(b"X-MINE");
    fields.remove(Known::Connection.bit() | Known::Expect.bit() | Known::Upgrade.bit());
    assert_eq!(all(&fields), pairs(&[("te", "trailers"), ("host", "b")]));
    assert!(fields.has(Known::Te) && fields.has(Known::Host));
    for gone in [Known::Connection, Known::Expect] {
        assert!(!fields.has(gone) && fields.get(gone).is_none(), "{gone:?}");
    }
    fields.remove_named(b"host");
    assert!(!fields.has(Known::Host));
}

#[test]
fn lists_have_words_in_whatever_letters_and_lines() {
    let fields = read("connection: close , Keep-Alive\r\nConnection: ,x\r\n\r\n");
    let words: Vec<_> = fields.words(Known::Connection).collect();
    assert_eq!(words, [&b"close"[..], b"Keep-Alive", b"", b"x"]);
    for (word, is_listed) in [("CLOSE", true), ("keep-alive", true), ("keep", false), ("X", true)] {
        assert_eq!(fields.lists(Known::Connection, word), is_listed, "{word}");
    }
}

#[test]
fn a_map_has_the_same_fields() {
    let fields = read("a: 1\r\nhost: h\r\nb: \u{e9}\r\n\r\n");
    let map = HeaderMap::from(&fields);
    assert_eq!(Fields::from(&map), fields);
    assert!(Fields::from(&map).has(Known::Host));
}

#[test]
fn a_repeated_field_has_no_sole_value() {
    let fields = read("x-a: 1\r\nX-B: 2\r\nx-b: 2\r\nx-c: 3, 4\r\n\r\n");
    assert_eq!(fields.sole(b"x-a"), Ok(Some(&b"1"[..])));
    assert_eq!(fields.sole(b"x-b"), Err(RepeatedField));
    assert_eq!(fields.sole(b"x-c"), Ok(Some(&b"3, 4"[..])));
    assert_eq!(fields.sole(b"x-d"), Ok(None));
}

#[test]
fn lines_are_sent_in_one_form_in_whatever_form_they_came() {
    let received = "A: 1\r\nb:2\r\nHost: h \r\nte:\r\nc:  3\r\nexpect: \r\nD: 4\r\nupgrade: u\r\ng:\t6\nh: 7\n\
                    i: 8\r\ncookie: a\r\ncookie: b\r\nkeep-alive: 9\r\nx-forwarded-for: y\r\ne: 5\r\n\r\n";
    let mut fields = read(received);
    fields.remove(Known::KeepAlive.bit());
    fields.set(Known::ForwardedFor, b"z");
    fields.join(Known::Cookie, b"; ");
    fields.remove_named(b"e");
    fields.push(Known::CurtailClass, b"");
    fields.append(b"f", b"6");
    let written = |excluded| {
        let mut buffer = b"start\r\n".to_vec();
        fields.write(&mut buffer, excluded);
        String::from_utf8(buffer).expect("text")
    };
    let line = |(name, value)| format!("{name}: {value}\r\n");
    let expected = |excluded: u32| {
        let kept = fields.iter().filter(|(known, ..)| known.bit() & excluded == 0);
        let text = |bytes| std::str::from_utf8(bytes).expect("text");
        kept.fold("start\r\n".to_owned(), |lines, (_, name, value)| {
            lines + &line((text(name), text(value)))
        })
    };
    assert_eq!(
        written(0),
        "start\r\na: 1\r\nb: 2\r\nhost: h\r\nte: \r\nc: 3\r\nexpect: \r\nd: 4\r\nupgrade: u\r\ng: 6\r\nh: 7\r\n\
         i: 8\r\nx-forwarded-for: z\r\ncookie: a; b\r\ncurtail-class: \r\nf: 6\r\n"
    );
    let bits = [Known::Other, Known::Host, Known::Te, Known::Expect, Known::Upgrade];
    for chosen in 0_u32..32 {
        let chosen = bits.iter().enumerate().filter(|(nth, _)| chosen >> nth & 1 == 1);
        let excluded = chosen.fold(0, |bits, (_, known)| bits | known.bit());
        assert_eq!(written(excluded), expected(excluded), "{excluded:b}");
    }
}
