//! Tests with commands of this machine: `sh`, `true`, `sleep`.

use std::time::Instant;

use super::*;

const SOON: Duration = Duration::from_secs(10);

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn run(command: &[&str]) -> Option<CommandExit> {
    let mut launched = Launched::start(&words(command), &[]).unwrap();
    launched.run().unwrap();
    launched.release();
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
fn the_command_waits_until_it_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let mut launched = Launched::start(&words(&["touch", sign.to_str().unwrap()]), &[]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!sign.exists());
    launched.run().unwrap();
    launched.release();
    assert!(launched.wait(SOON).is_some() && sign.exists());
}

#[test]
fn a_command_that_is_dropped_before_it_runs_exits() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let launched = Launched::start(&words(&["touch", sign.to_str().unwrap()]), &[]).unwrap();
    let shared = Arc::clone(&launched.shared);
    drop(launched);
    let begin = Instant::now();
    while !matches!(shared.lock().phase, Phase::Exited(_)) {
        assert!(begin.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!sign.exists());
}

#[test]
fn a_command_is_held_at_its_exit_with_its_memory_until_it_is_released() {
    let mut launched = Launched::start(&words(&["true"]), &[]).unwrap();
    launched.run().unwrap();
    let begin = Instant::now();
    while launched.phase() == Phase::Running && begin.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(launched.phase(), Phase::Held);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", launched.pid())).unwrap();
    assert!(maps.contains("true"), "{maps}");
    launched.release();
    assert_eq!(launched.wait(SOON), Some(CommandExit { code: Some(0), signal: None }));
}

#[test]
fn a_stopped_job_continues_after_sigcont() {
    let mut launched = Launched::start(&words(&["sleep", "0.2"]), &[]).unwrap();
    launched.run().unwrap();
    launched.release();
    launched.signal(libc::SIGSTOP);
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
