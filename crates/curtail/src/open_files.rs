//! The limit of open files of this process, which a system often allows to raise far above its default.

use std::io;

/// Raises the limit of open files as far as the system allows; fails if fewer than `needed` are allowed.
pub(crate) fn allow(needed: u64) -> io::Result<()> {
    let allowed = rlimit::increase_nofile_limit(u64::MAX)?;
    if allowed < needed {
        let what = format!("{needed} open files are needed, {allowed} are allowed: see ulimit -Hn");
        return Err(io::Error::other(what));
    }
    Ok(())
}
