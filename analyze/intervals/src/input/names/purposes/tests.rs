//! Tests of purposes: by functions, and by what tasks do.

use trace_format::Frame;

use super::*;

fn stack(symbols: &str) -> Stack {
    let frame = |symbol: &str| Frame { symbol: Some(symbol.to_owned()), ..Frame::default() };
    Stack { id: StackId(0), frames: symbols.split('<').map(|symbol| frame(symbol.trim())).collect() }
}

fn of_futex(symbols: &str) -> Purpose {
    let test = crate::testing::Parts::parse("lock f futex");
    let mut purposes = Purposes::new(&test.locks);
    let mut rules = purposes.rules().expect("stacks decide about futexes");
    rules.add(&stack(symbols));
    purposes.set_stacks(rules, Vec::new());
    purposes.of(LockId(0), Some(StackId(0)))
}

#[test]
fn the_innermost_function_with_a_purpose_decides() {
    for (symbols, purpose) in [
        ("__futex_abstimed_wait_common64 < __pthread_clockjoin_ex < main", Purpose::Exit),
        ("syscall < __GI___lll_lock_wait < ___pthread_mutex_lock < work < start_thread", Purpose::Lock),
        ("__futex_abstimed_wait_common < ___pthread_cond_wait < pop < start_thread", Purpose::CondVar),
        ("__new_sem_wait_slow64.constprop.0 < produce", Purpose::Semaphore),
        ("__new_sem_wait_slow64 < PyThread_acquire_lock_timed < lock_PyThread_acquire_lock", Purpose::Lock),
        (
            "runtime.futex < runtime.futexsleep < runtime.notesleep < runtime.stopm < runtime.findRunnable",
            Purpose::Scheduler,
        ),
        ("runtime.futex < runtime.futexsleep < runtime.lock2 < runtime.findRunnable", Purpose::Lock),
        ("syscall < std::sys::sync::mutex::futex::Mutex::lock_contended < shop::buy", Purpose::Lock),
        (
            "syscall < std::sys::sync::condvar::futex::Condvar::wait < tokio::runtime::blocking::pool::park_idle",
            Purpose::Scheduler,
        ),
        (
            "syscall < std::sys::sync::thread_parking::futex::Parker::park < std::thread::park < app::idle",
            Purpose::Park,
        ),
        ("syscall < std::thread::scoped::scope < app::main", Purpose::Exit),
        (
            "syscall < std::sys::sync::thread_parking::futex::Parker>::park < std::thread::thread::Thread>::park < \
             std::thread::scoped::scope < app::main",
            Purpose::Exit,
        ),
        ("syscall < std::thread::park < app::main::{{closure}} < std::thread::scoped::scope", Purpose::Park),
        ("pthread_cond_wait < Unsafe_Park < Interpreter", Purpose::Park),
        ("pthread_cond_wait < os::PlatformEvent::park() < ObjectMonitor::EnterI", Purpose::Lock),
        ("futex_word < bump_shared < main", Purpose::Lock),
    ] {
        assert_eq!(of_futex(symbols), purpose, "{symbols}");
    }
}

#[test]
fn a_semaphore_is_a_lock_if_its_waits_or_its_takers_say_so() {
    let history = |lines: &str| crate::testing::trace(&format!("lock s user_semaphore\n{lines}"));
    let purpose = |lines: &str| {
        let test = history(lines);
        let names = crate::input::names::Names::read(&test.trace).unwrap();
        names.purposes().of(LockId(0), None)
    };
    let python =
        "10 A acquire s f\n20 B wait s sem_wait<PyThread_acquire_lock\n30 A wake s\n40 B acquire s f wait=20";
    let condition = "10 A acquire s f\n20 A wait s sem_wait<PyThread_acquire_lock\n30 C wake s\n40 A acquire s f wait=20\n50 A wake s";
    assert_eq!(purpose(python), Purpose::Lock);
    assert_eq!(purpose(condition), Purpose::Semaphore);
    let never_signalled = "10 A acquire s f\n20 A wait s sem_wait<PyThread_acquire_lock";
    assert_eq!(purpose(never_signalled), Purpose::Semaphore);
    let binary = "10 A acquire s f\n20 B wait s sem_wait\n30 A wake s\n40 B acquire s f wait=20\n50 B wake s";
    assert_eq!(purpose(binary), Purpose::Lock);
    let signal = "20 B wait s sem_wait\n30 A wake s\n40 B acquire s f wait=20\n50 A wake s\n60 B acquire s f";
    assert_eq!(purpose(signal), Purpose::Semaphore);
    let two_permits =
        "10 A acquire s f\n20 B acquire s f\n30 A wake s\n40 B wake s\n50 A acquire s f\n60 A wake s";
    assert_eq!(purpose(two_permits), Purpose::Lock);
    let items = "10 A wake s\n20 A wake s\n30 B acquire s f\n40 C acquire s f\n50 A wake s\n60 B acquire s f";
    assert_eq!(purpose(items), Purpose::Semaphore);
}

