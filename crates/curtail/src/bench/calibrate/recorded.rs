//! The blocks of one arm of a recorded run, which `calibrate` compares with each other.

use curtail_load::Latencies;
use curtail_report::Results;
use curtail_report::results::Block;

/// Minimum number of blocks: two pairs.
const RECORDED_MIN: usize = 4;

/// The blocks of one arm of a run, in the order of their time.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) arm: String,
    pub(super) blocks: Vec<Latencies>,
}

/// Why the blocks of a run cannot be compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordedError {
    /// The results have no arm of that name.
    #[error("there is no arm {wanted:?}: expected one of {}", .known.join(", "))]
    Arm { wanted: String, known: Vec<String> },
    #[error(
        "arm {arm:?} has {blocks} blocks: expected at least {RECORDED_MIN}, and some tens to learn \
         anything"
    )]
    Blocks { arm: String, blocks: usize },
}

impl Recorded {
    pub(super) fn of(results: &Results, arm: Option<&str>) -> Result<Self, RecordedError> {
        let known: Vec<String> = results.arms.iter().map(|arm| arm.name.clone()).collect();
        let wanted = arm.or(known.first().map(String::as_str)).unwrap_or_default().to_owned();
        let Some(nth) = known.iter().position(|name| *name == wanted) else {
            return Err(RecordedError::Arm { wanted, known });
        };
        let blocks = results.measured().filter(|block| block.arm == nth);
        let blocks: Vec<Latencies> = blocks.map(Block::merged).collect();
        if blocks.len() < RECORDED_MIN {
            return Err(RecordedError::Blocks { arm: wanted, blocks: blocks.len() });
        }
        Ok(Self { arm: wanted, blocks })
    }
}
