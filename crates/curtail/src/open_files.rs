//! The limit of open files: systems often allow far more than the default.

use std::io;

/// Raises the limit of open files as far as the system allows.
pub(crate) fn allow(needed: u64) -> io::Result<()> {
    let allowed = rlimit::increase_nofile_limit(u64::MAX)?;
    if allowed < needed {
        let what = format!("{needed} open files are needed, {allowed} are allowed: see ulimit -Hn");
        return Err(io::Error::other(what));
    }
    Ok(())
}
