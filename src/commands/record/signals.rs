//! Signals during a recording. Those that end a program end the recording; a command gets all that klock
//! gets, once, and decides itself what it does.

use std::{
    sync::atomic::{AtomicI32, Ordering},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use record::{INTERRUPTED, Stop};
use signal_hook::{
    consts::{SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM},
    iterator::Signals,
    low_level,
};
use trace_format::output::remove_temporaries;

use crate::{files, output};

/// Signals that ask klock to end.
const REQUESTS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
/// Signals that would end klock, and are for the command alone.
const OTHERS: [i32; 9] =
    [SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, libc::SIGPWR, libc::SIGSTKFLT];
/// Time for the end of a recording after the second signal.
const URGENT_LIMIT: Duration = Duration::from_millis(900);
/// Time after which a command that has not ended is waited for with a message.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last signal that asked klock to end; 0 without one.
static LAST_REQUEST: AtomicI32 = AtomicI32::new(0);

/// Returns the last signal that asked klock to end.
pub(super) fn last_request() -> Option<i32> {
    Some(LAST_REQUEST.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Lets the first SIGINT, SIGTERM or SIGHUP end the recording and finish the file; if there is a command,
/// once the command ends. The second one ends klock within a second: what is not composed yet is counted as
/// lost. If even that hangs, and at the third one, klock exits, and `klock recover` completes the trace.
///
/// Signals that klock was started to ignore stay ignored, as the command ignores them, too. A recording
/// without a command has no other end than a signal: it ignores SIGHUP alone, for nohup.
pub(super) fn handle(stop: Stop, has_command: bool, quiet: bool) -> anyhow::Result<()> {
    let passed_on = OTHERS.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|_| has_command);
    let is_wanted = |signal: &i32| !(has_command || *signal == SIGHUP) || !files::is_ignored(*signal);
    let handled = REQUESTS.into_iter().chain(passed_on).filter(is_wanted);
    let mut signals = Signals::new(handled).context("cannot handle signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if has_command {
                stop.pass_on(signal);
            }
            if !REQUESTS.contains(&signal) {
                continue;
            }
            LAST_REQUEST.store(signal, Ordering::Relaxed);
            // The trace keeps what was flushed.
            let exit = move || remove_temporaries(|| low_level::exit(128 + signal));
            if stop.is_urgent() {
                exit();
            } else if stop.requested().is_some() {
                stop.make_urgent();
                thread::spawn(move || {
                    thread::sleep(URGENT_LIMIT);
                    exit();
                });
            } else {
                stop.request(if signal == SIGINT { INTERRUPTED } else { "terminated" });
                // At Ctrl-C, many programs go on.
                if has_command && !quiet && signal != SIGINT {
                    report_wait(stop.clone());
                }
            }
        }
    });
    Ok(())
}

/// Reports later that the command has not ended, unless it has.
fn report_wait(stop: Stop) {
    thread::spawn(move || {
        thread::sleep(PATIENCE);
        if !stop.has_ended() {
            output::message(format_args!(
                "waiting for the command, which has got the signal, to end; a second signal ends the recording without it"
            ));
        }
    });
}
