//! A workload with contention: a few locks that behave differently, and threads that use them for a given time. The report and the
//! picture show the behaviour of each lock.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use super::locks::{DemoMutex, DemoRwLock};

/// Hot: many threads hold it very often, for a short time.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the symbol is the name that the report shows")]
pub(crate) static hot_counter: DemoMutex = DemoMutex::new();

/// Long-held: one thread holds it for many milliseconds, the others need it briefly.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the symbol is the name that the report shows")]
pub(crate) static long_held_config: DemoMutex = DemoMutex::new();

/// A convoy: each thread sleeps while holding it and asks for it again at once, so the queue is never empty.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the symbol is the name that the report shows")]
pub(crate) static convoy_log: DemoMutex = DemoMutex::new();

/// Read often, written rarely.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the symbol is the name that the report shows")]
pub(crate) static route_table_rw: DemoRwLock = DemoRwLock::new();

/// The name of a thread, and the function that it repeats.
type Role = (&'static str, fn(u64));

const ROLES: [Role; 11] = [
    ("count-1", count),
    ("count-2", count),
    ("count-3", count),
    ("reload", reload_config),
    ("serve-1", serve),
    ("serve-2", serve),
    ("log-1", log_line),
    ("log-2", log_line),
    ("log-3", log_line),
    ("route-read", look_up_route),
    ("route-write", change_routes),
];

/// Runs all threads for `time`.
pub(crate) fn run(time: Duration) {
    let end = Instant::now() + time;
    let threads = ROLES.map(|(name, role)| {
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut round = 0;
            while Instant::now() < end {
                role(round);
                round += 1;
            }
        })
    });
    // Joining earlier would wait on a futex, and the report would show that.
    thread::sleep(time + Duration::from_millis(20));
    for thread in threads.into_iter().flatten() {
        // A panic has already been reported.
        let _ = thread.join();
    }
}

#[inline(never)]
fn count(round: u64) {
    hot_counter.lock();
    compute(400);
    hot_counter.unlock();
    compute(2_000);
    if round.is_multiple_of(16) {
        thread::sleep(Duration::from_micros(200));
    }
}

#[inline(never)]
fn reload_config(_round: u64) {
    long_held_config.lock();
    thread::sleep(Duration::from_millis(25));
    long_held_config.unlock();
    thread::sleep(Duration::from_millis(60));
}

#[inline(never)]
fn serve(_round: u64) {
    long_held_config.lock();
    compute(1_000);
    long_held_config.unlock();
    thread::sleep(Duration::from_millis(4));
}

#[inline(never)]
fn log_line(_round: u64) {
    convoy_log.lock();
    thread::sleep(Duration::from_micros(700));
    convoy_log.unlock();
    compute(500);
}

#[inline(never)]
fn look_up_route(_round: u64) {
    route_table_rw.read();
    compute(3_000);
    thread::sleep(Duration::from_micros(150));
    route_table_rw.unlock();
    thread::sleep(Duration::from_micros(100));
}

#[inline(never)]
fn change_routes(_round: u64) {
    thread::sleep(Duration::from_millis(8));
    route_table_rw.write();
    thread::sleep(Duration::from_millis(3));
    route_table_rw.unlock();
}

/// Keeps the CPU busy; a step takes about a nanosecond.
fn compute(steps: u64) {
    let mut sum = 0_u64;
    for step in 0..steps {
        sum = black_box(sum.wrapping_mul(31).wrapping_add(step));
    }
}
