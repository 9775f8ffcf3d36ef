//! Types commands into a terminal (tmux) and reads its screen: what klock shows there that no pipe gets.
//!
//! needs: tmux, less, gcc

use std::{fs, io, path::Path};

use trace_format::{Event, EventKind, LockId, LockRow, TraceWriter};

#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "the tests of the command line use all of it")]
mod cli;
mod screen;
use crate::support::{self, arena::make_pipe, names, soon, until};
use screen::{LIMIT, Screen};

/// Writes a trace of 30 locks, of which each was waited for longer than the one before, and which lost no
/// event.
fn thirty_locks(directory: &Path) {
    let mut side = cli::side_rows();
    let lock = side.locks[0].clone();
    side.locks = (0..30)
        .map(|id| LockRow { id: LockId(id), name: Some(format!("lock_{id:02}")), ..lock.clone() })
        .collect();
    let path = directory.join("trace.parquet");
    let mut writer = TraceWriter::create(&path, true).unwrap();
    for id in 0..30 {
        for event in cli::one_wait() {
            let later_ns = 10_000 * i64::from(30 - id);
            let wait_ns = event.wait_ns.map(|ns| if ns > 0 { ns - later_ns } else { 0 });
            let begin_ns = if event.kind == EventKind::Wait { later_ns } else { 0 };
            let ts_ns = event.ts_ns + begin_ns + i64::from(id) * 5_000_000;
            writer.push(&Event { ts_ns, wait_ns, lock: Some(LockId(id)), ..event }).unwrap();
        }
    }
    let mut info = cli::run_info("0123456789abcdef0123456789abcdef");
    info.sources[0].limits = vec!["a first limit".to_owned(), "a second limit".to_owned()];
    writer.finish(&info, &side.stacks, &side.locks, &side.tasks).unwrap();
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn a_terminal_gets_twenty_rows_with_the_sort_column_marked_and_the_notes_folded() {
    let mut screen = Screen::start(200, 50);
    thirty_locks(screen.directory.path());
    let text = screen.run("klock report");
    let heading = text.lines().next().unwrap();
    assert!(heading.contains("wait_total▼") && heading.contains("pct"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("lock_")).collect();
    assert_eq!(rows.len(), 20, "{text}");
    assert!(rows[0].contains("lock_29") && rows[0].contains('%'), "{text}");
    assert!(text.contains("... 10 more rows; --all shows them"), "{text}");
    assert!(
        text.contains("none lost (2 notes: --notes shows them)") && !text.contains("a first limit"),
        "{text}"
    );
    assert!(text.ends_with("-0"), "{text}");
    let all = screen.run("klock report --all --notes");
    assert_eq!(all.lines().filter(|line| line.contains("lock_")).count(), 30, "{all}");
    assert!(all.contains("a first limit") && all.contains("a second limit"), "{all}");
    let by_name = screen.run("klock report -k name -n 3");
    assert!(by_name.contains("lock▲") && by_name.contains("... 27 more rows"), "{by_name}");
    let waits = screen.run("klock waits -n 2");
    let rows: Vec<&str> = waits.lines().filter(|line| line.contains("lock_")).collect();
    assert!(rows.len() == 2 && rows[0].contains("lock_29") && rows[1].contains("lock_28"), "{waits}");
    assert!(
        waits.contains("wait▼") && waits.contains("holder") && waits.contains("... 28 more rows"),
        "{waits}"
    );
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn no_table_is_wider_than_the_terminal_and_names_stand_beside_their_numbers() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/traces/shop.parquet");
    for columns in [60, 80, 100, 200] {
        let mut screen = Screen::start(columns, 60);
        for table in [
            "report",
            "report --by site",
            "blame",
            "blame --by task",
            "blame --chains",
            "blame --chains --by lock",
            "critical",
            "timeline --worst -k count",
            "report --by process",
            "waits",
            "holds",
            "events",
        ] {
            // The columns of these need some 70.
            if columns == 60 && ["holds", "events"].contains(&table) {
                continue;
            }
            screen.run(&format!("klock --no-pager {table} -n 5 {}", trace.display()));
            // Lines that the terminal has broken are joined.
            let text = screen.tmux(&["capture-pane", "-p", "-J"]);
            for line in text.lines().filter(|line| !line.starts_with('$')) {
                assert!(line.trim_end().chars().count() <= columns as usize, "{table} at {columns}:\n{text}");
            }
        }
        let report = screen.run(&format!("klock report -n 2 {}", trace.display()));
        let row = report.lines().find(|line| line.contains("recipes_lock")).unwrap();
        assert_eq!(row.contains("35.4 ms") || row.contains("14.5 ms"), columns >= 80, "{report}");
        let left_out = report.contains("more columns; --full or a wider terminal shows them");
        assert_eq!(left_out, columns < 200, "{report}");
        let full = screen.run(&format!("klock report -n 2 --full {}", trace.display()));
        assert!(!full.contains("more columns") && full.contains("hold"), "{full}");
    }
    // What tells rows apart stays, and names keep their lines of code.
    let mut screen = Screen::start(80, 60);
    for (table, words) in [
        ("blame --by state", ["state", "small_shop.c:76"]),
        ("report --by site", ["acquired at", "small_shop.c:76"]),
        ("waits -n 9", ["holder", "small_shop.c:76"]),
        ("holds -n 9", ["task", "small_shop.c:76"]),
        ("why -n 1", ["1. ", "small_shop.c:76"]),
        ("timeline -n 1", ["from", "waits"]),
    ] {
        let text = screen.run(&format!("klock --no-pager {table} {}", trace.display()));
        assert!(words.iter().all(|word| text.contains(word)), "{table}:\n{text}");
    }
    let mut screen = Screen::start(80, 24);
    thirty_locks(screen.directory.path());
    let small = screen.run("klock report");
    assert!(small.contains("... 14 more rows; --all shows them") && small.contains("trust"), "{small}");
    let sorted = screen.run("klock blame -k shares -n 3; klock timeline --worst -k count -n 3");
    assert!(sorted.lines().any(|line| line.contains("shares▼") && line.contains(" pct")), "{sorted}");
    assert!(sorted.lines().any(|line| line.contains("count▼") && line.contains(" pct")), "{sorted}");
    // The progress line does not overwrite what the program prints.
    let program = screen.run("klock record -q sh -c 'printf partial; sleep 1; echo ly'");
    assert!(program.contains("partially"), "{program}");
    let program = screen.run("klock record sh -c 'printf partial; sleep 1; echo ly'");
    assert!(program.contains("partially") && !program.contains("recording "), "{program}");
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn a_pipe_gets_the_rows_alone() {
    let mut screen = Screen::start(200, 50);
    thirty_locks(screen.directory.path());
    screen.run("klock report > rows 2> notes");
    let read = |name: &str| fs::read_to_string(screen.directory.path().join(name)).unwrap();
    let (rows, notes) = (read("rows"), read("notes"));
    assert_eq!(rows.lines().count(), 31, "{rows}");
    assert!(!rows.contains(['▼', '\x1b']) && !rows.contains("trust") && !rows.contains(" pct "), "{rows}");
    assert_eq!(notes.lines().count(), 1, "{notes}");
    assert!(notes.starts_with("trust: 150 events"), "{notes}");
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn output_that_is_longer_than_the_screen_is_shown_in_a_pager() {
    let mut screen = Screen::start(80, 24);
    thirty_locks(screen.directory.path());
    let marker = screen.begin("klock report --all");
    let first = screen.until("\n:");
    assert!(first.contains("total▼") && first.contains("lock_29"), "{first}");
    assert!(first.lines().all(|line| line.chars().count() <= 80), "{first}");
    assert!(!first.contains(&marker), "{first}");
    screen.tmux(&["send-keys", "q"]);
    assert!(screen.end(&marker).ends_with("-0"));
    // Ctrl-C is for the pager, which goes on.
    let marker = screen.begin("klock report --all");
    screen.until("\n:");
    screen.tmux(&["send-keys", "C-c"]);
    screen.press_until("G", "(END)");
    screen.tmux(&["send-keys", "q"]);
    assert!(screen.end(&marker).ends_with("-0"));
    for (line, rest) in [
        ("klock report -n 3", "lock_29"),
        ("klock --no-pager report", "trust"),
        ("PAGER=cat klock report", "trust"),
        ("PAGER='wc -l' klock report --all", "3"),
        ("KLOCK_PAGER='head -2' PAGER=false klock report --all", "wait_total"),
        ("klock events | tail -1", "lock_29"),
    ] {
        let text = screen.run(line);
        assert!(text.contains(rest) && text.ends_with("-0") && !text.contains("klock:"), "{line}: {text}");
    }
    // The terminal breaks the line within a word.
    let missing = screen.run("PAGER=no-such-pager klock report --all").replace('\n', "");
    assert!(
        missing.contains("cannot run the pager 'no-such-pager'") && missing.contains("--no-pager"),
        "{missing}"
    );
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn colours_are_for_terminals_and_can_be_turned_off() {
    let mut screen = Screen::start(200, 50);
    thirty_locks(screen.directory.path());
    let mut is_bold = |line: &str| {
        screen.run(line);
        screen
            .tmux(&["capture-pane", "-p", "-e"])
            .lines()
            .any(|line| line.contains("wait_total") && line.contains("\x1b[1m"))
    };
    assert!(is_bold("klock report"));
    assert!(!is_bold("NO_COLOR=1 klock report"));
    assert!(!is_bold("klock report --color never"));
    assert!(!is_bold("klock report | cat"));
    assert!(is_bold("NO_COLOR=1 klock report --color always"));
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn long_work_shows_what_is_left_on_one_line_and_names_the_file_at_its_end() {
    let mut screen = Screen::start(60, 24);
    let path = screen.directory.path().join("trace.parquet");
    let side = cli::side_rows();
    let mut writer = TraceWriter::create(&path, true).unwrap();
    for round in 0..40_000 {
        for event in cli::one_wait() {
            writer.push(&Event { ts_ns: event.ts_ns + round * 3_000_000, ..event }).unwrap();
        }
        if round % 2_000 == 0 {
            writer.end_row_group().unwrap();
        }
    }
    let info = cli::run_info("0123456789abcdef0123456789abcdef");
    writer.finish(&info, &side.stacks, &side.locks, &side.tasks).unwrap();
    // Into a pipe that is not read, the export goes on until its progress was seen.
    let pipe = path.with_file_name("pipe");
    make_pipe(&pipe);
    let both_ends = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let marker = screen.begin("klock export --format csv -o pipe");
    let busy = screen.until(" of 200,000 events");
    let lines: Vec<&str> = busy.lines().filter(|line| line.contains("200,000")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("reading "), "{busy}");
    let mut reader = fs::File::open(&pipe).unwrap();
    drop(both_ends);
    io::copy(&mut reader, &mut io::sink()).unwrap();
    let done = screen.end(&marker);
    assert!(done.ends_with("-0") && !done.contains(" events"), "{done}");
    let done = screen.run("klock export --format csv -o all.csv");
    assert!(done.contains("wrote all.csv") && !done.contains(" events"), "{done}");
    // Ctrl-C leaves nothing behind, unless it comes after the end.
    let directory = screen.directory.path().to_owned();
    let is_writing = || names(&directory).iter().any(|name| name.ends_with(".tmp"));
    let second = directory.join("second.csv");
    until("Ctrl-C before the end of an export", || {
        screen.begin("klock export --format csv -o second.csv");
        soon(LIMIT, "the export", || is_writing() || second.exists());
        screen.tmux(&["send-keys", "C-c"]);
        screen.until("$");
        soon(LIMIT, "the end of klock", || !is_writing());
        fs::remove_file(&second).is_err().then_some(())
    });
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn a_recording_ends_with_the_next_steps_for_a_reader_of_its_screen() {
    let program = support::fixture("known_counts");
    let mut screen = Screen::start(80, 24);
    let text = screen.run(&format!("klock record {} 4 1000 5 > /dev/null", program.display()));
    for part in ["[ klock record: ", "Next: klock report", "klock blame", "klock plot"] {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
    let second = screen.run(&format!("klock record {} 4 1000 5 > /dev/null", program.display()));
    assert!(second.contains("klock diff trace.old.parquet trace.parquet"), "{second}");
    let report = screen.run("klock report -n 2");
    assert!(report.contains("total▼"), "{report}");
    screen.run("klock record true 2> summary");
    let summary = fs::read_to_string(screen.directory.path().join("summary")).unwrap();
    assert!(
        !summary.contains("Next:") && !summary.contains('\x1b') && !summary.contains("recording"),
        "{summary}"
    );
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn help_is_as_wide_as_the_terminal_and_goes_through_the_pager() {
    for columns in [60, 80, 100, 200] {
        let mut screen = Screen::start(columns, 24);
        let marker = screen.begin("klock report --help");
        let first = screen.until("\n:");
        assert!(first.contains("Usage: klock report"), "{first}");
        screen.tmux(&["send-keys", "q"]);
        screen.end(&marker);
    }
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn an_error_is_broken_between_words() {
    let mut screen = Screen::start(60, 24);
    let shown = screen.run("klock report there/is/no/such/trace.parquet; klock record -p redis-server true");
    let answer = "`pgrep -d, NAME` finds those of a name";
    let unbroken = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unbroken.contains(answer), "{shown}");
    assert!(
        shown.lines().filter(|line| line.starts_with("  ")).count() >= 2,
        "further lines are indented: {shown}"
    );
}

#[test]
#[ignore = "needs tmux; run by cargo xtask test"]
fn rows_of_zeros_do_not_fill_the_screen() {
    let mut screen = Screen::start(120, 50);
    let path = screen.directory.path().join("trace.parquet");
    let mut side = cli::side_rows();
    let lock = side.locks[0].clone();
    side.locks = (0..30)
        .map(|id| LockRow { id: LockId(id), name: Some(format!("lock_{id:02}")), ..lock.clone() })
        .collect();
    let mut writer = TraceWriter::create(&path, true).unwrap();
    for id in 0..30 {
        let events = cli::one_wait().into_iter();
        let no_wait = events.filter(|event| id < 2 || event.task == Some(trace_format::TaskId(0)));
        for event in no_wait {
            let ts_ns = event.ts_ns + i64::from(id) * 5_000_000;
            writer.push(&Event { ts_ns, lock: Some(LockId(id)), ..event }).unwrap();
        }
    }
    let info = cli::run_info("0123456789abcdef0123456789abcdef");
    writer.finish(&info, &side.stacks, &side.locks, &side.tasks).unwrap();
    let shown = |text: &str| text.lines().filter(|line| line.contains("lock_")).count();
    let report = screen.run("klock report");
    assert_eq!(shown(&report), 2, "{report}");
    assert!(report.contains("... 28 more rows with wait_total 0; --all shows them"), "{report}");
    assert_eq!(shown(&screen.run("klock report --all")), 30);
    assert_eq!(shown(&screen.run("klock report -n 5")), 5);
}
