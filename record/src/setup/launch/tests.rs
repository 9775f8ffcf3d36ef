//! Tests with commands of this machine: `sh`, `true`, `sleep`.

use std::time::Instant;

use super::*;

/// Ends only what hangs.
const SOON: Duration = Duration::from_secs(300);

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn run(command: &[&str]) -> Option<CommandExit> {
    let mut launched = Launched::start(&words(command), &[]).unwrap();
    launched.run().unwrap();
    launched.wait(SOON)
}

/// Waits until something holds.
fn until(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    assert_eq!(run(&["sh", "-c", "exit 7"]), Some(CommandExit { code: Some(7), signal: None }));
}

#[test]
fn a_signal_that_kills_the_command_is_passed_on() {
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]), Some(CommandExit { code: None, signal: Some(9) }));
}

#[test]
fn a_signal_that_the_command_handles_reaches_it() {
    let exit = run(&["sh", "-c", "trap 'exit 3' USR1; kill -USR1 $$; exit 4"]);
    assert_eq!(exit.and_then(|exit| exit.code), Some(3));
}

#[test]
fn the_command_waits_until_it_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let mut launched = Launched::start(&words(&["touch", sign.to_str().unwrap()]), &[]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!sign.exists());
    launched.run().unwrap();
    assert!(launched.wait(SOON).is_some() && sign.exists());
}

#[test]
fn a_command_that_is_dropped_before_it_runs_exits() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let launched = Launched::start(&words(&["touch", sign.to_str().unwrap()]), &[]).unwrap();
    let shared = Arc::clone(&launched.shared);
    drop(launched);
    until(|| shared.lock().is_some());
    assert!(!sign.exists());
}

#[test]
fn a_command_has_no_tracer_and_no_handler_of_klock() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("status");
    let status = "grep -E '^(TracerPid|SigBlk|SigIgn|SigCgt)' /proc/self/status > \"$0\"";
    let mut launched = Launched::start(&words(&["sh", "-c", status, out.to_str().unwrap()]), &[]).unwrap();
    launched.run().unwrap();
    assert_eq!(launched.wait(SOON).and_then(|exit| exit.code), Some(0));
    let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let field =
        |text: &str, name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned()));
    let found = std::fs::read_to_string(out).unwrap();
    assert_eq!(field(&found, "TracerPid:").as_deref(), Some("\t0"));
    assert_eq!(field(&found, "SigBlk:"), field(&own, "SigBlk:"));
    let ignored = |text: &str| u64::from_str_radix(field(text, "SigIgn:").unwrap().trim(), 16).unwrap();
    let pipe = 1 << (libc::SIGPIPE - 1);
    assert_eq!(ignored(&found) & !pipe, ignored(&own) & !pipe);
    assert_eq!(ignored(&found) & pipe != 0, IGNORES_SIGPIPE.load(Ordering::Relaxed));
}

#[test]
fn a_stopped_job_continues_after_sigcont() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let command = ["sh", "-c", "until test -e \"$0\"; do sleep 0.01; done", sign.to_str().unwrap()];
    let mut launched = Launched::start(&words(&command), &[]).unwrap();
    launched.run().unwrap();
    launched.signal(libc::SIGSTOP);
    // It may still run until it gets the signal.
    let stat = format!("/proc/{}/stat", launched.pid);
    let state = || {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    until(|| matches!(state(), Some('t' | 'T')));
    std::fs::write(&sign, "").unwrap();
    assert_eq!(launched.wait(Duration::from_millis(600)), None);
    launched.signal(libc::SIGCONT);
    assert_eq!(launched.wait(SOON), Some(CommandExit { code: Some(0), signal: None }));
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let error = Launched::start(&words(&["no-such-command-here"]), &[]).unwrap_err();
    assert!(error.to_string().starts_with("cannot run no-such-command-here: command not found"), "{error}");
    assert!(matches!(find(OsStr::new("./no/such"), None), Err(LaunchError::NotFound { .. })));
}

#[test]
fn a_file_that_cannot_be_run_is_an_error_with_the_reason() {
    let mut launched = Launched::start(&words(&["/etc/passwd"]), &[]).unwrap();
    let error = launched.run().unwrap_err();
    assert!(error.to_string().starts_with("cannot run /etc/passwd: Permission denied"), "{error}");
}
