use super::*;

#[test]
fn a_name_says_what_it_is_and_is_made_again_from_that() {
    for (name, want) in [
        ("00000000000000000007.json", LogFile::Commit(7)),
        ("00000000000000000010.checkpoint.parquet", LogFile::Whole(10)),
        (
            "00000000000000000010.checkpoint.0000000002.0000000003.parquet",
            LogFile::Part { version: 10, nth: 2, of: 3 },
        ),
        (
            "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            LogFile::Later(10),
        ),
        ("00000000000000000004.crc", LogFile::Spare(4)),
        ("00000000000000000004.00000000000000000006.compacted.json", LogFile::Spare(4)),
    ] {
        assert_eq!(LogFile::parse(name), Some(want), "{name}");
    }
    assert_eq!(commit_name(7), "00000000000000000007.json");
    for (checkpoint, nth) in [(Checkpoint { version: 10, parts: None }, 0), (three(10), 1)] {
        let name = checkpoint.names().nth(nth).expect("it has one");
        assert_eq!(LogFile::parse(&name).map(LogFile::version), Some(10), "{name}");
    }
}

#[test]
fn what_is_no_file_of_the_log_has_no_version() {
    for name in [
        "_last_checkpoint",
        "7.json",
        "00000000000000000007.json#1",
        "00000000000000000007.json.tmp",
        "0000000000000000000x.json",
        "+0000000000000000007.json",
        "99999999999999999999.json",
        "0000000000000000000\u{e9}.json",
        "00000000000000000010.checkpoint.0000000004.0000000003.parquet",
        "00000000000000000010.checkpoint.0000000000.0000000003.parquet",
        "00000000000000000010.checkpoint.0000000001.4000000000.parquet",
    ] {
        assert_eq!(LogFile::parse(name), None, "{name}");
    }
}

#[test]
fn a_checkpoint_is_there_when_all_its_files_are() {
    let whole = |version| Checkpoint { version, parts: None };
    let part = |version, nth| LogFile::Part { version, nth, of: 3 };
    let files = [
        LogFile::Commit(1),
        LogFile::Whole(9),
        part(9, 3),
        part(5, 2),
        part(9, 1),
        part(7, 1),
        part(7, 2),
        part(9, 2),
        LogFile::Whole(2),
        LogFile::Later(12),
    ];
    let checkpoints: Vec<_> = Checkpoint::among(files.into_iter()).into_iter().collect();
    assert_eq!(checkpoints, [whole(2), whole(9), three(9)]);
    assert_eq!(Checkpoint::new(7, Some(u32::MAX)), None);
    assert_eq!(Checkpoint::new(u64::MAX, None), None);
}

fn three(version: u64) -> Checkpoint {
    Checkpoint { version, parts: Some(3) }
}
