//! Makes a recording from the histograms of a load generator.
//!
//! A slot of a timeline has the latencies of the requests that were sent in it, without their order. The instants
//! within a slot and the order of its latencies are drawn from the seed; the rate and the latencies of each slot are
//! those of the file. Replicas, attempts and times in service are not in the file.

use super::{
    AttemptEnd, ROWS_MAX, RecordedAttempt, RecordedRequest, Recording, RecordingError, UNKNOWN,
};
use curtail_load::Timeline;
use curtail_units::{Duration, Instant, Rng};

impl Recording {
    /// Makes a recording from timelines of blocks, each with the instant of its start. Pauses between the blocks are left
    /// out. `source` describes the file.
    ///
    /// # Errors
    /// When the timelines have no request.
    pub fn from_slots(
        source: String,
        blocks: &[&Timeline],
        seed: u64,
    ) -> Result<Self, RecordingError> {
        let mut rng = Rng::new(seed).split("slots");
        let mut recording = Self { source, ..Self::default() };
        let mut rows = Vec::new();
        let mut start = Instant::ZERO;
        for block in blocks {
            for slot in block.slots() {
                let counts = slot.response.buckets().map(|bucket| bucket.count);
                let count = counts.fold(slot.failed, u64::saturating_add);
                if count > (ROWS_MAX - rows.len()) as u64 {
                    return Err(RecordingError::Invalid {
                        location: "the results".to_owned(),
                        expected: format!("at most {ROWS_MAX} requests of an arm"),
                    });
                }
                let mut latencies: Vec<Option<Duration>> = Vec::new();
                for bucket in slot.response.buckets() {
                    let middle = (bucket.lower.as_ns() + bucket.upper.as_ns()) / 2;
                    let count = usize::try_from(bucket.count).unwrap_or(usize::MAX);
                    latencies.extend(std::iter::repeat_n(Some(Duration::from_ns(middle)), count));
                }
                let failed = usize::try_from(slot.failed).unwrap_or(usize::MAX);
                latencies.extend(std::iter::repeat_n(None, failed));
                for latency in latencies {
                    let at = start + block.width().mul_f64(rng.unit());
                    rows.push(row(at, latency));
                }
                start = start + block.width();
            }
        }
        recording.fill(rows);
        if recording.requests.is_empty() {
            return Err(RecordingError::TooFew { found: 0 });
        }
        Ok(recording)
    }
}

fn row(at: Instant, latency: Option<Duration>) -> (RecordedRequest, Vec<RecordedAttempt>) {
    let request = RecordedRequest {
        arrived: at,
        latency,
        kind: 0,
        attempts: 0,
        caller: UNKNOWN,
        is_holdout: false,
    };
    let end = if latency.is_some() { AttemptEnd::Responded } else { AttemptEnd::Failed };
    let attempt = RecordedAttempt {
        replica: UNKNOWN,
        sent: at,
        lasted: latency.unwrap_or_default(),
        end,
        service: None,
    };
    (request, vec![attempt])
}
