use super::render;
use crate::Results;
use crate::results::{Arm, Event, Measure, State};
use crate::sample;
use crate::table::tests::comparison;
use curtail_load::{Failure, Timing};
use curtail_units::{Duration, Instant};

/// Runs that are hard to draw, each with what it is.
fn runs() -> Vec<(&'static str, Results)> {
    let full = sample::compared(1);
    let changed = |change: &dyn Fn(&mut Results)| {
        let mut run = full.clone();
        change(&mut run);
        run
    };
    let one_request = |run: &mut Results| {
        run.blocks.truncate(1);
        let block = &mut run.blocks[0];
        block.is_warm_up = false;
        block.latencies = vec![curtail_load::Latencies::new(); run.series.len()];
        let at = Instant::ZERO;
        let timing = Timing { intended: at, ready: at, sent: at, ended: at };
        block.latencies[0].record(&timing, None);
    };
    let only_failures = |run: &mut Results| {
        for latencies in run.blocks.iter_mut().flat_map(|block| &mut block.latencies) {
            let (count, mut failed) = (latencies.count(), curtail_load::Latencies::new());
            failed.failures.add_n(Failure::Connect, count);
            *latencies = failed;
        }
    };
    let many_arms = |run: &mut Results| {
        let arm = |nth| Arm { name: format!("arm {nth}"), about: String::new(), rate: None };
        run.arms = (0..9).map(arm).collect();
        for (nth, block) in run.blocks.iter_mut().enumerate() {
            block.arm = nth % 9;
        }
        let event = |nth: u64| Event {
            at: Instant::ZERO + Duration::from_secs(nth * 7),
            lasted: Duration::MAX,
            what: "restart".to_owned(),
        };
        run.events = (0..100).rev().map(event).collect();
        let measure = |nth: u32| Measure {
            of: "node".repeat(40),
            name: format!("thing {nth}"),
            points: vec![
                (Instant::MAX, f64::NAN),
                (Instant::ZERO, -1.0),
                (Instant::ZERO, f64::MAX),
            ],
        };
        run.measures = (0..20).map(measure).collect();
    };
    vec![
        ("compared", full.clone()),
        ("nothing at all", changed(&|run| run.blocks.clear())),
        ("one request", changed(&one_request)),
        ("only failures", changed(&only_failures)),
        ("many arms, events and measures", changed(&many_arms)),
    ]
}

#[test]
fn every_run_has_a_whole_page_of_finite_numbers_within_its_pictures() {
    for (what, run) in runs() {
        let page = render(&run, &[comparison()]);
        assert_eq!(unbalanced(&page), None, "{what}");
        for wrong in ["NaN", "inf"] {
            assert!(
                !page.contains(&format!("\"{wrong}")) && !page.contains(&format!(" {wrong} ")),
                "{what}"
            );
        }
        for picture in page.split("<svg viewBox=\"0 0 900 ").skip(1) {
            let picture = picture.split("</svg>").next().unwrap_or_default();
            let height: f64 =
                picture.split('"').next().and_then(|n| n.parse().ok()).expect("a height");
            for (name, limit) in [
                ("x", 900.0),
                ("x1", 900.0),
                ("x2", 900.0),
                ("cx", 900.0),
                ("y", height),
                ("y2", height),
            ] {
                for value in picture.split(&format!(" {name}=\"")).skip(1) {
                    let value = value.split('"').next().unwrap_or_default();
                    let number: f64 = value.parse().expect("a number");
                    assert!((0.0..=limit).contains(&number), "{what}: {name} is {value}");
                }
            }
        }
    }
}

/// The first tag that is closed and was not opened, or the other way round.
fn unbalanced(page: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap_or_default();
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        if let Some(closed) = name.strip_prefix('/') {
            if open.pop() != Some(closed) {
                return Some(tag.to_owned());
            }
        } else if !tag.ends_with('/') && !["meta", "!DOCTYPE"].contains(&name) {
            open.push(name);
        }
    }
    open.pop().map(str::to_owned)
}

#[test]
fn the_page_asks_for_nothing() {
    let page = render(&sample::compared(1), &[comparison()]);
    for asking in
        ["<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import", "<use"]
    {
        assert!(!page.contains(asking), "{asking}");
    }
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn texts_of_a_run_are_text_and_nothing_else() {
    let evil = "</style><script>alert('1')</script>\" onload=\"&";
    let mut run = sample::compared(1);
    for text in [&mut run.name, &mut run.command, &mut run.load, &mut run.machine.cpu] {
        *text = evil.to_owned();
    }
    for arm in &mut run.arms {
        (arm.name, arm.about) = (evil.to_owned(), evil.to_owned());
    }
    for series in &mut run.series {
        (series.query, series.tenant) =
            (format!("{evil}{}", series.query), format!("{evil}{}", series.tenant));
    }
    for measure in &mut run.measures {
        (measure.of, measure.name) = (evil.to_owned(), evil.to_owned());
    }
    run.events[0].what = evil.to_owned();
    run.state = State::Void { why: evil.to_owned() };
    let mut against = comparison();
    (against.base, against.other, against.method) =
        (evil.to_owned(), evil.to_owned(), evil.to_owned());
    let page = render(&run, &[against]);
    assert!(!page.contains("<script"), "a tag came through");
    assert!(!page.contains("\" onload"), "an attribute came through");
    assert_eq!(page.matches("</style>").count(), 1);
    assert_eq!(unbalanced(&page), None);
}

#[test]
fn everything_is_on_the_page_and_what_makes_it_doubtful_is_first() {
    let mut run = sample::compared(1);
    let page = render(&run, &[comparison()]);
    assert_eq!(
        page.matches("<figure>").count(),
        5,
        "percentiles, time, two heatmaps, a comparison"
    );
    for words in [
        "hedged against direct",
        "undecided: about 24 more blocks",
        "gc pause, ms",
        "resident, MiB",
        "1: node 2 paused at 43.5 s, for 1 s",
        "large, size 1,000,000",
        "curtail bench run suites/search.yaml --seed 1",
        "Imaginary 3000, 4 cores, Linux 6.1",
    ] {
        assert!(page.contains(words), "{words}");
    }
    run.state = State::Void { why: "late".to_owned() };
    let page = render(&run, &[]);
    let first = page.split("<main>").nth(1).expect("a body").trim_start();
    assert!(first.starts_with("<p class=\"banner void\"><strong>Void: do not use"), "{first:.80}");
}
