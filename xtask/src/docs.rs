//! The generated parts of the documentation: the tables of columns in `docs/trace-format.md`, and the
//! samples of klock's output.
//!
//! A sample stands between `<!-- klock ... -->` and `<!-- /klock ... -->`: the marker is the command line
//! that prints it, run by a shell in the root of the repository. A `klock plot ... -o FILE.svg` draws the
//! picture that follows it.

use std::{env, ffi::OsString, fs, path::Path};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    process::{Run, root, target},
    table,
};

/// The documents with samples of klock's output.
const WITH_SAMPLES: [&str; 6] = [
    "README.md",
    "docs/first-problem.md",
    "docs/reading-a-report.md",
    "docs/other-tables.md",
    "docs/lock-order.md",
    "docs/pictures.md",
];

/// Writes the generated parts, or compares them. The samples come from the given klock, or from a debug
/// build.
pub(crate) fn run(check: bool, klock: Option<&Path>) -> Result<()> {
    let mut stale = Vec::new();
    if update("docs/trace-format.md", check, trace_format_parts)? {
        stale.push("docs/trace-format.md".to_owned());
    }
    check_named_tests()?;
    let path = path_with(klock)?;
    for document in WITH_SAMPLES {
        if update(document, check, |text| samples(document, text, &path))? {
            stale.push(document.to_owned());
        }
        let text = fs::read_to_string(root().join(document)).with_context(|| document.to_owned())?;
        for line in command_lines(&text) {
            if let Some(file) = picture_of(line)
                && update_picture(line, file, check, &path)?
            {
                stale.push(file.to_owned());
            }
        }
    }
    if stale.is_empty() {
        println!("the generated parts of the documentation are up to date");
    } else if check {
        bail!("out of date: {}; run `cargo xtask docs`", stale.join(", "));
    } else {
        println!("written: {}", stale.join(", "));
    }
    Ok(())
}

/// The document that names the test of each attack.
const ATTACKS: &str = "docs/security.md";

/// Checks that each row of an attack names a test, and that each named test exists in `tests/live/`,
/// `tests/cli/` or `record-preload/tests/`.
fn check_named_tests() -> Result<()> {
    let text = fs::read_to_string(root().join(ATTACKS)).with_context(|| ATTACKS.to_owned())?;
    let mut sources = String::new();
    for directory in ["tests/live", "tests/cli", "record-preload/tests"] {
        for file in fs::read_dir(root().join(directory))? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            }
        }
    }
    let wrong = rows_without_test(&text, &sources);
    ensure!(wrong.is_empty(), "{ATTACKS} names no existing test: {}", wrong.join("; "));
    Ok(())
}

/// Returns the rows of tables whose last column is `test` that name no test, or one that is not in `sources`.
fn rows_without_test<'a>(text: &'a str, sources: &str) -> Vec<&'a str> {
    let mut names_tests = false;
    let mut wrong = Vec::new();
    for line in text.lines() {
        let Some((_, last)) = line.trim_end().trim_end_matches('|').rsplit_once('|') else {
            names_tests = false;
            continue;
        };
        if last.trim() == "test" {
            names_tests = true;
        } else if names_tests && !line.starts_with("|---") {
            let exists = |name: &str| {
                // A test is a function, or is named in a macro.
                [format!("fn {name}("), format!("    {name}(")].iter().any(|text| sources.contains(text))
            };
            if !last.split(',').map(str::trim).all(|name| !name.is_empty() && exists(name)) {
                wrong.push(line);
            }
        }
    }
    wrong
}

/// A generated part: the name of its marker, and its text.
type Part = (String, String);

/// Brings the generated parts of one document up to date, on disk unless `check`. Returns whether any was
/// stale.
fn update(name: &str, check: bool, parts: impl Fn(&str) -> Result<Vec<Part>>) -> Result<bool> {
    let path = root().join(name);
    let found = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut wanted = found.clone();
    for (marker, part) in parts(&found).with_context(|| name.to_owned())? {
        wanted = table::with_part(&wanted, &marker, &part).with_context(|| name.to_owned())?;
    }
    write(&path, &wanted, check)
}

