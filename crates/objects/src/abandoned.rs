//! Files of a folder that somebody began to write and never finished.
//!
//! `object_store` writes a file under its name with `#` and a number, and gives it its name when it is whole. What a
//! process that was killed has left of one is not listed by it, so whoever removes by lists what no table needs would
//! leave it for ever.
//!
//! **When it hurts**: whoever needs more than [`AFTER`] between two parts of a file loses it, and is told when it is to
//! get its name.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A file to which nothing was written for so long is not being written any more.
const AFTER: Duration = Duration::from_hours(24);

/// Removes them from a folder and those below it; returns how many. It is `now`.
pub(crate) fn remove(folder: &Path, now: SystemTime) -> io::Result<usize> {
    let (mut removed, mut folders) = (0, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if is_unfinished(&entry) && is_old(&entry, now) {
                match fs::remove_file(entry.path()) {
                    Ok(()) => removed += 1,
                    // Another server of these tables was first.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(removed)
}

fn is_unfinished(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let suffix = name.to_str().and_then(|name| name.split_once('#')).map(|(_, suffix)| suffix);
    suffix.is_some_and(|suffix| {
        !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// One that got its name just now is not.
fn is_old(entry: &DirEntry, now: SystemTime) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age >= AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_nobody_writes_any_more_goes_and_all_else_stays() {
        let root = std::env::temp_dir().join(format!("curtail-abandoned-{}", std::process::id()));
        let folder = root.join("spans").join("day=2024-10-04");
        fs::create_dir_all(&folder).expect("a folder");
        let written = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 20_000);
        let names = ["one.parquet#1", "other.parquet#12", "one.parquet", "a#b.parquet", "a#"];
        for name in names {
            let file = File::create(folder.join(name)).expect("a file");
            let at = if name.ends_with("#12") { written + AFTER } else { written };
            file.set_modified(at).expect("it is ours");
        }
        let just_before = written + AFTER - Duration::from_secs(1);
        assert_eq!(remove(&root, just_before).expect("it is ours"), 0);
        assert_eq!(remove(&root, written + AFTER).expect("it is ours"), 1);
        let left: Vec<_> = names.iter().filter(|name| folder.join(name).exists()).collect();
        assert_eq!(left, [&names[1], &names[2], &names[3], &names[4]]);
        fs::remove_dir_all(root).expect("it is ours");
    }
}
