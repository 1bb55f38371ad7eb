//! Reports of a run: a table for people, one page with plots, and files for programs and other tools.

pub mod difference;
pub mod figures;
pub mod file;
mod hdr;
pub mod merge;
#[cfg(test)]
mod sample;
pub mod table;
mod text;
