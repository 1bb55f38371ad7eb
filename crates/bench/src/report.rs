//! Reports of a run: a table for people, one page with plots, and files for programs and other tools.

pub mod figures;
pub mod file;
mod hdr;
#[cfg(test)]
mod sample;
