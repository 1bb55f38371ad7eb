use super::*;

#[test]
fn every_target_that_is_accepted_can_be_written_for_http_2() {
    // All bytes that the parser of request lines accepts.
    for byte in (0x21..0x7f).chain([0xe9]) {
        let char = char::from(byte);
        for text in [format!("/a{char}b"), format!("/?a{char}b"), format!("/<{char}?{char}>")] {
            let target = match Target::parse(&Method::GET, &text) {
                Ok((target, None)) => target,
                Err(fault) => {
                    assert_eq!((char, fault), ('#', FRAGMENT), "{text:?}");
                    continue;
                }
                Ok(other) => panic!("{text:?}: {other:?}"),
            };
            assert_eq!(target.as_str(), text);
            assert_eq!(target.path(), text.split('?').next().expect("it has a path"));
            let uri = target.to_uri_form();
            let decoded = ["%22", "%3C", "%3E", "%60"].iter().zip(["\"", "<", ">", "`"]);
            let decoded =
                decoded.fold(uri.as_str().to_owned(), |uri, (code, char)| uri.replace(code, char));
            assert_eq!(decoded, text);
        }
    }
}

#[test]
fn connect_is_refused_whatever_its_target() {
    for target in ["h:443", "/", "/p", "http://h/", "*"] {
        assert_eq!(Target::parse(&Method::CONNECT, target), Err(Fault::CONNECT), "{target}");
    }
}

#[test]
fn an_http_2_path_is_in_origin_form_or_an_asterisk() {
    let read =
        |method: Method, path: &'static str| Target::of_http2(path)?.unless_asterisk_with(&method);
    assert_eq!(read(Method::GET, "/a?b").expect("a path").as_str(), "/a?b");
    assert_eq!(read(Method::OPTIONS, "*").expect("the server as a whole").path(), "*");
    assert_eq!(read(Method::GET, "*"), Err(NO_TARGET));
    assert_eq!(read(Method::GET, "?b"), Err(NO_TARGET));
    assert_eq!(read(Method::GET, "/a#b"), Err(FRAGMENT));
    assert_eq!(read(Method::GET, "http://h/"), Err(NO_TARGET));
}
