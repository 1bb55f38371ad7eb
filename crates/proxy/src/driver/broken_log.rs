//! The log of broken responses: a warning for each cause, and no flood of warnings.
//!
//! **Limits**: within [`WARN_INTERVAL`], an upstream has one warning for each cause, and at most [`CAUSES_MAX`].

use super::Upstream;
use curtail_units::{Duration, Instant};
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

/// Time between two warnings about the same cause.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of warnings of an upstream within [`WARN_INTERVAL`].
const CAUSES_MAX: usize = 16;

/// The causes of the warnings within the last [`WARN_INTERVAL`], and when the log had each.
#[derive(Debug, Default)]
pub(super) struct BrokenResponseLog(Mutex<Vec<(Box<str>, Instant)>>);

impl BrokenResponseLog {
    /// Whether the log has a warning about this cause now.
    fn is_due(&self, now: Instant, cause: &str) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warned.retain(|(_, at)| now < *at + WARN_INTERVAL);
        let is_due = warned.len() < CAUSES_MAX && warned.iter().all(|(known, _)| **known != *cause);
        if is_due {
            warned.push((cause.into(), now));
        }
        is_due
    }
}

impl Upstream {
    /// Logs that a replica sent no complete and valid response.
    pub(crate) fn log_broken_response(
        &self,
        now: Instant,
        replica: Option<&str>,
        cause: &dyn Display,
    ) {
        let (upstream, error) = (&*self.name, cause.to_string());
        if self.broken_log.is_due(now, &error) {
            tracing::warn!(
                upstream,
                replica,
                error,
                "a replica sent no complete and valid response; further responses with this error are logged at level debug for one minute"
            );
        } else {
            tracing::debug!(
                upstream,
                replica,
                error,
                "a replica sent no complete and valid response"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BrokenResponseLog, CAUSES_MAX, Instant, WARN_INTERVAL};

    #[test]
    fn each_cause_has_a_warning_and_all_together_a_limit() {
        let log = BrokenResponseLog::default();
        let begin = Instant::from_ns(1);
        let causes: Vec<_> = (0..=CAUSES_MAX).map(|nth| format!("cause {nth}")).collect();
        let due = || causes.iter().filter(|cause| log.is_due(begin, cause)).count();
        assert_eq!((due(), due()), (CAUSES_MAX, 0));
        assert!(causes.iter().all(|cause| !log.is_due(begin, cause)));
        assert!(log.is_due(begin + WARN_INTERVAL, &causes[0]));
        assert!(!log.is_due(begin + WARN_INTERVAL, &causes[0]));
    }
}
