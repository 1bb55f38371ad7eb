use super::segment::HEADER_BYTES;
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
    Log::open(Arc::new(files.clone()), 0, Rng::new(SEED)).expect("an empty log")
}

/// All that the segments hold, and what is wrong with them.
fn all(files: &Failing) -> (Vec<Record>, Vec<Damage>) {
    let segments = segments(files).expect("a list");
    let read: Vec<_> =
        segments.into_iter().map(|segment| read(files, segment).expect("it is there")).collect();
    let damage = read.iter().flat_map(|segment| segment.damage.clone()).collect();
    (read.into_iter().flat_map(|segment| segment.records).collect(), damage)
}

/// Writes groups of records, each again if it fails, as senders do; ends a segment now and then. Returns what
/// was acknowledged.
fn write(files: &Failing) -> Vec<Record> {
    let open = || Log::open(Arc::new(files.clone()), 0, Rng::new(SEED));
    let mut log = open().or_else(|_| open());
    let log = log.as_mut().expect("one operation fails, and no two");
    let mut acknowledged = Vec::new();
    for nth in 0..GROUPS {
        let group: Vec<_> = (0..=nth % 3)
            .map(|nth_of_group| record(3 * nth + nth_of_group, 100 * nth_of_group))
            .collect();
        if log.append(&group).is_ok() || log.append(&group).is_ok() {
            acknowledged.extend(group);
        }
        if nth % 4 == 3 {
            // A segment that cannot be cut back ends with a later group.
            log.end_segment().ok();
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
fn a_record_that_was_being_written_is_left_out_and_reported() {
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
        assert_eq!(records, usize::from(len >= first) + usize::from(len >= second));
        let is_whole = len == 0 || len == BLOCK_BYTES || len == first || len >= second;
        assert_eq!(segment.damage.is_empty(), is_whole, "{len} bytes");
        for damage in segment.damage {
            assert!(damage.is_torn && damage.at + damage.bytes == len as u64, "{damage:?}");
        }
    }
}

/// Records of a few groups, some longer than a block.
fn groups(files: &Failing) -> Vec<Record> {
    let mut log = log(files);
    let groups = [[(1, 30), (4, 30)], [(2, 9_000), (3, 0)], [(5, 7), (6, 4_096)]];
    let groups = groups.map(|group| group.map(|(nth, len)| record(nth, len)));
    for group in &groups {
        log.append(group).expect("written");
    }
    groups.concat()
}

#[test]
fn a_flipped_byte_costs_one_record_at_most_and_is_detected() {
    let files = Failing::default();
    let written = groups(&files);
    let name = "log-000000000001";
    let len = files.read(name).expect("it is there").len();
    for at in 0..len {
        files.damage(name, at);
        let Segment { records, damage } = read(&files, 1).expect("it is there");
        let [damage] = &*damage else { panic!("byte {at}: {damage:?}") };
        assert!((damage.at..damage.at + damage.bytes).contains(&(at as u64)), "{at}: {damage:?}");
        assert!(!damage.is_torn, "byte {at}: {damage:?}");
        let lost = written.len() - records.len();
        assert!(lost <= 1 && damage.records.is_none_or(|records| records == lost as u64), "{at}");
        let mut rest = written.iter();
        assert!(records.iter().all(|read| rest.any(|record| record == read)), "byte {at}");
        files.damage(name, at);
    }
    assert_eq!(read(&files, 1).expect("it is there").records, written);
}

#[test]
fn many_damaged_places_cost_only_their_own_records() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let name = "log-000000000001";
    for _ in 0..300 {
        let files = Failing::default();
        let mut log = log(&files);
        let written: Vec<_> = (0..100).map(|nth| record(nth, rng.below(900))).collect();
        let mut ends = Vec::new();
        for group in written.chunks(5) {
            log.append(group).expect("written");
            let lens = group.iter().map(|one| HEADER_BYTES + one.tenant.len() + one.batch.len());
            let len = files.read(name).expect("it is there").len();
            let from = len - lens.clone().sum::<usize>().next_multiple_of(BLOCK_BYTES);
            ends.extend(lens.scan(from, |end, len| {
                Some({
                    *end += len;
                    *end - len..*end
                })
            }));
        }
        let len = files.read(name).expect("it is there").len();
        let flipped: Vec<_> = (0..5).map(|_| BLOCK_BYTES + rng.below(len - BLOCK_BYTES)).collect();
        flipped.iter().for_each(|at| files.damage(name, *at));
        let is_hit = |nth: usize| flipped.iter().any(|at| ends[nth].contains(at));
        let want: Vec<_> = (0..100).filter(|nth| !is_hit(*nth)).map(|nth| &written[nth]).collect();
        let got = read(&files, 1).expect("it is there");
        assert_eq!(got.records.iter().collect::<Vec<_>>(), want, "{flipped:?}");
    }
}

#[test]
fn a_batch_that_contains_a_record_is_never_read_as_one() {
    // The attacker has the records of a log of its own, with the same numbers, and every possible header.
    let other = Failing::default();
    let mut rng = Rng::new(SEED + 1);
    let forged = Record { tenant: Arc::from("victim"), ..record(0, 40) };
    let open = Log::open(Arc::new(other.clone()), 0, rng.split("other"));
    open.expect("an empty log").append(&vec![forged; 9]).expect("written");
    let mut payload = other.read("log-000000000001").expect("it is there");
    let salts: Vec<u64> = (0..500).map(|_| rng.next_u64()).chain([0, u64::MAX]).collect();
    for (number, salt) in (0..9).cycle().zip(salts) {
        let inner = Record { tenant: Arc::from("victim"), ..record(0, 20) };
        payload.extend(segment::header(salt, number, &inner));
        payload.extend(b"victim");
        payload.extend(&inner.batch);
    }
    let files = Failing::default();
    let sent = Record { batch: payload.into(), ..record(1, 0) };
    let written = [record(0, 50), sent, record(2, 50)];
    log(&files).append(&written).expect("written");
    let name = "log-000000000001";
    let first = BLOCK_BYTES + HEADER_BYTES + 50 + written[0].tenant.len();
    // Each byte of its header is damaged in turn, so that the reader searches its body for the next record.
    for at in first..first + HEADER_BYTES + 8 {
        files.damage(name, at);
        let got = read(&files, 1).expect("it is there").records;
        assert_eq!(got, [written[0].clone(), written[2].clone()], "byte {at}");
        files.damage(name, at);
    }
}

#[test]
fn a_record_of_the_same_segment_is_not_read_twice() {
    let files = Failing::default();
    let written = groups(&files);
    let name = "log-000000000001";
    let bytes = files.read(name).expect("it is there");
    // The disk returns an old group in place of another one.
    let stale = bytes[BLOCK_BYTES..2 * BLOCK_BYTES].to_vec();
    let copied = Failing::default();
    let mut file = copied.create(name).expect("a file");
    let last = bytes.len() - 2 * BLOCK_BYTES;
    file.append(&mut [IoSlice::new(&bytes[..last]), IoSlice::new(&stale)]).expect("written");
    let got = read(&copied, 1).expect("it is there");
    assert_eq!((&*got.records, got.damage.len()), (&written[..4], 1));
}

#[test]
fn a_segment_of_an_earlier_version_is_rejected_and_kept() {
    let files = Failing::default();
    let mut file = files.create("log-000000000001").expect("a file");
    let mut block = b"curtail log 1\r\n\n".to_vec();
    block.resize(2 * BLOCK_BYTES, 0);
    file.append(&mut [IoSlice::new(&block)]).expect("written");
    let error = read(&files, 1).expect_err("it is of another version").to_string();
    assert!(error.contains("log-000000000001: an earlier version"), "{error}");
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
