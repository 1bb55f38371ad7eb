//! The keys of `restart`: how a new process takes over from the one that serves.

use curtail_config::Section;
use curtail_units::Duration;
use std::path::PathBuf;

/// Maximum length of the path of a Unix socket (`sun_path` of `unix(7)`), with room for the suffix of the new process.
const PATH_BYTES_MAX: usize = 90;

/// The restart without interruption.
#[derive(Clone, Debug, PartialEq)]
pub struct RestartConfig {
    /// The Unix socket on which this process gives its listeners to the next one.
    pub socket: PathBuf,
    /// Maximum time for the connections of this process to end, after the next one has taken over.
    pub drain: Duration,
}

pub(super) fn read(s: &mut Section<'_>) -> RestartConfig {
    let socket: PathBuf = s
        .field(
            "socket",
            "Unix socket on which a proxy gives its listeners to the next proxy with the same path. The proxy creates it, for its own user only.",
        )
        .required();
    let len = socket.as_os_str().len();
    if len > PATH_BYTES_MAX {
        s.value_error(
            "socket",
            format!("{len} bytes: expected at most {PATH_BYTES_MAX}, with room for a process ID"),
        );
    } else if len > 0 && socket.is_relative() {
        let shown = socket.display();
        s.value_error("socket", format!("{shown} is relative: expected an absolute path"));
    }
    let drain = s
        .field(
            "drain",
            "Maximum time for the connections of the old proxy to end, after the new one has taken over. Then `limits.drain` applies.",
        )
        .default(Duration::from_secs(600));
    RestartConfig { socket, drain }
}
