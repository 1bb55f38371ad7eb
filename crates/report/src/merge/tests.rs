use super::merge;
use crate::Results;
use crate::results::{Block, Shares, State};
use crate::{file, sample};
use curtail_load::Share;
use curtail_load::{Failure, Latencies, Timeline, Timing};
use curtail_units::{Duration, Instant, Rng};
use std::path::Path;

/// A request of the plan: its series, its instants, and what became of it.
type Planned = (usize, Timing, Option<Failure>);

/// A block that found these requests.
fn block(plan: &Block, requests: &[Planned]) -> Block {
    let mut latencies = vec![Latencies::new(); plan.latencies.len()];
    let mut timeline = Timeline::new(plan.timeline.width());
    for (series, timing, failure) in requests {
        latencies[*series].record(timing, *failure);
        timeline.record(timing.intended.since(Instant::ZERO), timing, *failure);
    }
    Block { latencies, timeline, ..plan.clone() }
}

/// Requests of `block`, with failures among them.
fn plan(rng: &mut Rng, block: &Block, count: usize) -> Vec<Planned> {
    let request = |_| {
        let intended = block.began + Duration::from_secs_f64(10.0 * rng.unit());
        let sent = intended + Duration::from_ns_f64(1e5 * rng.exponential());
        let ended = sent + Duration::from_ns_f64(3e6 * (1.2 * rng.normal()).exp());
        let timing = Timing { intended, ready: intended, sent, ended };
        let failure = rng.chance(0.01).then(|| Failure::ALL[rng.below(Failure::ALL.len())]);
        (rng.below(block.latencies.len()), timing, failure)
    };
    (0..count).map(request).collect()
}

/// What one generator that sends everything finds, and what ten find that send every tenth request each.
fn one_and_ten(seed: u64) -> (Results, Vec<Results>) {
    let mut rng = Rng::new(seed);
    let mut one = sample::compared(seed);
    one.blocks[0].resent = 7;
    let mut ten = vec![one.clone(); 10];
    for nth in 0..one.blocks.len() {
        let requests = plan(&mut rng, &one.blocks[nth], 3_000);
        one.blocks[nth] = block(&one.blocks[nth], &requests);
        for (place, generator) in ten.iter_mut().enumerate() {
            generator.shares = Share { nth: place, of: 10 }.into();
            let mine: Vec<Planned> = requests.iter().skip(place).step_by(10).copied().collect();
            generator.blocks[nth] = block(&generator.blocks[nth], &mine);
        }
    }
    (one, ten)
}

#[test]
fn ten_generators_merged_through_files_equal_one_bucket_for_bucket() {
    for seed in [1, 2] {
        println!("seed {seed}");
        let (mut one, ten) = one_and_ten(seed);
        let file = Path::new("generator.json");
        let through_file = |part: &Results| {
            file::from_json(file, file::to_json(part).as_bytes()).expect("a results file")
        };
        let merged = merge(ten.iter().map(through_file).collect()).expect("one run");
        for (merged, one) in merged.blocks.iter().zip(&one.blocks) {
            assert_eq!(merged.latencies, one.latencies);
            assert_eq!(merged.timeline, one.timeline);
            for (merged, one) in merged.latencies.iter().zip(&one.latencies) {
                assert!(merged.response.buckets().eq(one.response.buckets()));
                assert!(merged.service.buckets().eq(one.service.buckets()));
                assert!(merged.lag.buckets().eq(one.lag.buckets()));
            }
        }
        // What each generator spent and received adds up; nothing else differs.
        for block in &mut one.blocks {
            block.received_bytes *= 10;
            block.connections *= 10;
            block.resent *= 10;
            block.generator_cpu = block.generator_cpu.mul_f64(10.0);
        }
        one.shares = Shares { of: 10, sent: (1..=10).collect() };
        assert_eq!(merged, one);
    }
}

#[test]
fn one_generator_is_what_it_was_and_none_is_an_error() {
    let mut run = sample::single(1);
    run.state = State::Partial { why: "interrupted".to_owned() };
    assert_eq!(merge(vec![run.clone()]), Ok(run));
    let error = merge(Vec::new()).expect_err("nothing").to_string();
    assert!(error.starts_with("there is nothing to merge"), "{error}");
}

/// The same run as seen by a generator that sent one of three shares.
fn share(nth: usize, run: &Results) -> Results {
    Results { shares: Share { nth, of: 3 }.into(), ..run.clone() }
}

fn merge_error(change: impl FnOnce(&mut Results)) -> String {
    let run = sample::single(1);
    let mut other = share(2, &run);
    change(&mut other);
    merge(vec![share(0, &run), share(1, &run), other]).expect_err("not of one run").to_string()
}

