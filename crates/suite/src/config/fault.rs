//! The keys of faults.

use super::step::CommandConfig;
use super::{WITHIN_MAX, read_time};
use curtail_config::Section;
use curtail_units::Duration;

/// The configuration of a fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FaultConfig {
    pub(crate) at: Duration,
    pub(crate) action: FaultAction,
    /// The duration; for a killed process, the time until its restart. Absent: to the end of the block.
    pub(crate) lasts: Option<Duration>,
}

/// The action of a fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FaultAction {
    /// Pauses a process and all of its group by SIGSTOP, and continues them by SIGCONT.
    Pause { process: String },
    /// Ends a process by SIGTERM and starts it again at once.
    Restart { process: String },
    /// Kills a process by SIGKILL and starts it again.
    Kill { process: String },
    /// Delays everything on a link, in each direction.
    Slow { link: String, by: Duration },
    /// Runs a command.
    Run(CommandConfig),
}

/// Maximum delay of a link.
const BY_MAX: Duration = Duration::from_secs(60);

impl FaultConfig {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let name = |s: &mut Section<'_>, key, doc| s.field::<String>(key, doc).optional();
        let pause = name(s, "pause", "Process to stop for `lasts` (SIGSTOP to its process group).");
        let restart = name(
            s,
            "restart",
            "Name of a process that the suite stops (SIGTERM) and starts again at once.",
        );
        let kill = name(
            s,
            "kill",
            "Process to kill (SIGKILL) and start again after `lasts`, or at the end of the block.",
        );
        let slow = name(
            s,
            "slow",
            "Link that the suite delays by `by` in each direction, for `lasts` or until the end of the block.",
        );
        let by = s
            .field("by", "Network delay in each direction.")
            .range(Duration::from_us(100)..=BY_MAX)
            .optional();
        let command = CommandConfig::read_optional(s);
        let at = s
            .field("at", "Time of the fault from the start of the block.")
            .at_most(WITHIN_MAX)
            .required();
        let lasts = read_time(
            s,
            "lasts",
            "Duration of a pause or a slow link, or the time until a killed process \
                is started again.",
        )
        .optional();
        if lasts.is_none() && pause.is_some() {
            s.error("lasts", "missing: expected how long the pause lasts");
        }
        if lasts.is_some() && (restart.is_some() || command.is_some()) {
            s.error("lasts", "only pause, kill and slow last: expected none");
        }
        if by.is_some() != slow.is_some() {
            s.error("by", "slow and by go together: expected both or neither");
        }
        let actions = [
            pause.map(|process| FaultAction::Pause { process }),
            restart.map(|process| FaultAction::Restart { process }),
            kill.map(|process| FaultAction::Kill { process }),
            slow.map(|link| FaultAction::Slow { link, by: by.unwrap_or_default() }),
            command.map(FaultAction::Run),
        ];
        let mut actions: Vec<FaultAction> = actions.into_iter().flatten().collect();
        if actions.len() != 1 {
            let count = actions.len();
            let text =
                format!("{count} actions: expected one of pause, restart, kill, slow and run");
            s.error("at", text);
        }
        // Without any there is an error, and this value, which names no process, is not used.
        let action = actions.pop().unwrap_or(FaultAction::Run(CommandConfig::of(Vec::new())));
        Self { at, action, lasts }
    }

    /// The affected process.
    pub(crate) fn process(&self) -> Option<&str> {
        match &self.action {
            FaultAction::Pause { process }
            | FaultAction::Restart { process }
            | FaultAction::Kill { process } => Some(process),
            FaultAction::Slow { .. } | FaultAction::Run(_) => None,
        }
    }

    /// The link that the fault delays.
    pub(crate) fn link(&self) -> Option<&str> {
        if let FaultAction::Slow { link, .. } = &self.action { Some(link) } else { None }
    }

    /// The end of the fault, from the start of the block on.
    pub(crate) fn ends(&self) -> Duration {
        self.at + self.lasts.unwrap_or_default()
    }
}
