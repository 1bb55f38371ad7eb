//! Tests of the decoder, with the examples of RFC 7541, appendix C.

use super::*;

/// Decodes a block in hexadecimal digits.
fn decode(decoder: &mut Decoder, block: &str) -> Result<Vec<String>, InvalidBlock> {
    let digits: Vec<u8> = block.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("digits")
    };
    let block: Vec<u8> = digits.chunks(2).map(byte).collect();
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(&block, |name, value| {
        fields.push(format!("{}: {}", text(name), text(value)));
        Ok(())
    })?;
    Ok(fields)
}

fn table(decoder: &Decoder) -> Vec<String> {
    let text = |entry: &Entry| {
        let (name, value) = entry.text.split_at(entry.name_len);
        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    decoder.table.iter().map(text).collect()
}

/// Appendix C.3: three requests without Huffman codes; C.4: the same with them.
#[test]
fn requests_fill_the_table() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let authority = ":authority: www.example.com";
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::default();
        let first = [":method: GET", ":scheme: http", ":path: /", authority];
        assert_eq!(decode(&mut decoder, blocks[0]).expect("valid"), first);
        let second =
            [":method: GET", ":scheme: http", ":path: /", authority, "cache-control: no-cache"];
        assert_eq!(decode(&mut decoder, blocks[1]).expect("valid"), second);
        let third = [
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            authority,
            "custom-key: custom-value",
        ];
        assert_eq!(decode(&mut decoder, blocks[2]).expect("valid"), third);
        let want = ["custom-key: custom-value", "cache-control: no-cache", authority];
        assert_eq!(table(&decoder), want);
        assert_eq!(decoder.table_bytes, 164);
    }
}

/// Appendix C.5: responses evict entries from a table of 256 bytes.
#[test]
fn responses_evict_entries() {
    let mut decoder = Decoder::default();
    let first = "3fe101 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a \
                 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
    let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
    let location = "location: https://www.example.com";
    let want = [":status: 302", "cache-control: private", date, location];
    assert_eq!(decode(&mut decoder, first).expect("valid"), want);
    assert_eq!(decoder.table_bytes, 222);
    let want = [":status: 307", "cache-control: private", date, location];
    assert_eq!(decode(&mut decoder, "4803 3330 37c1 c0bf").expect("valid"), want);
    assert_eq!(table(&decoder), [":status: 307", location, date, "cache-control: private"]);
}

#[test]
fn a_size_update_comes_first_and_is_at_most_the_limit() {
    let mut decoder = Decoder::default();
    decode(&mut decoder, "400161 0162").expect("valid");
    assert_eq!(decoder.table_bytes, 34);
    assert_eq!(decode(&mut decoder, "20 3fe11f 82").expect("valid"), [":method: GET"]);
    assert_eq!((decoder.table_bytes, decoder.table_bytes_max), (0, 4096));
    assert_eq!(decode(&mut decoder, "3fe21f"), Err(BAD_SIZE), "4097");
    assert_eq!(decode(&mut decoder, "82 20"), Err(LATE_SIZE));
}

#[test]
fn invalid_blocks_are_rejected() {
    for (block, why) in [
        ("80", BAD_INDEX),
        ("be", BAD_INDEX),
        ("7f00 00", BAD_INDEX),
        ("ffffffffff0f", BAD_INTEGER),
        ("7f8080808000", BAD_INTEGER),
        ("00", TRUNCATED),
        ("0001", TRUNCATED),
        ("000161", TRUNCATED),
        ("00016102 61", TRUNCATED),
        ("ff80", TRUNCATED),
        ("0081ff00", BAD_HUFFMAN),
    ] {
        assert_eq!(decode(&mut Decoder::default(), block), Err(why), "{block}");
    }
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::default();
    decode(&mut decoder, "400161 0162").expect("valid");
    let name = "61".repeat(127);
    let value = "62".repeat(4_000);
    // 4000 = 127 + 3873.
    decode(&mut decoder, &format!("407f00{name} 7fa11e{value}")).expect("valid");
    assert_eq!((decoder.table.len(), decoder.table_bytes), (0, 0));
}
