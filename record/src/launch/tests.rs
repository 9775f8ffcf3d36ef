//! Commands of this machine: `sh`, `true`, `sleep`.

use std::time::Instant;

use super::*;

const SOON: Duration = Duration::from_secs(10);

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn run(command: &[&str]) -> Option<CommandExit> {
    let mut launched = Launched::start(&words(command), &[]).unwrap();
    launched.go().unwrap();
    launched.let_go();
    launched.wait(SOON)
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
fn nothing_runs_before_the_gate_opens() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let mut launched = Launched::start(&words(&["touch", sign.to_str().unwrap()]), &[]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!sign.exists());
    launched.go().unwrap();
    launched.let_go();
    assert!(launched.wait(SOON).is_some() && sign.exists());
}

#[test]
fn a_command_whose_gate_never_opens_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let launched = Launched::start(&words(&["touch", sign.to_str().unwrap()]), &[]).unwrap();
    let shared = Arc::clone(&launched.shared);
    drop(launched);
    let begin = Instant::now();
    while !matches!(shared.lock().phase, Phase::Ended(_)) {
        assert!(begin.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!sign.exists());
}

#[test]
fn a_command_is_held_at_its_end_with_its_memory_until_it_is_let_go() {
    let mut launched = Launched::start(&words(&["true"]), &[]).unwrap();
    launched.go().unwrap();
    let begin = Instant::now();
    while launched.phase() == Phase::Running && begin.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(launched.phase(), Phase::Held);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", launched.pid())).unwrap();
    assert!(maps.contains("true"), "{maps}");
    launched.let_go();
    assert_eq!(launched.wait(SOON), Some(CommandExit { code: Some(0), signal: None }));
}

#[test]
fn a_job_that_is_stopped_goes_on_when_it_is_told_to() {
    let mut launched = Launched::start(&words(&["sleep", "0.2"]), &[]).unwrap();
    launched.go().unwrap();
    launched.let_go();
    launched.signal(libc::SIGSTOP);
    assert_eq!(launched.wait(Duration::from_millis(600)), None);
    launched.signal(libc::SIGCONT);
    assert_eq!(launched.wait(SOON), Some(CommandExit { code: Some(0), signal: None }));
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let error = Launched::start(&words(&["no-such-command-here"]), &[]).unwrap_err();
    assert!(error.to_string().starts_with("command not found: no-such-command-here"), "{error}");
    assert!(matches!(find(OsStr::new("./no/such"), None), Err(LaunchError::NotFound { .. })));
}

#[test]
fn a_file_that_can_not_be_run_says_why() {
    let mut launched = Launched::start(&words(&["/etc/passwd"]), &[]).unwrap();
    let error = launched.go().unwrap_err();
    assert!(error.to_string().starts_with("failed to run /etc/passwd: Permission denied"), "{error}");
}
