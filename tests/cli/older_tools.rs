//! Checks docs/older-tools.csv: a feature of an older tool, the command that shows it, a trace, and words of
//! the output.

use std::{env, fs, process::Command};

use super::{
    common::{csv_rows, root},
    support::{Folder, Outcome},
};

#[test]
fn every_command_of_the_table_of_older_tools_shows_what_the_table_says() {
    let folder = Folder::new();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_klock")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), env::var("PATH").unwrap_or_default());
    let rows = csv_rows(&fs::read_to_string(root().join("docs/older-tools.csv")).unwrap());
    for row in &rows {
        let [command, trace, shows] = ["command", "trace", "shows"].map(|column| row[column].as_str());
        if command.is_empty() {
            assert!(shows.ends_with('.'), "neither a command nor a reason: {row:?}");
            for file in shows.split([' ', '`']).filter(|word| word.starts_with("record/")) {
                assert!(root().join(file).is_file(), "no such file: {row:?}");
            }
            continue;
        }
        // A command that records is only parsed: tests/live/filters/older_tools.rs runs it.
        let last = match trace {
            "" => "--help".into(),
            trace => root().join("fixtures/traces").join(format!("{trace}.parquet")),
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{command} \"$0\"")]).arg(last);
        let output = shell.current_dir(folder.path("")).env("PATH", &path).output().unwrap();
        let Outcome { code, stdout, stderr } = Outcome::from(output);
        assert_eq!(code, Some(0), "{command}: {stderr}");
        assert!(stdout.contains(shows) || stderr.contains(shows), "{row:?}: {stdout}{stderr}");
    }
    assert!(rows.len() > 100, "{}", rows.len());
}
