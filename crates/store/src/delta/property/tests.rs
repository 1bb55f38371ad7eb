use super::super::action::Format;
use super::*;
use std::collections::BTreeMap;

fn having(key: &str, text: &str) -> Metadata {
    Metadata {
        id: "id".to_owned(),
        name: None,
        format: Format { provider: "parquet".to_owned(), options: BTreeMap::new() },
        schema_string: "{}".to_owned(),
        partition_columns: Vec::new(),
        configuration: BTreeMap::from([(key.to_owned(), text.to_owned())]),
        created_time: None,
    }
}

#[test]
fn defaults_are_those_of_delta_but_checkpoints_are_rarer() {
    let silent = having("delta.appendOnly", "true");
    assert_eq!(silent.checkpoint_interval(), Ok(100));
    assert_eq!(silent.log_retention_ms(), Ok(30 * DAY_MS));
    assert_eq!(silent.deleted_file_retention_ms(), Ok(7 * DAY_MS));
}

#[test]
fn times_are_read_in_all_units() {
    for (text, want_ms) in [
        ("interval 30 days", 30 * DAY_MS),
        ("interval 1 week", 7 * DAY_MS),
        ("interval 12 hours", 12 * 3_600_000),
        ("INTERVAL 1 Day 6 HOURS", 30 * 3_600_000),
        ("  90 minutes ", 5_400_000),
        ("interval 0 seconds", 0),
        ("interval 250 milliseconds", 250),
        ("interval 4294967295 weeks", 4_294_967_295 * 7 * DAY_MS),
    ] {
        assert_eq!(having(LOG_RETENTION, text).log_retention_ms(), Ok(want_ms), "{text}");
    }
}

#[test]
fn what_says_nothing_is_refused_with_the_key_and_the_text() {
    for text in
        ["", "interval", "interval 1 month", "interval days", "1 day 2", "-1 days", "1.5 days"]
    {
        let error =
            having(DELETED_FILE_RETENTION, text).deleted_file_retention_ms().expect_err(text);
        assert_eq!((error.key, &*error.text), (DELETED_FILE_RETENTION, text));
        let message = error.to_string();
        assert!(message.contains(&format!("{DELETED_FILE_RETENTION} is {text:?}")), "{message}");
    }
    for text in ["0", "-3", "often"] {
        let error = having(CHECKPOINT_INTERVAL, text).checkpoint_interval().expect_err(text);
        assert_eq!((error.key, &*error.text), (CHECKPOINT_INTERVAL, text));
    }
}
