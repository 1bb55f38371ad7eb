extern crate std;

use super::*;
use curtail_units::Rng;
use std::println;

const SEED: u64 = 29;

fn span(id: u64, parent_id: u64, start_ns: i64, end_ns: i64) -> Span {
    Span { id, parent_id, start_ns, end_ns }
}

/// The critical path of the first span: IDs, from when, up to when.
fn path(spans: &[Span]) -> Vec<(u64, i64, i64)> {
    let (mut assembly, mut path) = (Assembly::default(), CriticalPath::default());
    assembly.assemble(spans);
    let sections = path.of(spans, &assembly, 0).iter();
    sections.map(|at| (spans[at.span as usize].id, at.from_ns, at.to_ns)).collect()
}

#[test]
fn a_span_alone_waited_for_nothing() {
    assert_eq!(path(&[span(1, 0, 100, 200)]), [(1, 100, 200)]);
    assert!(path(&[span(1, 0, 100, 100)]).is_empty());
    assert!(path(&[span(1, 0, 100, 50)]).is_empty());
}

#[test]
fn one_after_the_other_each_was_waited_for() {
    let spans = [
        span(1, 0, 0, 1_000),
        span(2, 1, 100, 300),
        span(3, 1, 400, 900),
        span(4, 3, 400, 500),
        span(5, 3, 600, 900),
    ];
    let want = [
        (1, 0, 100),
        (2, 100, 300),
        (1, 300, 400),
        (4, 400, 500),
        (3, 500, 600),
        (5, 600, 900),
        (1, 900, 1_000),
    ];
    assert_eq!(path(&spans), want);
}

#[test]
fn of_what_ran_at_once_the_last_was_waited_for() {
    let spans =
        [span(1, 0, 0, 1_000), span(2, 1, 100, 700), span(3, 1, 110, 800), span(4, 1, 0, 105)];
    // The fourth had ended when the third began.
    assert_eq!(path(&spans), [(4, 0, 105), (1, 105, 110), (3, 110, 800), (1, 800, 1_000)]);
    // Of two that ended together it was that which began first.
    let spans = [span(1, 0, 0, 100), span(2, 1, 50, 90), span(3, 1, 10, 90)];
    assert_eq!(path(&spans), [(1, 0, 10), (3, 10, 90), (1, 90, 100)]);
}

#[test]
fn clocks_may_differ_by_a_hundredth() {
    let spans = |end| [span(1, 0, 0, 1_000), span(2, 1, 100, end), span(3, 1, 500, 1_000)];
    assert_eq!(path(&spans(510)), [(1, 0, 100), (2, 100, 500), (3, 500, 1_000)]);
    assert_eq!(path(&spans(511)), [(1, 0, 500), (3, 500, 1_000)]);
}

#[test]
fn a_child_counts_as_far_as_it_lies_within() {
    let early_and_late = [span(1, 0, 100, 200), span(2, 1, 50, 120), span(3, 1, 150, 240)];
    assert_eq!(path(&early_and_late), [(2, 100, 120), (1, 120, 150), (3, 150, 200)]);
    let below =
        [span(1, 0, 100, 200), span(2, 1, 150, 240), span(3, 2, 140, 160), span(4, 2, 190, 230)];
    assert_eq!(path(&below), [(1, 100, 150), (3, 150, 160), (2, 160, 190), (4, 190, 200)]);
    let outside =
        [span(1, 0, 100, 200), span(2, 1, 10, 90), span(3, 1, 210, 290), span(4, 3, 120, 180)];
    assert_eq!(path(&outside), [(1, 100, 200)]);
}

#[test]
fn what_took_longer_than_its_parent_was_left_behind() {
    // 1 % of a second, and 1 ms of a few milliseconds, in microseconds.
    for (parent, slack) in [(1_000_000, 10_000), (3_000, 1_000)] {
        let part = |percent: i64| parent * 10 * percent;
        let spans = |end| {
            [span(1, 0, 0, part(100)), span(2, 1, part(10), part(90)), span(3, 1, part(20), end)]
        };
        let latest = part(120) + 1_000 * slack;
        assert_eq!(path(&spans(latest)), [(1, 0, part(20)), (3, part(20), part(100))]);
        let left = [(1, 0, part(10)), (2, part(10), part(90)), (1, part(90), part(100))];
        assert_eq!(path(&spans(latest + 1)), left);
        assert_eq!(path(&spans(i64::MAX)), left);
    }
}

#[test]
fn whatever_spans_say_sections_go_from_the_start_to_the_end_without_a_gap() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let (mut assembly, mut path) = (Assembly::default(), CriticalPath::default());
    for ids in [2, 5, 30] {
        for time in [10, 1_000] {
            for _ in 0..500 {
                let mut id = || rng.below(ids) as u64;
                let (id, parent_id) = (id(), id());
                let mut spans: Vec<_> = (0..rng.below(30))
                    .map(|_| {
                        span(
                            rng.below(ids) as u64,
                            rng.below(ids) as u64,
                            rng.below(time) as i64,
                            rng.below(time) as i64,
                        )
                    })
                    .collect();
                spans.push(span(id, parent_id, i64::MIN, i64::MAX));
                assembly.assemble(&spans);
                for (nth, span) in spans.iter().enumerate() {
                    let sections = path.of(&spans, &assembly, nth);
                    let mut at_ns = span.start_ns;
                    for section in sections {
                        assert!(section.from_ns == at_ns && section.to_ns > at_ns, "{spans:?}");
                        at_ns = section.to_ns;
                        let mut above = Some(section.span as usize);
                        while above.is_some_and(|above| above != nth) {
                            above = above.and_then(|above| assembly.parent(above));
                        }
                        assert_eq!(above, Some(nth), "it is the span, or below it");
                    }
                    assert_eq!(at_ns, span.start_ns.max(span.end_ns), "{spans:?}");
                }
            }
        }
    }
}

#[test]
fn a_hundred_thousand_spans_are_no_worry_deep_or_wide() {
    const SPANS: i64 = 100_000;
    let id = |nth: i64| nth.cast_unsigned() + 1;
    let deep: Vec<_> =
        (0..SPANS).map(|nth| span(id(nth), nth.cast_unsigned(), nth, 2 * SPANS - nth)).collect();
    // Each waits a while before and after the one below it.
    assert_eq!(path(&deep).len(), 2 * deep.len() - 1);
    let mut wide = alloc::vec![span(1, 0, 0, 2 * SPANS)];
    wide.extend((1..SPANS).map(|nth| span(id(nth), 1, 2 * nth, 2 * nth + 1)));
    assert_eq!(path(&wide).len(), 2 * wide.len() - 1);
}
