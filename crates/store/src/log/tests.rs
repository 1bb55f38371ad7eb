use super::*;
use crate::files::failing::Failing;
use curtail_units::Rng;

const SEED: u64 = 11;
const GROUPS: usize = 12;

fn record(nth: usize, len: usize) -> Record {
    let signal = [Signal::Traces, Signal::Logs, Signal::Metrics][nth % 3];
    let tenant = ["", "shop", "größer"][nth / 3 % 3];
    let batch = (0..len).map(|at| (at ^ nth).to_le_bytes()[0]).collect();
    Record { signal, tenant: Arc::from(tenant), received_ns: nth as u64, batch }
}

fn log(files: &Failing) -> Log {
    Log::open(Arc::new(files.clone()), 0).expect("an empty log")
}

/// All that the segments hold, and what is wrong with them.
fn all(files: &Failing) -> (Vec<Record>, Vec<Damage>) {
    let segments = segments(files).expect("a list");
    let read: Vec<_> =
        segments.into_iter().map(|segment| read(files, segment).expect("it is there")).collect();
    let damage = read.iter().filter_map(|segment| segment.damage).collect();
    (read.into_iter().flat_map(|segment| segment.records).collect(), damage)
}

/// Writes groups of records, each again if it fails, as senders do; ends a segment now and then. Returns what
/// was acknowledged.
fn write(files: &Failing) -> Vec<Record> {
    let mut log =
        Log::open(Arc::new(files.clone()), 0).or_else(|_| Log::open(Arc::new(files.clone()), 0));
    let log = log.as_mut().expect("one operation fails, and no two");
    let mut acknowledged = Vec::new();
    for group in 0..GROUPS {
        let group: Vec<_> = (0..=group % 3).map(|nth| record(3 * group + nth, 100 * nth)).collect();
        if log.append(&group).is_ok() || log.append(&group).is_ok() {
            acknowledged.extend(group);
        }
        if log.segment_bytes() > 4 * BLOCK_BYTES as u64 {
            log.end_segment();
        }
    }
    acknowledged
}

#[test]
fn what_was_written_is_read_back() {
    let files = Failing::default();
    let written = write(&files);
    assert_eq!(written.len(), 24);
    assert_eq!(all(&files), (written, vec![]));
    assert!(segments(&files).expect("a list").len() > 2);
}

#[test]
fn a_log_that_is_opened_again_goes_on_in_a_segment_of_its_own() {
    let files = Failing::default();
    let mut first = log(&files);
    assert_eq!(first.append(&[record(1, 10)]).expect("written"), 1);
    assert_eq!(first.append(&[record(2, 10)]).expect("written"), 1);
    drop(first);
    let mut second = log(&files);
    assert_eq!(second.append(&[record(3, 10)]).expect("written"), 2);
    assert_eq!(all(&files).0, [record(1, 10), record(2, 10), record(3, 10)]);
    remove(&files, 1).expect("removed");
    assert_eq!(all(&files).0, [record(3, 10)]);
}

#[test]
fn nothing_acknowledged_is_lost_whichever_operation_fails_and_when_the_power_goes_then() {
    println!("seed {SEED}");
    let count = {
        let files = Failing::default();
        write(&files);
        files.operations()
    };
    assert!(count > 30, "{count} operations");
    let mut rng = Rng::new(SEED);
    // One operation, and as many as a disk that is full fails until there is space.
    for (first, fails) in (0..count).flat_map(|first| [(first, 1), (first.max(1), 7)]) {
        let files = Failing::default();
        files.fail(first..first + fails);
        let acknowledged = write(&files);
        files.fail(0..0);
        // Where one operation fails, the second attempt succeeds.
        let want = if fails == 1 { 24..=24 } else { 10..=23 };
        assert!(want.contains(&acknowledged.len()), "{first}, {fails}: {}", acknowledged.len());
        let (before, damage) = all(&files);
        let (after, _) = all(&files.after_power_cut(&mut rng));
        if fails == 1 {
            assert_eq!((&before, &*damage), (&acknowledged, &[][..]), "{first}");
        }
        for read in [before, after] {
            let mut rest = read.iter();
            for record in &acknowledged {
                assert!(rest.any(|read| read == record), "{first}: {record:?} is lost");
            }
        }
    }
}

#[test]
fn a_record_that_was_being_written_is_left_out_and_said() {
    let files = Failing::default();
    let mut log = log(&files);
    log.append(&[record(1, 10), record(2, 50)]).expect("written");
    let whole = files.read("log-000000000001").expect("it is there");
    for len in 0..=whole.len() {
        let cut = Failing::default();
        let mut file = cut.create("log-000000000001").expect("a file");
        file.append(&mut [IoSlice::new(&whole[..len])]).expect("written");
        let segment = read(&cut, 1).expect("it is there");
        let records = segment.records.len();
        assert_eq!(segment.records, [record(1, 10), record(2, 50)][..records]);
        let first = BLOCK_BYTES + HEADER_BYTES + 10;
        let second = first + HEADER_BYTES + record(2, 50).tenant.len() + 50;
        let is_whole =
            len == 0 || (MAGIC.len()..=BLOCK_BYTES).contains(&len) || len == first || len >= second;
        assert_eq!(segment.damage.is_none(), is_whole, "{len} bytes");
        if let Some(damage) = segment.damage {
            assert_eq!(damage.at + damage.bytes, len as u64);
        }
    }
}

#[test]
fn a_byte_that_was_turned_over_anywhere_is_noticed() {
    let files = Failing::default();
    let mut log = log(&files);
    let written = [record(1, 30), record(4, 30)];
    log.append(&written).expect("written");
    let name = "log-000000000001";
    for at in 0..files.read(name).expect("it is there").len() {
        files.damage(name, at);
        let segment = read(&files, 1).expect("it is there");
        assert!(segment.damage.is_some(), "byte {at}");
        assert!(segment.records.iter().zip(&written).all(|(read, record)| read == record));
        files.damage(name, at);
    }
    assert_eq!(read(&files, 1).expect("it is there").records, written);
}

#[test]
fn files_that_are_not_segments_are_let_alone() {
    let files = Failing::default();
    for name in ["log-x", "log-", "other", "log-000000000007"] {
        files.create(name).expect("a file");
    }
    assert_eq!(segments(&files).expect("a list"), [7]);
    assert_eq!(log(&files).append(&[record(1, 1)]).expect("written"), 8);
}
