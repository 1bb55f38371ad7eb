//! A table that changes: runs are written and merged, its log begins with a checkpoint.

use crate::program::{rows, run_query};
use crate::written::{Writer, run, spans};
use curtail_sql::{Bounds, Tables};
use curtail_units::Rng;
use datafusion::arrow::array::AsArray as _;
use datafusion::arrow::datatypes::Int64Type;
use serde_json::json;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

const SEED: u64 = 73;

const BOUNDS: Bounds = Bounds { memory_bytes: 64 << 20, threads: NonZeroUsize::MIN };

async fn open(data: &Path) -> Tables {
    Tables::open(&data.join("tables"), None, BOUNDS).await.expect("they are there")
}

/// The sum of all durations, which takes reading all files.
async fn sum(tables: &Tables) -> Result<i64, String> {
    let query = "SELECT sum(duration_ns) FROM spans";
    let mut result = tables.query(query, 10).await.map_err(|error| error.to_string())?;
    let rows = result.next().await.map_err(|error| error.to_string())?.expect("a row");
    Ok(rows.column(0).as_primitive::<Int64Type>().value(0))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("it is there");
    entries.map(|entry| entry.expect("it is there").path()).collect()
}

#[test]
fn runs_that_were_merged_are_counted_once() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let mut writer = Writer::new("sql-checkpoint").await;
        let mut expected = 0;
        // More commits than a checkpoint has.
        for nth in 0..110 {
            let sent = spans(&mut rng, nth * 8, 8);
            expected += sent.iter().map(|span| span.duration_ns).sum::<u64>();
            writer.spans(&sent, 0).await;
        }
        assert!(writer.keep().await > 1);
        let table = writer.data.join("tables/spans");
        assert!(table.join("_delta_log/_last_checkpoint").exists());
        // Files that were merged are still on the disk.
        assert!(files(&table.join("day=2024-10-04")).len() > 110);
        let query = "SELECT count(*) AS n, count(name) AS names, sum(duration_ns) AS ns FROM spans";
        let all = json!({ "n": 880, "names": 880, "ns": expected });
        assert_eq!(rows(&writer.data, query), [all]);
    });
}

#[test]
fn each_process_sees_what_was_committed_before_it() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let mut writer = Writer::new("sql-follows").await;
        let mut expected = 0;
        for nth in 0..9 {
            let sent = spans(&mut rng, nth * 8, 8);
            expected += sent.iter().map(|span| span.duration_ns).sum::<u64>();
            writer.spans(&sent, 0).await;
            let tables = open(&writer.data).await;
            assert_eq!(sum(&tables).await, Ok(i64::try_from(expected).expect("it is small")));
        }
        assert_eq!(writer.keep().await, 1);
        let tables = open(&writer.data).await;
        assert_eq!(sum(&tables).await, Ok(i64::try_from(expected).expect("it is small")));
    });
}

#[test]
fn the_end_of_a_file_is_read_once_and_damage_is_named() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let mut writer = Writer::new("sql-footers").await;
        writer.spans(&spans(&mut rng, 0, 100), 0).await;
        let tables = open(&writer.data).await;
        let result = sum(&tables).await;
        assert!(result.is_ok(), "{result:?}");
        let [file] = &files(&writer.data.join("tables/spans/day=2024-10-04"))[..] else {
            panic!("one run was written");
        };
        let mut bytes = std::fs::read(file).expect("it is there");
        // The length of the footer, before the four letters at the end.
        let at = bytes.len() - 8;
        bytes[at..at + 4].fill(0xFF);
        std::fs::write(file, bytes).expect("it is ours");
        assert_eq!(sum(&tables).await, result);
        let ended = run_query(&writer.data, &[], "SELECT sum(duration_ns) FROM spans");
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let name = file.file_name().expect("a name").to_string_lossy();
        assert!(ended.stderr.contains(&*name), "{ended:?}");
        std::fs::remove_file(file).expect("it is ours");
        let missing = sum(&tables).await.expect_err("its pages are gone");
        assert!(missing.contains(&*name), "{missing}");
    });
}

#[test]
fn a_damaged_page_is_an_error() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let mut writer = Writer::new("sql-damaged").await;
        writer.spans(&spans(&mut rng, 0, 9_000), 0).await;
        let [file] = &files(&writer.data.join("tables/spans/day=2024-10-04"))[..] else {
            panic!("one run was written");
        };
        let mut bytes = std::fs::read(file).expect("it is there");
        // The pages come first, and the IDs of traces are most of them.
        let middle = bytes.len() / 2;
        for byte in bytes[..middle].iter_mut().step_by(500) {
            *byte ^= 0x55;
        }
        std::fs::write(file, bytes).expect("it is ours");
        let ended = run_query(&writer.data, &[], "SELECT trace_id, duration_ns, name FROM spans");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""), "{ended:?}");
        let name = file.file_name().expect("a name").to_string_lossy();
        assert!(ended.stderr.contains(&*name), "{ended:?}");
    });
}
