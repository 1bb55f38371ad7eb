use super::Switchback;
use crate::holdout::{Draw, DrawnBy, HoldoutSnapshot};
use crate::metrics::ResponseClass;
use curtail_policy::UpstreamConfig;
use curtail_units::{Duration, Instant, Ratio};
use expect_test::expect;
use http::StatusCode;

const OK: ResponseClass = ResponseClass::Status(StatusCode::OK);
const START_UNIX_NS: u64 = 1_795_000_000_000_000_000;

fn switchback() -> Switchback {
    let share = Ratio::new(0.5).expect("a ratio");
    Switchback::from_time(share, &UpstreamConfig::default(), (START_UNIX_NS, Instant::ZERO))
}

fn drawn(is_holdout: bool, by: DrawnBy) -> Option<Draw> {
    Some(Draw { is_holdout, by })
}

/// Three hours with ten requests a second, of 1 to 100 ms without hedges, and of 1 to 150 ms with them.
pub(crate) fn sample() -> HoldoutSnapshot {
    let switchback = switchback();
    for nth in 0..108_000_u64 {
        let arrived = Instant::ZERO + Duration::from_ms(100 * nth);
        let is_off = switchback.is_off(arrived);
        let latency = Duration::from_ms(1 + nth % if is_off { 100 } else { 150 });
        let draw = if is_off { drawn(true, DrawnBy::Block) } else { None };
        let attempts = 1 + usize::from(!is_off && nth % 10 == 0);
        switchback.record((arrived, arrived + latency), draw, OK, attempts);
    }
    switchback.read(Instant::ZERO + Duration::from_secs(3 * 3_600))
}

#[test]
fn the_state_page_has_the_effect_on_all_requests() {
    let state = sample().to_json();
    assert_eq!(state["ratio"], 0.5);
    let effect = state["effect"].as_str().expect("a percentile is stated");
    expect![
        "hedging: p90 92.01 ms → 137.9 ms (136.3 ms to 139.5 ms) for 10.0 % extra, this day, worse"
    ]
    .assert_eq(effect);
}

#[test]
fn only_requests_on_the_side_of_their_block_are_measured() {
    let switchback = switchback();
    let times = (0..40).map(|block| Instant::ZERO + Duration::from_secs(60 + 30 * block + 10));
    let (off, on): (Vec<Instant>, Vec<Instant>) = times.partition(|at| switchback.is_off(*at));
    let counted = |at: &[Instant], draw: Option<Draw>| {
        let one = self::switchback();
        for arrived in at {
            one.record((*arrived, *arrived + Duration::from_ms(1)), draw, OK, 1);
        }
        let requests = one.read(Instant::ZERO + Duration::from_secs(7_200)).requests;
        requests.without + requests.with
    };
    let all = |at: &[Instant]| at.len() as u64;
    assert_eq!(counted(&off, drawn(true, DrawnBy::Block)), all(&off));
    assert_eq!(counted(&on, None), all(&on));
    assert_eq!(counted(&on, drawn(false, DrawnBy::Request)), all(&on));
    // The holdout of a block with the remedy goes without it, and a client may choose.
    assert_eq!(counted(&on, drawn(true, DrawnBy::Request)), 0);
    assert_eq!(counted(&on, drawn(false, DrawnBy::Client)), 0);
    // A proxy in front has drawn otherwise.
    assert_eq!(counted(&off, drawn(false, DrawnBy::Request)), 0);
    assert_eq!(counted(&off, None), 0);
}
