//! Checks the pictures that the options of `klock plot` select, their files, and the answers to options that
//! exclude each other.

use std::fs;

use crate::support::{Folder, one_wait};

/// Draws with these arguments, and returns the text of the file.
#[track_caller]
fn drawn(args: &[&str], file: &str) -> String {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&[&["plot"], args].concat()).succeeds();
    fs::read_to_string(folder.path(file)).unwrap()
}

#[test]
fn each_picture_has_a_file_and_a_title_of_its_own() {
    for (args, file, title) in [
        (&[][..], "locks.svg", "Waiting for locks"),
        (&["--lock", "cache_lock"], "lock.svg", "pthread_mutex cache_lock"),
        (&["--blame"], "blame.svg", "Who waits for whom"),
        (&["--blame", "--lock", "#0"], "blame.svg", "Who waits for whom"),
        (&["--flame"], "flame.svg", "Waits by stack"),
        (&["--flame=hold"], "flame.svg", "Holds by stack"),
        (&["--flame=wait_caused"], "flame.svg", "Waits of others, by the stack of the hold"),
        (&["--flame=combined"], "flame.svg", "Waits by stack, and the stack of the hold above"),
        (&["--flame=count"], "flame.svg", "Acquisitions by stack"),
    ] {
        let picture = drawn(args, file);
        assert!(picture.contains(title) && picture.contains("cache_lock"), "{args:?}");
    }
}

#[test]
fn a_trace_of_off_cpu_times_alone_is_drawn_as_stacks_with_their_wakers() {
    let folder = Folder::new();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/traces/off_cpu.parquet");
    for words in [&[][..], &["--flame"], &["--flame=offcpu"]] {
        let picture = folder.klock(&[&["plot", trace, "-o", "-"], words].concat()).succeeds().to_owned();
        for part in ["Time off the CPU by stack", "sleep_here", "hrtimer_wakeup", " ns,"] {
            assert!(picture.contains(part), "{words:?}: {part}");
        }
    }
}

#[test]
fn the_picture_goes_to_a_file_or_to_stdout() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["plot", "--lock", "#0", "-o", "a.svg"]).succeeds();
    let file = fs::read_to_string(folder.path("a.svg")).unwrap();
    let stdout = folder.klock(&["plot", "--lock", "0x609388f0", "-o", "-"]);
    assert_eq!(stdout.succeeds().trim_end(), file.trim_end(), "one lock by two names is one picture");
    assert!(file.contains("cache_lock"));
}

#[test]
fn the_ending_of_the_file_makes_a_png() {
    let folder = Folder::new().with_trace(&one_wait());
    for args in [&["-o", "a.png"][..], &["-o", "c.PNG", "--lock", "#0"]] {
        folder.klock(&[&["plot"], args].concat()).succeeds();
        assert!(fs::read(folder.path(args[1])).unwrap().starts_with(b"\x89PNG"), "{args:?}");
    }
    folder.klock(&["plot", "-o", "a.gif"]).fails(2, &["gif", ".svg", ".png"]);
    folder.klock(&["plot", "--theme", "dark", "-o", "dark.svg"]).succeeds();
    let pink = folder.klock(&["plot", "--theme", "pink"]);
    assert!(pink.code == Some(2) && pink.stderr.contains("use one of light, dark"), "{}", pink.stderr);
}

#[test]
fn all_locks_and_stacks_are_pictures_with_files_of_their_own() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["plot"]).succeeds();
    assert!(fs::read_to_string(folder.path("locks.svg")).unwrap().contains("cache_lock"));
    folder.klock(&["plot", "--flame"]).succeeds();
    folder.klock(&["plot", "--flame=hold", "--lock", "cache_lock", "-o", "hold.svg"]).succeeds();
    for name in ["flame.svg", "hold.svg"] {
        assert!(fs::read_to_string(folder.path(name)).unwrap().contains("cache_lock"), "{name}");
    }
    assert!(!folder.path("lock.svg").exists());
}

#[test]
fn options_that_exclude_each_other_are_answered_with_one_line() {
    let folder = Folder::new().with_trace(&one_wait());
    for (args, parts) in [
        (&["--blame", "--flame"][..], &["--blame", "--flame", "leave one of them out"][..]),
        (&["a.parquet", "b.parquet"], &["more than one trace", "klock diff", "klock html"]),
        (&["--lock", "#0", "--lock", "#1"], &["cannot use --lock twice", "give it once"]),
        (&["--width", "100"], &["invalid --width '100'", "640 to 8192"]),
        (&["--flame=speed"], &["invalid weight 'speed'", "wait_caused"]),
        (&["--lock", "none"], &["none", "cache_lock"]),
    ] {
        let outcome = folder.klock(&[&["plot"], args].concat());
        let code = if args.contains(&"none") { 1 } else { 2 };
        outcome.fails(code, parts);
    }
    assert!(folder.files().iter().all(|name| name.ends_with(".parquet")), "{:?}", folder.files());
}

#[test]
fn a_window_of_the_page_after_the_end_names_the_option_of_the_page() {
    let folder = Folder::new().with_trace(&one_wait());
    let outcome = folder.klock(&["html", "--window", "100s..200s"]);
    outcome.fails(outcome.code.unwrap(), &["from 100 s on", "earlier start", "--window"]);
}