/// Three tasks that wait for a lock of this kind and hold it in turn. A round begins with `A` inside, `B` and
/// `C` waiting.
fn relay(kind: &str, row: impl Fn(usize, &str) -> String) -> String {
    let tasks = ["A", "B", "C"];
    let mut text = format!("lock s {kind}\n{}{}", row(10, "B wait"), row(20, "C wait"));
    for round in 0..20 {
        let at = 1_000_000 * (round + 1);
        let (inside, next) = (tasks[round % 3], tasks[(round + 1) % 3]);
        text += &row(at, &format!("{inside} wake"));
        text += &row(at + 1_000, &format!("{next} acquire"));
        text += &row(at + 200_000, &format!("{inside} wait"));
    }
    text
}

fn purposes(text: &str) -> Vec<Purpose> {
    let test = crate::testing::trace(text);
    let names = crate::input::names::Names::read(&test.trace).unwrap();
    let stack = |id: usize| Some(StackId(i32::try_from(id).unwrap()));
    (0..names.stacks().max(1)).map(|id| names.purposes().of(LockId(0), stack(id))).collect()
}

#[test]
fn a_condition_variable_whose_tasks_exclude_each_other_is_a_lock() {
    let row = |at: usize, what: &str| match what.split_once(' ') {
        Some((task, "wait")) => format!("{at} {task} wait s pthread_cond_wait<lock\n"),
        Some((task, "acquire")) => format!("{at} {task} acquire s pthread_cond_wait<lock wait=5\n"),
        _ => format!("{at} {what} s pthread_cond_signal<unlock\n"),
    };
    assert_eq!(purposes(&relay("condvar", row))[0], Purpose::Lock);
    // A scheduler that sleeps in the same way is named by its function, whatever its tasks do.
    let named = |at, what: &str| {
        row(at, what).replace("<lock", "<tokio::runtime::scheduler::multi_thread::park::Inner::park")
    };
    assert_eq!(purposes(&relay("condvar", named))[0], Purpose::Scheduler);
}

#[test]
fn a_condition_variable_that_one_task_signals_is_idle_and_so_is_a_futex() {
    for (kind, purpose) in [("condvar", Purpose::CondVar), ("futex", Purpose::Park)] {
        let mut text = format!("lock s {kind}\n10 B wait s\n20 C wait s\n");
        for round in 0..20 {
            let (at, task) = (1_000_000 * (round + 1), ["B", "C"][round % 2]);
            text += &format!("{at} A wake s\n{} {task} acquire s wait=5 peer=A\n", at + 1_000);
            text += &format!("{} {task} wait s\n", at + 200_000);
        }
        assert_eq!(purposes(&text), [purpose], "{kind}");
    }
}

#[test]
fn a_word_that_few_waits_are_for_is_a_lock_only_if_waiters_wake_each_other() {
    let wait = |at: usize, task: &str, waker: &str| {
        format!(
            "{at} {task} wait s\n{} {waker} wake s\n{} {task} acquire s wait=9 peer={waker}\n",
            at + 5,
            at + 9
        )
    };
    let first = "lock s futex\n".to_owned() + &wait(100_000_000, "A", "B");
    assert_eq!(purposes(&first), [Purpose::Undecided], "the end of a thread, or a lock");
    assert_eq!(purposes(&(first.clone() + &wait(200_000_000, "B", "A"))), [Purpose::Lock]);
    let named =
        first.replace("wait s", "wait s lll_lock_wait").replace("acquire s", "acquire s lll_lock_wait");
    assert_eq!(purposes(&named)[0], Purpose::Lock);
}

#[test]
fn words_with_one_waiter_each_have_the_purpose_of_their_site() {
    let words = ["lock a futex", "lock b futex", "lock c futex"].join("\n");
    let word = |task: &str| task.to_lowercase();
    let row = |at: usize, what: &str| {
        let (task, kind) = what.split_once(' ').unwrap();
        match kind {
            "wake" => format!("{at} {task} wake {} unlock\n", word(task)),
            "acquire" => format!("{at} {task} acquire {} futex<lock wait=5 peer=X\n", word(task)),
            kind => format!("{at} {task} {kind} {} futex<lock\n", word(task)),
        }
    };
    // The task before it in the order A, B, C wakes each task.
    let text = relay("futex", row).replace("lock s futex", &words);
    let text: Vec<String> = text
        .lines()
        .map(|line| match line.split_once(" acquire a") {
            Some(_) => line.replace("peer=X", "peer=C"),
            None if line.contains(" acquire b") => line.replace("peer=X", "peer=A"),
            None => line.replace("peer=X", "peer=B"),
        })
        .collect();
    let names = |text: &str| {
        let test = crate::testing::trace(text);
        let names = crate::input::names::Names::read(&test.trace).unwrap();
        (0..3).map(|word| names.purposes().of(LockId(word), Some(StackId(0)))).collect::<Vec<_>>()
    };
    assert_eq!(names(&text.join("\n")), [Purpose::Lock; 3]);
    // A fourth task wakes all: the words carry messages.
    let messages =
        text.join("\n").replace("peer=A", "peer=M").replace("peer=B", "peer=M").replace("peer=C", "peer=M");
    assert_eq!(names(&messages), [Purpose::Park; 3]);
}

#[test]
fn a_semaphore_of_postgresql_is_a_lock_below_its_functions_of_locks() {
    let stack = "sem_wait<PGSemaphoreLock<LWLockAcquireOrWait<XLogFlush";
    let text =
        format!("lock s user_semaphore\n20 B wait s {stack}\n30 A wake s\n40 B acquire s {stack} wait=20");
    assert_eq!(purposes(&text)[0], Purpose::Lock);
}