#[test]
fn two_runs_are_not_merged_like_two_generators_of_one() {
    let run = sample::single(1);
    let twice = merge(vec![run.clone(), run.clone()]).expect_err("the same plan twice");
    assert_eq!(
        twice.to_string(),
        "the results are of several runs: number 2 sent share 1/1 of the plan again; expected one \
         file of each share, as `--share 1/2` and `--share 2/2` make them"
    );
    let twice = merge(vec![share(0, &run), share(2, &run), share(2, &run)]).expect_err("3/3 twice");
    assert!(twice.to_string().contains("number 3 sent share 3/3 of the plan again"), "{twice}");
    let mut later = share(1, &run);
    later.began_unix_ns += 3_600_000_000_000;
    let apart = merge(vec![share(0, &run), later]).expect_err("an hour later").to_string();
    assert!(apart.contains("number 2 began 3600 s apart from the first"), "{apart}");
    let merged = merge(vec![share(2, &run), share(0, &run)]).expect("two of three shares");
    assert_eq!(merged.shares.to_string(), "1/3 and 3/3");
    let figures = crate::figures::of_arms(&merged);
    let wanted = figures[0].rate_wanted.expect("it is known");
    assert!((wanted - 2_000.0 / 3.0).abs() < 1e-9, "two thirds of 1,000/s, not {wanted}");
}

#[test]
fn what_differs_is_named() {
    let errors = [
        (merge_error(|run| run.seed = 2), "the seed is 1 in the first of them and 2 in number 3"),
        (
            merge_error(|run| run.shares.of = 4),
            "the number of shares is 3 in the first of them and 4 in number 3",
        ),
        (
            merge_error(|run| run.arms[0].name = "B".to_owned()),
            "arm 1 is \"direct\" in the first of them and \"B\" in number 3",
        ),
        (
            merge_error(|run| run.arms[0].rate = None),
            "the rate of arm 1 is 1000 a second in the first of them and none in number 3",
        ),
        (
            merge_error(|run| run.series[4].tenant_size = 7),
            "series 5 is \"facet\" of \"medium\" with size 50000 in the first of them and \
             \"facet\" of \"medium\" with size 7 in number 3",
        ),
        (
            merge_error(|run| run.blocks.truncate(1)),
            "the number of blocks is 2 in the first of them and 1 in number 3",
        ),
        (
            merge_error(|run| run.blocks[0].is_warm_up = false),
            "the purpose of block 1 is to warm up in the first of them and to measure in number 3",
        ),
        (
            merge_error(|run| run.blocks[1].timeline = Timeline::new(Duration::from_ms(750))),
            "the width of slots in block 2 is 500 ms in the first of them and 750 ms in number 3",
        ),
    ];
    for (error, expected) in errors {
        assert_eq!(error, format!("the results are not of one run: {expected}"));
    }
}

#[test]
fn a_generator_that_was_interrupted_makes_the_run_partial_and_a_void_one_makes_it_void() {
    let first = share(0, &sample::single(1));
    let mut cut = share(1, &first);
    cut.blocks.truncate(1);
    cut.state = State::Partial { why: "interrupted".to_owned() };
    for parts in [vec![first.clone(), cut.clone()], vec![cut.clone(), first.clone()]] {
        let place = 1 + parts.iter().position(|part| *part == cut).expect("it is there");
        let merged = merge(parts).expect("one run");
        assert_eq!(merged.blocks.len(), 2);
        assert_eq!(merged.blocks[1], first.blocks[1]);
        let why = format!("generator {place}: interrupted");
        assert_eq!(merged.state, State::Partial { why });
    }
    let mut late = first;
    late.state = State::Void { why: "late".to_owned() };
    let merged = merge(vec![cut, late]).expect("one run");
    assert_eq!(merged.state, State::Void { why: "generator 2: late".to_owned() });
}

#[test]
fn what_several_saw_of_the_servers_counts_once() {
    let first = share(0, &sample::compared(1));
    let mut other = share(1, &first);
    other.machine.cpu = "Imaginary 4000".to_owned();
    other.command = "curtail bench run --generator 2".to_owned();
    other.events[0].what = "node 3 paused".to_owned();
    other.events[0].at = Instant::ZERO;
    let merged = merge(vec![first.clone(), other]).expect("one run");
    assert_eq!(merged.measures, first.measures);
    assert_eq!(merged.blocks[0].servers_cpu, first.blocks[0].servers_cpu);
    let whats: Vec<&str> = merged.events.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(whats, ["node 3 paused", "node 2 paused"]);
    assert_eq!(merged.machine.cpu, "Imaginary 3000; Imaginary 4000");
    assert_eq!((merged.machine.cores, merged.machine.kernel.as_str()), (8, "Linux 6.1"));
    assert!(merged.command.ends_with("; curtail bench run --generator 2"));
}
