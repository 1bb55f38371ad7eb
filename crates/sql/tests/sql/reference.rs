//! The page of the program is what it says today.
//!
//! `UPDATE_EXPECT=1 cargo test -p curtail-sql` writes it anew.

use expect_test::expect_file;
use std::process::Command;

const HEAD: &str = "\
# curtail-sql

Generated from the program's own help; a test keeps it fresh. The queries are described in
[SQL over the store](../concepts/sql.md). `curtail sql` hands over to it.

| exit code | meaning |
|---|---|
| 0 | success; also when the reader closes the output early |
| 2 | the query: it is not SQL, it would change something, or it exceeds its memory or time |
| 3 | environment: no tables, or a file that cannot be read |
| 4 | a bug of curtail |
";

#[test]
fn the_page_of_the_program_is_fresh() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_curtail-sql"));
    let output = program.arg("--help").output().expect("it was built for this test");
    let help = String::from_utf8(output.stdout).expect("output is text");
    let page = format!("{HEAD}\n```text\n{}\n```\n", help.trim_end());
    expect_file!["../../../../docs/reference/curtail-sql.md"].assert_eq(&page);
}
