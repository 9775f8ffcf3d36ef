//! Checks what leads a new user to the answer: help, version, completions and man pages, rows that are easy
//! to choose.

use crate::{
    shown_commands,
    support::{Folder, one_wait, write_trace},
};

#[test]
fn the_version_names_the_commit_the_parts_and_the_format_of_traces() {
    let folder = Folder::new();
    let version = folder.klock(&["--version"]);
    let lines: Vec<&str> = version.succeeds().lines().collect();
    assert!(lines[0].starts_with("klock 0.") && lines[0].ends_with(')'), "{lines:?}");
    assert_eq!(lines[1..], ["features: record, analyze", "trace format: 1.6"]);
    assert_eq!(folder.klock(&["-V"]).succeeds().lines().count(), 1);
}

#[test]
fn completions_and_man_pages_know_every_command_and_option() {
    let folder = Folder::new();
    for (shell, part) in
        [("bash", "complete -F _klock"), ("zsh", "#compdef klock"), ("fish", "complete -c klock")]
    {
        let script = folder.klock(&["completions", shell]);
        for word in [part, "report", "min-wait", "exclude-comm"] {
            assert!(script.succeeds().contains(word), "no {word} for {shell}");
        }
    }
    let bash = std::process::Command::new("bash")
        .args(["-n", "-c", folder.klock(&["completions", "bash"]).succeeds()])
        .status();
    assert!(bash.unwrap().success());
    let page = folder.klock(&["man", "analyze", "report"]);
    for word in [".TH klock-report 1", "wait_caused", "min\\-wait"] {
        assert!(page.succeeds().contains(word), "no {word} in {}", page.stdout);
    }
    std::fs::create_dir(folder.path("man1")).unwrap();
    folder.klock(&["man", "-o", "man1"]).succeeds();
    for name in ["klock.1", "klock-record.1", "klock-blame.1"] {
        assert!(folder.path("man1").join(name).exists(), "no {name}");
    }
    folder.klock(&["man", "-o", "man1"]).succeeds();
    assert!(!folder.path("man1").join("klock.old.1").exists());
    folder.klock(&["man", "reprot"]).fails(2, &["invalid command 'reprot'", "record"]);
}

#[test]
fn every_example_of_a_help_text_runs_as_it_stands() {
    let folder = Folder::new().with_trace(&one_wait());
    let others = [
        "busy", "server", "old", "new", "before", "after", "base-1", "base-2", "new-1", "new-2", "web-1",
        "web-2",
    ];
    for (id, name) in others.iter().enumerate() {
        write_trace(&folder.path(&format!("{name}.parquet")), &format!("{id:032x}"), &one_wait());
    }
    std::fs::write(folder.path("requests.csv"), "10,0,3000000\n").unwrap();
    let names = [
        "report", "why", "blame", "timeline", "hist", "order", "offcpu", "critical", "whatif", "diff",
        "events", "waits", "holds", "plot", "html", "export", "rollup",
    ];
    let mut count = 0;
    for name in names {
        let help = folder.klock(&[name, "--help"]);
        for command in shown_commands::in_help(help.succeeds()) {
            if command.starts_with("klock record") || command.contains("version=1.parquet") {
                continue;
            }
            count += 1;
            let script = format!("export PATH=\"$1\":$PATH; {}", command.split('|').next().unwrap());
            let klock = std::path::Path::new(env!("CARGO_BIN_EXE_klock"));
            let output = std::process::Command::new("sh")
                .args(["-c", &script, "sh", klock.parent().unwrap().to_str().unwrap()])
                .current_dir(folder.path(""))
                .output()
                .unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            // Nothing was found, or it was not recorded; a condition may hold.
            assert!(matches!(output.status.code(), Some(0 | 1 | 3 | 6)), "{command}: {stderr}");
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn a_pipe_gets_all_rows_and_nothing_else() {
    let folder = Folder::new().with_trace(&one_wait());
    for table in [
        "report",
        "blame",
        "blame --chains",
        "critical",
        "timeline --worst",
        "report --by process",
        "waits",
        "holds",
        "events",
    ] {
        let words: Vec<&str> = ["analyze"].into_iter().chain(table.split(' ')).collect();
        let run = |options: &[&str]| folder.klock(&[&words[..], options].concat());
        let text = run(&[]);
        assert!(!text.succeeds().contains("trust") && !text.stdout.contains('\x1b'), "{}", text.stdout);
        assert_eq!(text.stderr.lines().count(), 1, "{table}: {}", text.stderr);
        let all = run(&["--notes"]);
        assert_eq!(all.stdout, text.stdout);
        run(&["-o", table]).succeeds();
        assert_eq!(std::fs::read_to_string(folder.path(table)).unwrap(), text.stdout);
        let csv = run(&["--format", "csv"]);
        assert_eq!((csv.code, csv.stderr.as_str()), (Some(0), ""));
    }
}

#[test]
fn waits_and_holds_are_sorted_and_have_the_columns_that_are_chosen() {
    let folder = Folder::new().with_trace(&one_wait());
    let holds = |args: &[&str]| {
        let csv = folder.klock(&[&["holds", "--format", "csv", "-F", "hold,task"][..], args].concat());
        csv.succeeds().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(holds(&[]), ["hold_ns,task", "1000000,a 10", "400000,b 11"]);
    assert_eq!(holds(&["-k", "begin", "-n", "1"]), ["hold_ns,task", "1000000,a 10"]);
    assert_eq!(holds(&["-k", "wait"])[1], "400000,b 11");
    assert_eq!(holds(&["-n", "1"])[1], "1000000,a 10");
    let waits = folder.klock(&["waits"]);
    assert!(waits.succeeds().lines().next().unwrap().contains("holder") && waits.stdout.contains("a 10"));
    let text = folder.klock(&["waits", "-F", "wait,outcome,holder", "-k", "wait"]);
    assert!(text.succeeds().contains("acquired"), "{}", text.stdout);
    folder.klock(&["waits", "-k", "speed"]).fails(2, &["sort key 'speed'", "wait"]);
    folder.klock(&["waits", "-F", "speed"]).fails(2, &["column 'speed'", "outcome", "--help lists all"]);
}

#[test]
fn keys_have_the_names_of_other_tools_and_tasks_are_selected_by_patterns() {
    let folder = Folder::new().with_trace(&one_wait());
    for (other, ours) in
        [("pid", "process"), ("thread", "task"), ("tid", "task"), ("caller", "site"), ("type", "kind")]
    {
        let by = |key| folder.klock(&["report", "--by", key]).succeeds().to_owned();
        assert_eq!(by(other), by(ours), "{other}");
    }
    folder.klock(&["blame", "--by", "thread"]).succeeds();
    let selected = folder.klock(&["report", "--by", "task", "--task", "?"]);
    assert_eq!(selected.succeeds().lines().count(), 3, "{}", selected.stdout);
    assert_eq!(folder.klock(&["report", "--by", "task", "--task", "a*"]).succeeds().lines().count(), 2);
    folder.klock(&["report", "--task", "worker-*"]).fails(1, &["'worker-*'", "no such task"]);
}
