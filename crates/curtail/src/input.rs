//! The input files of commands; `-` is standard input.
//!
//! **Limits**: a configuration has at most [`curtail_config::TEXT_BYTES_MAX`] bytes, and a file of values that it names
//! at most [`curtail_config::FILE_BYTES_MAX`].

use anyhow::Context as _;
use curtail_config::ValueFiles;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

const STANDARD_INPUT: &str = "<stdin>";

/// The first bytes of files that are compressed with gzip and zstd.
const GZIP: &[u8] = &[0x1F, 0x8B];
pub(crate) const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];

const BUFFER_BYTES: usize = 256 << 10;

pub(crate) fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

pub(crate) fn name(file: &Path) -> String {
    if is_stdin(file) { STANDARD_INPUT.to_owned() } else { file.display().to_string() }
}

/// Opens a file or standard input; returns its name for messages, and its reader.
pub(crate) fn open(file: &Path) -> anyhow::Result<(String, Box<dyn Read>)> {
    let name = name(file);
    let opened: Box<dyn Read> =
        if is_stdin(file) { Box::new(io::stdin().lock()) } else { Box::new(open_file(file)?) };
    Ok((name, opened))
}

/// Opens a file that is no directory.
pub(crate) fn open_file(file: &Path) -> anyhow::Result<File> {
    let open = || {
        let opened = File::open(file)?;
        if opened.metadata()?.is_dir() {
            let what = "expected a file, found a directory";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, what));
        }
        Ok(opened)
    };
    open().with_context(|| name(file))
}

/// Reads a configuration; returns its name for messages and its text.
pub(crate) fn text(file: &Path) -> anyhow::Result<(String, String)> {
    let (name, input) = open(file)?;
    let bytes = curtail_config::read_bytes(input).with_context(|| name.clone())?;
    let text = curtail_config::text_of(&name, bytes)?;
    Ok((name, text))
}

/// The files of values that a configuration names, relative to its folder. Those of standard input are relative to the
/// working directory.
#[derive(Debug)]
pub(crate) struct FilesBeside(PathBuf);

impl FilesBeside {
    pub(crate) fn new(configuration: &Path) -> Self {
        Self(configuration.parent().map_or_else(PathBuf::new, Path::to_owned))
    }
}

impl ValueFiles for FilesBeside {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        curtail_config::read_file_bytes(File::open(self.0.join(path))?)
    }
}

/// Decompresses input if its first bytes are those of gzip or zstd.
pub(crate) fn decompress<'r>(mut raw: impl Read + 'r) -> io::Result<Box<dyn BufRead + 'r>> {
    let mut first = Vec::new();
    raw.by_ref().take(ZSTD.len() as u64).read_to_end(&mut first)?;
    let (is_gzip, is_zstd) = (first.starts_with(GZIP), first.starts_with(ZSTD));
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(first).chain(raw));
    Ok(if is_gzip {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole)))
    } else if is_zstd {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, zstd::Decoder::with_buffer(whole)?))
    } else {
        Box::new(whole)
    })
}