/// Brings a file up to date unless `check`. Returns whether it was stale.
fn write(path: &Path, wanted: &str, check: bool) -> Result<bool> {
    let is_stale = fs::read_to_string(path).unwrap_or_default() != wanted;
    if is_stale && !check {
        fs::write(path, wanted).with_context(|| path.display().to_string())?;
    }
    Ok(is_stale)
}

/// The tables of columns, from the schema.
fn trace_format_parts(_: &str) -> Result<Vec<Part>> {
    Ok(vec![("columns".to_owned(), trace_format::schema::markdown())])
}

/// The output of each command line that `text` has a marker for.
fn samples(document: &str, text: &str, path: &OsString) -> Result<Vec<Part>> {
    command_lines(text)
        .map(|line| {
            if let Some(file) = picture_of(line) {
                return Ok((line.to_owned(), picture_part(document, line, file)));
            }
            let output = Run::new("sh", &["-c", line]).env("PATH", path).read()?;
            let output = output.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            Ok((line.to_owned(), format!("```\n$ {line}\n{}\n```", output.trim_end())))
        })
        .collect()
}

/// The file that a command line draws, if it is a `klock plot` with `-o` at its end.
fn picture_of(line: &str) -> Option<&str> {
    let (_, file) = line.strip_prefix("klock plot ")?.rsplit_once(" -o ")?;
    file.ends_with(".svg").then_some(file)
}

/// The command line and its picture, with the file as `document` refers to it.
fn picture_part(document: &str, line: &str, file: &str) -> String {
    let directory = document.rfind('/').map_or("", |at| &document[..=at]);
    let name = file.strip_prefix(directory).unwrap_or(file);
    let words = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().replace('-', " ");
    format!("```\n{line}\n```\n\n![{words}]({name})")
}

/// Draws a picture again, and writes it unless `check`. Returns whether it has changed.
fn update_picture(line: &str, file: &str, check: bool, path: &OsString) -> Result<bool> {
    let to_stdout = line.replace(&format!(" -o {file}"), " -o -");
    let drawn = Run::new("sh", &["-c", &to_stdout]).env("PATH", path).read()?;
    write(&root().join(file), &format!("{}\n", drawn.trim_end()), check)
}

/// The command lines of the opening markers, in their order.
fn command_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"))
        .filter(|line| line.starts_with("klock "))
}

/// Returns a PATH on which the given klock, or a debug build of it, comes first.
fn path_with(klock: Option<&Path>) -> Result<OsString> {
    let directory = match klock.and_then(Path::parent) {
        Some(directory) => directory.to_owned(),
        None => {
            Run::cargo(&["build", "--quiet", "--package", "klock"]).must()?;
            target().join("debug")
        }
    };
    let rest = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths([directory].into_iter().chain(env::split_paths(&rest)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_attacks_without_an_existing_test_are_found() {
        let text = "| attack | klock | test |\n|---|---|---|\n| a | b | first, second |\n| a | b | third |\n| a | b | |\n\n\
                    | question | section |\n| a | b |\n";
        let sources = "fn first() {}\nattacks! {\n    second(\"idle\", 30, false) no_region;\n}";
        assert_eq!(rows_without_test(text, sources), ["| a | b | third |", "| a | b | |"]);
    }

    #[test]
    fn a_command_line_that_draws_a_file_shows_itself_and_its_picture() {
        let line = "klock plot a.parquet --blame -o docs/pictures/a-blame.svg";
        assert_eq!(picture_of(line), Some("docs/pictures/a-blame.svg"));
        assert_eq!(picture_of("klock plot a.parquet"), None);
        let part = picture_part("docs/pictures.md", line, "docs/pictures/a-blame.svg");
        assert_eq!(part, format!("```\n{line}\n```\n\n![a blame](pictures/a-blame.svg)"));
        let part = picture_part("README.md", line, "docs/demo.svg");
        assert!(part.ends_with("![demo](docs/demo.svg)"), "{part}");
    }

    #[test]
    fn a_marker_that_starts_with_klock_is_a_command_line() {
        let text = "<!-- klock info x -->\n\n<!-- /klock info x -->\n<!-- speed -->\nsee <!-- klock y -->\n";
        assert_eq!(command_lines(text).collect::<Vec<_>>(), ["klock info x"]);
    }
}
