extern crate std;

use super::*;
use alloc::vec;
use curtail_units::Rng;
use std::println;

const SEED: u64 = 23;

fn span(id: u64, parent_id: u64, start_ns: i64) -> Span {
    Span { id, parent_id, start_ns, end_ns: start_ns + 10 }
}

fn assembled(spans: &[Span]) -> Assembly {
    let mut assembly = Assembly::default();
    assembly.assemble(spans);
    assembly
}

/// The parent of each span.
fn parents(assembly: &Assembly, spans: &[Span]) -> Vec<Option<usize>> {
    (0..spans.len()).map(|nth| assembly.parent(nth)).collect()
}

#[test]
fn spans_are_below_their_parents_in_whatever_order_they_come() {
    let spans = [span(3, 2, 20), span(1, 0, 0), span(2, 1, 10), span(4, 1, 30)];
    let assembly = assembled(&spans);
    assert_eq!(parents(&assembly, &spans), [Some(2), None, Some(1), Some(1)]);
    assert_eq!((assembly.root(), assembly.roots(), assembly.orphans()), (Some(1), 1, 0));
    // What ended last comes first.
    assert_eq!(assembly.children(1), [3, 2]);
    assert_eq!(assembly.children(2), [0]);
    assert!(assembly.children(0).is_empty() && assembly.children(3).is_empty());
}

#[test]
fn the_root_is_the_first_that_began() {
    let spans = [span(1, 0, 5), span(2, 0, 3), span(3, 0, 3)];
    let assembly = assembled(&spans);
    assert_eq!((assembly.root(), assembly.roots()), (Some(1), 3));
    assert_eq!(assembled(&[]).root(), None);
    assert_eq!(assembled(&[span(1, 9, 0)]).root(), None);
}

#[test]
fn whose_parent_is_missing_is_an_orphan() {
    let spans = [span(1, 0, 0), span(2, 77, 1), span(3, 2, 2), span(4, 4, 3)];
    let assembly = assembled(&spans);
    assert_eq!(parents(&assembly, &spans), [None, None, Some(1), None]);
    assert_eq!((assembly.root(), assembly.orphans()), (Some(0), 2));
}

#[test]
fn of_two_with_one_id_the_first_has_the_children() {
    // As tracers send them that give the server's span the ID of the client's.
    let spans = [span(1, 0, 0), span(2, 1, 4), span(2, 1, 2), span(3, 2, 5)];
    let assembly = assembled(&spans);
    assert_eq!(parents(&assembly, &spans), [None, Some(0), Some(0), Some(2)]);
    assert_eq!(assembly.orphans(), 0);
    // One that names itself is the other's child.
    let spans = [span(2, 0, 0), span(2, 2, 1)];
    assert_eq!(parents(&assembled(&spans), &spans), [None, Some(0)]);
}

#[test]
fn a_cycle_is_cut_above_its_first_span() {
    for (first, want) in [
        (0, [None, Some(0), Some(1), Some(0)]),
        (1, [Some(2), None, Some(1), Some(0)]),
        (2, [Some(2), Some(0), None, Some(0)]),
    ] {
        let mut spans = [span(1, 3, 9), span(2, 1, 9), span(3, 2, 9), span(4, 1, 0)];
        spans[first].start_ns = 1;
        let assembly = assembled(&spans);
        assert_eq!(parents(&assembly, &spans), want);
        assert_eq!((assembly.root(), assembly.orphans()), (None, 1));
    }
}

#[test]
fn whatever_spans_say_every_way_up_ends() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut assembly = Assembly::default();
    for ids in [2, 5, 20, 200] {
        for _ in 0..300 {
            let spans: Vec<_> = (0..rng.below(40))
                .map(|_| span(rng.below(ids) as u64, rng.below(ids) as u64, rng.below(9) as i64))
                .collect();
            assembly.assemble(&spans);
            let mut children = vec![0; spans.len()];
            for nth in 0..spans.len() {
                let (mut at, mut steps) = (nth, 0);
                while let Some(parent) = assembly.parent(at) {
                    assert_eq!(spans[at].parent_id, spans[parent].id);
                    (at, steps) = (parent, steps + 1);
                    assert!(steps < spans.len(), "{spans:?}");
                }
                for child in assembly.children(nth) {
                    assert_eq!(assembly.parent(*child as usize), Some(nth));
                    children[*child as usize] += 1;
                }
            }
            let with_parents = (0..spans.len()).filter(|nth| assembly.parent(*nth).is_some());
            assert_eq!(with_parents.clone().count(), children.iter().sum::<usize>());
            assert!(with_parents.clone().all(|nth| children[nth] == 1), "each is a child once");
            let others = spans.len() - with_parents.count();
            assert_eq!(assembly.roots() + assembly.orphans(), others);
        }
    }
}

#[test]
fn a_hundred_thousand_spans_are_no_worry_in_whatever_form() {
    const SPANS: u64 = 100_000;
    let forms: [fn(u64) -> u64; 4] = [
        // A chain, upwards and downwards; all below one; all one circle.
        |id| id - 1,
        |id| if id == SPANS { 0 } else { id + 1 },
        |id| u64::from(id > 1),
        |id| if id == 1 { SPANS } else { id - 1 },
    ];
    for form in forms {
        let spans: Vec<_> = (1..=SPANS).map(|id| span(id, form(id), 7)).collect();
        let assembly = assembled(&spans);
        assert_eq!(assembly.roots() + assembly.orphans(), 1);
    }
}
