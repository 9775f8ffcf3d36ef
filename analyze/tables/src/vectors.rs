//! The vectors of docs/internals/vectors.txt: each is a small trace, with commands and some of the values
//! that they print.

use std::collections::BTreeMap;

use output::Format::{Csv, Json};

use crate::{
    blame, report,
    testing::{Parts, written},
    whatif::{self, ChangeKind, WhatIfOptions, whatif},
    why::{WhyOptions, why},
};

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/vectors.txt"));

/// A command, and the lines with its values.
type Command<'a> = (&'a str, Vec<&'a str>);

/// Returns the subject, the trace and the commands of each vector.
fn vectors() -> impl Iterator<Item = (&'static str, String, Vec<Command<'static>>)> {
    PAGE.split("\n= ").skip(1).map(|text| {
        let (subject, text) = text.split_once('\n').unwrap();
        let (trace, commands) = text.split_once("\n$ ").unwrap();
        let command = |text: &'static str| {
            let mut lines = text.lines().filter(|line| !line.is_empty());
            (lines.next().unwrap(), lines.collect())
        };
        (subject, trace.to_owned(), commands.split("\n$ ").map(command).collect())
    })
}

/// Returns what a command prints of a trace, as CSV and as JSON.
fn run(command: &str, parts: &Parts, group_rows: usize) -> (String, String) {
    let test = parts.write_in_groups(group_rows);
    let traces = std::slice::from_ref(&test.trace);
    let words: Vec<&str> = command.split(' ').collect();
    let by = words.iter().position(|word| *word == "--by").map(|at| words[at + 1]);
    macro_rules! both {
        ($table:expr) => {{
            let table = $table.unwrap();
            (written(&table, Csv, None), written(&table, Json, None))
        }};
    }
    match words[0] {
        "report" => {
            both!(report::report(
                traces,
                &report::Options { by: by.unwrap().parse().unwrap(), ..Default::default() }
            ))
        }
        "blame" => {
            let by = by.map_or(blame::By::State, |by| by.parse().unwrap());
            let options = blame::Options { by, ..blame::Options::default() };
            both!(if words.contains(&"--chains") {
                blame::chains(traces, &options)
            } else {
                blame::blame(traces, &options)
            })
        }
        "why" => both!(why(traces, &WhyOptions::default())),
        "whatif" => {
            let alternatives = vec![vec![ChangeKind::Remove.parse(words[2]).unwrap()]];
            let events = whatif::EVENTS;
            both!(whatif(
                traces,
                &WhatIfOptions { alternatives, events, anyway: true, ..WhatIfOptions::default() }
            ))
        }
        _ => panic!("no vector uses '{command}'"),
    }
}

/// Returns the rows of CSV, by the name of the column. Texts of vectors have no commas, but sentences do.
fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let cells = |line: &str| {
        let (mut cells, mut quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                letter => cells.last_mut().unwrap().push(letter),
            }
        }
        cells
    };
    let mut lines = csv.lines();
    let head = cells(lines.next().unwrap());
    lines.map(|line| head.iter().cloned().zip(cells(line)).collect()).collect()
}

#[test]
fn every_vector_of_the_documentation_has_its_values_wherever_row_groups_end() {
    let mut count = 0;
    for (subject, trace, commands) in vectors() {
        let parts = Parts::parse(&trace);
        for (command, expected) in commands {
            for group_rows in [usize::MAX, 1, 2] {
                let (csv, json) = run(command, &parts, group_rows);
                let json: serde_json::Value = serde_json::from_str(&json).unwrap();
                for line in &expected {
                    let has = |row: &BTreeMap<String, String>, pair: &str| match pair.split_once('~') {
                        Some((column, part)) => row[column].contains(part),
                        None => {
                            let (column, value) = pair.split_once('=').unwrap();
                            row.get(column).unwrap_or_else(|| panic!("no column {column} in {csv}")) == value
                        }
                    };
                    let fits = match line.strip_prefix("trust ") {
                        Some(pairs) => pairs.split(' ').all(|pair| {
                            let (field, value) = pair.split_once('=').unwrap();
                            json["trust"][field].as_i64() == value.parse().ok()
                        }),
                        None => rows(&csv).iter().any(|row| line.split(' ').all(|pair| has(row, pair))),
                    };
                    assert!(fits, "{subject}: {command} in groups of {group_rows} lacks '{line}':\n{csv}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 60, "the page has vectors");
}
