use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of its own for a test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("curtail-files-{}-{nth}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn a_file_holds_what_was_appended_and_not_cut() {
    let folder = Folder::new();
    let files = Directory::open(&folder.0).expect("a folder");
    let mut file = files.create("one").expect("a file");
    // Parts that end anywhere, and more of them than one write takes.
    let many: Vec<Vec<u8>> = (0..1_024_u32).map(|nth| nth.to_le_bytes().repeat(600)).collect();
    let mut parts: Vec<_> = many.iter().map(|part| IoSlice::new(part)).collect();
    parts.push(IoSlice::new(b""));
    let block = [7; BLOCK_BYTES];
    file.append(&mut parts).expect("written");
    file.append(&mut [IoSlice::new(&block[..5]), IoSlice::new(&block[5..])]).expect("written");
    file.sync().expect("synced");
    let whole = [many.concat().as_slice(), &block].concat();
    assert!(whole.len() > 2 * WRITE_BYTES);
    assert!(files.read("one").expect("read") == whole);
    file.cut(BLOCK_BYTES as u64).expect("cut");
    file.append(&mut [IoSlice::new(&block)]).expect("written");
    assert!(files.read("one").expect("read") == [&whole[..BLOCK_BYTES], &block].concat());
}

#[test]
fn files_are_made_once_listed_in_order_and_removed() {
    let folder = Folder::new();
    let files = Directory::open(&folder.0).expect("a folder");
    for name in ["b", "a", "c"] {
        files.create(name).expect("a file");
    }
    let again = files.create("a").expect_err("it is there");
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(files.list().expect("a folder"), ["a", "b", "c"]);
    files.remove("b").expect("removed");
    assert_eq!(files.list().expect("a folder"), ["a", "c"]);
    assert_eq!(files.remove("b").expect_err("gone").kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_folder_is_used_by_one_at_a_time() {
    let folder = Folder::new();
    let first = Directory::open(&folder.0).expect("a folder");
    let second = Directory::open(&folder.0).expect_err("the first has it");
    assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
    let message = format!("process {} uses it", std::process::id());
    assert!(second.to_string().contains(&message), "{second}");
    drop(first);
    Directory::open(&folder.0).expect("it is free again");
}

#[test]
fn a_folder_on_a_full_disk_is_opened() {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).expect("a folder");
    std::os::unix::fs::symlink("/dev/full", folder.0.join(LOCK)).expect("a link");
    Directory::open(&folder.0).expect("only the ID is not written");
}
