use super::{HealthSnapshot, HealthState, HealthStatus};
use crate::config::{HealthCheckConfig, HealthCheckKind};
use curtail_units::{Duration, Instant};

/// The health of a replica whose last check failed.
pub(crate) fn sample() -> HealthSnapshot {
    HealthSnapshot {
        is_healthy: Some(false),
        last_check_age: Some(Duration::from_ms(1_500)),
        last_error: Some("it responds 503 Service Unavailable".to_owned()),
    }
}

fn config() -> HealthCheckConfig {
    HealthCheckConfig {
        kind: HealthCheckKind::Tcp,
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(1),
        unhealthy_after: 3,
        healthy_after: 2,
    }
}

/// The changes of a state over the results of checks: `+` passed, `-` failed.
fn changes(status: HealthStatus, results: &str) -> Vec<(usize, bool)> {
    let mut state = HealthState { status, ..HealthState::default() };
    let result = |mark| if mark == '+' { Ok(()) } else { Err("refused".to_owned()) };
    let changes = results.chars().enumerate().filter_map(|(index, mark)| {
        let now = Instant::from_ns(index as u64);
        Some((index, state.take(now, result(mark), &config())?))
    });
    changes.collect()
}

#[test]
fn the_first_check_decides_and_later_changes_need_several_in_a_row() {
    for status in [HealthStatus::Unchecked, HealthStatus::Joining] {
        assert_eq!(changes(status, "+++"), [(0, true)]);
        assert_eq!(changes(status, "---"), [(0, false)]);
    }
    assert_eq!(changes(HealthStatus::Healthy, "--+--+---+-+-++"), [(8, false), (14, true)]);
    assert_eq!(changes(HealthStatus::Unhealthy, "+-+-++--+---"), [(5, true), (11, false)]);
}

#[test]
fn the_last_error_goes_with_the_next_passed_check() {
    let mut state = HealthState::default();
    state.take(Instant::from_ns(1), Err("refused".to_owned()), &config());
    assert_eq!(state.last_error.as_deref(), Some("refused"));
    state.take(Instant::from_ns(2), Ok(()), &config());
    assert_eq!((state.last_error.as_deref(), state.status), (None, HealthStatus::Unhealthy));
}
