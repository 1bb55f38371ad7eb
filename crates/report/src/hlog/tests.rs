use super::render;
use crate::{hdr, sample};
use curtail_load::Failure;

#[test]
fn each_block_has_a_line_for_each_clock_that_gives_its_histogram_back() {
    let mut run = sample::compared(1);
    run.arms[1].name = "with a, b\nand c".to_owned();
    run.name = "two\nlines".to_owned();
    run.blocks[0].latencies[0].failures.add_n(Failure::Check, 2);
    let text = render(&run);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Tag=")).collect();
    assert_eq!(lines.len(), 2 * run.blocks.len());
    for (nth, line) in lines.iter().enumerate() {
        let block = &run.blocks[nth / 2];
        let merged = block.merged();
        let (responses, ending) =
            if nth % 2 == 0 { (&merged.response, "") } else { (&merged.service, ".service") };
        let [tag, began, lasted, max, histogram] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("five fields: {line}")
        };
        let arm = ["direct", "with_a__b_and_c"][block.arm];
        let warm_up = if block.is_warm_up { ".warm-up" } else { "" };
        assert_eq!(tag, format!("Tag={arm}{ending}{warm_up}"));
        let number = |text: &str| text.parse::<f64>().expect("a number");
        assert_eq!(number(began), 10.0 * (nth / 2) as f64);
        assert!((number(lasted) - block.lasted.as_secs_f64()).abs() < 0.001);
        assert!((number(max) - responses.max().expect("responses").as_ms_f64()).abs() < 0.001);
        assert_eq!(hdr::decode(histogram, responses.exact()).as_ref(), Ok(responses));
    }
    let head: Vec<&str> = text.lines().take(4).collect();
    assert_eq!(head[0], "#[two\\nlines, seed 1: 1,000 requests/s, Poisson, 8 blocks of 10 s]");
    assert_eq!(head[1], "#[Histogram log format version 1.3]");
    assert_eq!(
        head[2],
        "#[StartTime: 1795370643.000 (seconds since epoch), 2026-11-22 18:04:03 UTC]"
    );
    assert_eq!(head[3], "#[BaseTime: 1795370643.000 (seconds since epoch)]");
    assert!(text.contains("#[in block 1, which follows, "), "failures are named");
}
