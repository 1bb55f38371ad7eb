//! Removes unfinished files.
//!
//! `object_store` writes a file under its name with `#` and a number, and renames the complete file. If a process is
//! killed before that, `object_store` does not list the file, so a cleanup based on its lists does not find the file.
//!
//! **When it hurts**: a writer that pauses for more than [`AFTER`] between two writes loses its file, and its rename
//! fails.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The time without writes after which a file is abandoned.
const AFTER: Duration = Duration::from_hours(24);

/// Removes abandoned files below a folder; returns the number of removed files.
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

fn is_old(entry: &DirEntry, now: SystemTime) -> bool {
    // A file that was renamed meanwhile has no metadata.
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age >= AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_abandoned_files_are_removed() {
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
