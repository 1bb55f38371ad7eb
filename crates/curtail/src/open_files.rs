//! Open files: as many as the system allows, which is often far more than a process gets by default.

use std::io;

/// Raises the limit of open files as far as the system allows.
///
/// # Errors
/// When that is less than `needed`.
pub(crate) fn allow(needed: u64) -> io::Result<()> {
    let allowed = rlimit::increase_nofile_limit(u64::MAX)?;
    if allowed < needed {
        let what = format!("{needed} open files are needed, {allowed} are allowed: see ulimit -Hn");
        return Err(io::Error::other(what));
    }
    Ok(())
}
