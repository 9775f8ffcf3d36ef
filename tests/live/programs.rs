//! Records real programs by `klock record -- PROGRAM` as an ordinary user. Each works, ends and prints as it
//! does alone, loses nothing in pools of the default size, has the expected hottest lock by name or site, and
//! leaves nothing behind. Loads are small; docs/programs.md has larger ones. A missing program is a skip.
//!
//! needs: gcc, g++, python3, rustc, sysbench, memcached
//! full needs: stress-ng, redis-server

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::symlink, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use trace_format::{Event, EventKind, Frame, LockKind, LockRow};

use crate::support::{
    Ended, Running, cannot_record, klock, most_of,
    place::{Place, Recorded},
    root, run, skip, until,
};

/// Finds a program. Reports a skip if it is missing.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // System directories first: version managers put scripts that start another program before them.
    let places = ["/usr/bin", "/usr/sbin"].map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
    let found = places.map(|directory| directory.join(program)).find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("no {program} here; cargo xtask setup installs it"));
    }
    found
}

/// Runs a program alone and recorded. Both must succeed with the same output, as far as `comparable` keeps
/// it, and nothing is lost.
#[track_caller]
fn unharmed(
    place: &Place,
    program: &Path,
    arguments: &[&str],
    comparable: fn(&str) -> String,
) -> (Recorded, Ended) {
    let alone = run(place.command(program).args(arguments));
    assert!(alone.status.success(), "{}{}", alone.stdout, alone.stderr);
    until("a recording without late rows", || {
        let (recorded, ended) = place.run(&mut place.record(&["--quiet"], program, arguments));
        assert_eq!(comparable(&ended.stdout), comparable(&alone.stdout));
        assert_eq!(comparable(&own_words(&ended.stderr)), comparable(&own_words(&alone.stderr)));
        has_no_late_rows(&recorded).then_some((recorded, ended))
    })
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// Removes numbers, because times, rates and process IDs differ from run to run.
fn without_numbers(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_ascii_digit() || c == '.');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Removes the lines of klock.
fn own_words(stderr: &str) -> String {
    stderr.lines().filter(|line| !line.starts_with("klock: ")).map(|line| format!("{line}\n")).collect()
}

/// Checks that nothing is lost: a pool of the default size holds more than these programs record. Returns
/// whether no thread was stopped for seconds while it wrote a row.
#[track_caller]
fn has_no_late_rows(recorded: &Recorded) -> bool {
    let loss = &recorded.trace.info().loss;
    assert_eq!(loss.events(), 0, "{loss:?}");
    loss.late == 0
}

/// Sums over the acquisitions of a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    acquired: u64,
    contended: u64,
    waited_ns: i64,
}

/// Returns the sums of the locks of these kinds.
fn sums(recorded: &Recorded, kinds: &[LockKind]) -> BTreeMap<i32, Sum> {
    let mut sums = BTreeMap::<i32, Sum>::new();
    for event in acquisitions(recorded) {
        if let Some(lock) = recorded.lock(event).filter(|lock| kinds.contains(&lock.kind)) {
            let sum = sums.entry(lock.id.0).or_default();
            let waited_ns = event.wait_ns.unwrap_or(0);
            sum.acquired += 1;
            sum.contended += u64::from(waited_ns > 0);
            sum.waited_ns += waited_ns;
        }
    }
    sums
}

fn acquisitions(recorded: &Recorded) -> impl Iterator<Item = &Event> {
    recorded.events.iter().filter(|event| event.kind == EventKind::Acquire)
}

/// Returns the lock with the largest value.
#[track_caller]
fn most<T: Ord>(recorded: &Recorded, kinds: &[LockKind], of: fn(&Sum) -> T) -> (LockRow, Sum) {
    let sums = sums(recorded, kinds);
    let (&id, &sum) = sums.iter().max_by_key(|(_, sum)| of(sum)).expect("it locked nothing");
    (recorded.locks[usize::try_from(id).expect("an id")].clone(), sum)
}

/// Returns the most frequent stack of the lock's acquisitions, leaf first.
fn usual_stack(recorded: &Recorded, lock: &LockRow) -> Vec<Frame> {
    let mut counts = BTreeMap::<i32, u64>::new();
    for event in acquisitions(recorded).filter(|event| event.lock == Some(lock.id)) {
        *counts.entry(event.stack.map_or(-1, |stack| stack.0)).or_default() += 1;
    }
    let usual = counts.into_iter().max_by_key(|&(_, count)| count).map_or(-1, |(stack, _)| stack);
    usize::try_from(usual).map_or_else(|_| Vec::new(), |at| recorded.stacks[at].frames.clone())
}

fn is_in(frames: &[Frame], program: &str) -> bool {
    let module = frames.first().and_then(|frame| frame.module.as_deref()).unwrap_or_default();
    module.rsplit('/').next() == Some(program)
}

#[test]
#[ignore = "needs sysbench; run by cargo xtask test"]
fn sysbench_acquires_its_mutex_as_often_as_requested() {
    let Some(sysbench) = find("sysbench") else { return };
    let place = Place::new();
    let arguments = ["mutex", "--threads=4", "--mutex-num=1", "--mutex-locks=50000", "--mutex-loops=100"];
    let (recorded, _) = unharmed(&place, &sysbench, &[&arguments[..], &["run"]].concat(), without_numbers);
    let (hottest, sum) = most(&recorded, &[LockKind::PthreadMutex], |sum| sum.acquired);
    assert_eq!(sum.acquired, 4 * 50_000);
    let init = hottest.init_stack.expect("it initialises its mutexes");
    assert!(is_in(&recorded.stacks[usize::try_from(init.0).expect("an id")].frames, "sysbench"));
    assert!(is_in(&usual_stack(&recorded, &hottest), "sysbench"));
}

#[test]
#[ignore = "full: how far stress-ng gets in its time, and whether its threads contend, depends on the machine"]
fn stress_ng_contends_for_one_mutex_in_each_of_its_processes() {
    let Some(stress) = find("stress-ng") else { return };
    most_of(3, 1, || assert_contends(&stress));
}

fn assert_contends(stress: &Path) {
    let place = Place::new();
    let arguments = ["--mutex", "2", "--mutex-ops", "40000", "--timeout", "30", "--metrics-brief"];
    let (recorded, ended) = unharmed(&place, stress, &arguments, without_numbers);
    let named: Vec<_> = sums(&recorded, &[LockKind::PthreadMutex])
        .into_iter()
        .map(|(id, sum)| (&recorded.locks[usize::try_from(id).expect("an id")], sum))
        .filter(|(_, sum)| sum.acquired > 10_000)
        .collect();
    // The same variable of a program without symbols, in two processes.
    let [(first, of_first), (second, of_second)] = &named[..] else { panic!("{named:?}") };
    assert_eq!((first.name.as_ref(), first.address), (second.name.as_ref(), second.address));
    assert!(first.pid != second.pid);
    assert!(first.name.as_deref().is_some_and(|name| name.starts_with("stress-ng+0x")), "{first:?}");
    // More events than requested are possible before all threads see the end.
    let said = format!("{}{}", ended.stdout, ended.stderr);
    let mut counted =
        said.lines().filter_map(|line| line.split_once("] mutex ")?.1.split_whitespace().next());
    let counted = counted.next().and_then(|word| word.parse().ok());
    assert_eq!(Some(of_first.acquired + of_second.acquired), counted, "{said}");
    assert!(of_first.contended > 0 && of_second.contended > 0, "{named:?}");
}

#[test]
#[ignore = "needs python3; run by cargo xtask test"]
fn python_threads_share_a_lock_of_their_own_and_the_interpreters() {
    let Some(python) = find("python3") else { return };
    let place = Place::new();
    let program = "import sys, threading\n\
                   guard, total = threading.Lock(), 0\n\
                   def work():\n\
                   \x20   global total\n\
                   \x20   for _ in range(20000):\n\
                   \x20       with guard: total += 1\n\
                   threads = [threading.Thread(target=work) for _ in range(4)]\n\
                   for thread in threads: thread.start()\n\
                   for thread in threads: thread.join()\n\
                   print(total, sys.version_info < (3, 14))\n";
    let (recorded, ended) = unharmed(&place, &python, &["-c", program], as_it_is);
    assert!(ended.stdout.starts_with("80000 "), "{}", ended.stdout);
    // The interpreter's lock is a mutex and a condition variable in its one static structure.
    let (hottest, _) = most(&recorded, &[LockKind::PthreadMutex], |sum| sum.acquired);
    assert!(hottest.name.as_deref().is_some_and(|name| name.starts_with("_PyRuntime")), "{hottest:?}");
    // Before Python 3.14, which brings its own, threading.Lock is a semaphore.
    if ended.stdout.contains("True") {
        let (_, guard) = most(&recorded, &[LockKind::UserSemaphore], |sum| sum.acquired);
        assert_eq!(guard.acquired, 80_000);
    }
}

#[test]
#[ignore = "needs g++; run by cargo xtask test"]
fn locks_of_the_cpp_library_are_all_counted_under_their_names() {
    let Some(compiler) = find("g++") else { return };
    let place = Place::new();
    let source = root().join("fixtures/programs/known_cpp.cpp");
    let program = place.path("known_cpp");
    let flags =
        ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fno-omit-frame-pointer", "-pthread"];
    let built = run(Command::new(compiler).args(flags).arg(source).arg("-o").arg(&program));
    assert!(built.status.success(), "{}", built.stderr);
    let (recorded, ended) = unharmed(&place, &program, &["4", "5000"], as_it_is);
    let mut found = BTreeMap::new();
    for event in acquisitions(&recorded) {
        if let Some(name) = recorded.lock(event).and_then(|lock| lock.name.clone()) {
            *found.entry(name).or_insert(0_u64) += 1;
        }
    }
    for line in ended.stdout.lines().filter_map(|line| line.strip_prefix("COUNT ")) {
        let (name, count) = line.split_once(' ').expect("a name and a number");
        assert_eq!(found.get(name), Some(&count.parse().expect("a number")), "{name}");
    }
    let (hottest, _) = most(&recorded, &[LockKind::PthreadMutex], |sum| sum.acquired);
    assert_eq!(hottest.name.as_deref(), Some("journal"));
    let place_in_code = |frame: &Frame| frame.file.as_deref().is_some_and(|f| f.ends_with("known_cpp.cpp"));
    assert!(usual_stack(&recorded, &hottest).iter().any(place_in_code));
}

fn known_rust(place: &Place) -> Option<PathBuf> {
    let source = root().join("fixtures/programs/known_rust.rs");
    let program = place.path("known_rust");
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler.args(["--edition", "2024", "-g", "-O", "-C", "force-frame-pointers=yes"]);
    let Ok(built) = compiler.arg(source).arg("-o").arg(&program).output() else {
        skip("no rustc here");
        return None;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

#[test]
#[ignore = "needs rustc; run by cargo xtask test"]
fn mutexes_of_a_rust_program_are_not_locks_of_the_c_library() {
    let place = Place::new();
    let Some(program) = known_rust(&place) else { return };
    let (recorded, ended) = unharmed(&place, &program, &["4", "5000"], as_it_is);
    assert!(ended.stdout.contains("COUNT HOT 20000"), "{}", ended.stdout);
    let is_of_thread = |event: &Event| recorded.lock(event).is_some_and(|lock| lock.kind == LockKind::Thread);
    let others: Vec<_> = recorded.events.iter().filter(|event| !is_of_thread(event)).collect();
    assert!(others.is_empty(), "{others:?} {:?}", recorded.locks);
    let output = place.path("said.parquet");
    let mut recorder = klock();
    recorder
        .args(["record", "--locks", "pthread", "-f", "-o"])
        .arg(output)
        .arg("--")
        .arg(&program)
        .args(["2", "10"]);
    let said = run(&mut recorder).stderr;
    assert!(said.contains("is a Rust program") && said.contains("--locks rust,futex"), "{said}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_hot_mutex_of_a_rust_program_is_recorded_as_a_futex_with_its_name_and_function() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    let Some(program) = known_rust(&place) else { return };
    // As root, klock does not write into the place, in which every user can rename files.
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("t.parquet");
    let alone = run(Command::new(&program).args(["4", "5000"]));
    let (recorded, hottest) = until("HOT is the hottest futex, and nothing is lost", || {
        let recorder = &mut klock();
        recorder
            .args(["record", "--quiet", "--locks", "futex", "-f", "-o"])
            .arg(&output)
            .arg("--")
            .arg(&program);
        let ended = run(recorder.args(["4", "5000"]));
        assert!(ended.status.success(), "{}", ended.stderr);
        assert_eq!(ended.stdout, alone.stdout);
        let recorded = Recorded::read(&output);
        let loss = &recorded.trace.info().loss;
        if loss.events() > 0 || loss.late > 0 || sums(&recorded, &[LockKind::Futex]).is_empty() {
            return None;
        }
        let (hottest, _) = most(&recorded, &[LockKind::Futex], |sum| sum.contended);
        hottest.name.as_deref().is_some_and(|name| name.ends_with("::HOT")).then_some((recorded, hottest))
    });
    let frames = usual_stack(&recorded, &hottest);
    let is_add = |frame: &Frame| frame.symbol.as_deref().is_some_and(|name| name.ends_with("::add"));
    assert!(frames.iter().any(is_add), "{frames:#?}");
}

/// Connects as soon as a server listens.
fn connect(socket: &Path) -> UnixStream {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(180))).expect("a time-out");
                return stream;
            }
            Err(error) => {
                assert!(begun.elapsed() < Duration::from_secs(180), "{}: {error}", socket.display())
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The answers of a server to a conversation, alone and recorded.
fn answers(server: &mut Command, socket: &Path, talk: fn(&Path) -> Vec<String>) -> (Vec<String>, Ended) {
    let running = Running::start(server);
    let answers = talk(socket);
    let ended = running.end_within(Duration::from_secs(180));
    fs::remove_file(socket).ok();
    (answers, ended)
}

#[test]
#[ignore = "needs memcached; run by cargo xtask test"]
fn memcached_answers_as_alone_and_its_busy_locks_are_recorded() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 200;
    fn talk(socket: &Path) -> Vec<String> {
        connect(socket);
        let client = |number: usize| {
            let socket = socket.to_owned();
            thread::spawn(move || {
                let mut stream = connect(&socket);
                let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                let mut answers = String::new();
                for round in 0..ROUNDS {
                    let key = format!("{number}-{}", round % 16);
                    let value = format!("{round:08}");
                    stream.write_all(format!("set {key} 0 0 8\r\n{value}\r\nget {key}\r\n").as_bytes()).ok();
                    for _ in 0..4 {
                        reader.read_line(&mut answers).expect("an answer");
                    }
                }
                answers
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let answers = clients.into_iter().map(|client| client.join().expect("a client")).collect();
        connect(socket).write_all(b"shutdown\r\n").expect("it is there");
        answers
    }
    let Some(memcached) = find("memcached") else { return };
    let place = Place::new();
    let socket = place.path("memcached");
    let words = socket.to_string_lossy();
    let arguments = ["-s", &*words, "-t", "4", "-A"];
    let (alone, ended) = answers(place.command(&memcached).args(arguments), &socket, talk);
    assert!(ended.status.success(), "{}", ended.stderr);
    let recorded = until("a recording without late rows", || {
        let (recorded_answers, ended) =
            answers(&mut place.record(&["--quiet"], &memcached, &arguments), &socket, talk);
        assert!(ended.status.success(), "{}", ended.stderr);
        assert_eq!(recorded_answers, alone);
        assert_eq!(own_words(&ended.stderr), "");
        place.assert_nothing_is_left();
        let recorded = place.recorded();
        has_no_late_rows(&recorded).then_some(recorded)
    });
    // Each request takes the lock of its item and that of its thread's statistics: on the heap, so known by
    // who initialised them.
    let all: u64 = sums(&recorded, &[LockKind::PthreadMutex]).values().map(|sum| sum.acquired).sum();
    assert!(all > (2 * 2 * CLIENTS * ROUNDS) as u64, "{all}");
    let (hottest, sum) = most(&recorded, &[LockKind::PthreadMutex], |sum| sum.acquired);
    assert!(hottest.name.is_some() || hottest.init_stack.is_some(), "{hottest:?} {sum:?}");
    assert!(is_in(&usual_stack(&recorded, &hottest), "memcached"));
}

#[test]
#[ignore = "full: whether redis has several answers to write at once depends on the machine"]
fn redis_parks_its_io_threads_on_a_mutex_that_is_its_hottest() {
    const CLIENTS: usize = 16;
    fn talk(socket: &Path) -> Vec<String> {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| BufReader::new(connect(socket))).collect();
        let mut answers = vec![String::new(); CLIENTS];
        // All ask before any reads: with several answers to write at once the server wakes its other thread,
        // and parks it again when it has less to do.
        for _ in 0..100 {
            for client in &mut clients {
                client.get_mut().write_all(b"INCR all\r\nPING\r\n").expect("it is there");
            }
            for (client, answers) in clients.iter_mut().zip(&mut answers) {
                let mut count = String::new();
                client.read_line(&mut count).expect("an answer");
                assert!(count.starts_with(':'), "{count}");
                client.read_line(answers).expect("an answer");
            }
            clients[0].get_mut().write_all(b"PING\r\n").expect("it is there");
            clients[0].read_line(&mut answers[0]).expect("an answer");
        }
        clients[0].get_mut().write_all(b"GET all\r\n").expect("it is there");
        for _ in 0..2 {
            clients[0].read_line(&mut answers[0]).expect("an answer");
        }
        clients[0].get_mut().write_all(b"SHUTDOWN NOSAVE\r\n").expect("it is there");
        answers
    }
    // Debian has the server in the package of its tools, as a program that goes by its name.
    let Some(server) = find("redis-check-rdb") else { return };
    let place = Place::new();
    let redis = place.path("redis-server");
    symlink(server, &redis).expect("a link");
    let socket = place.path("redis");
    let words = socket.to_string_lossy();
    let arguments = ["--port", "0", "--unixsocket", &*words, "--save", "", "--io-threads", "2"];
    let (alone, ended) = answers(place.command(&redis).args(arguments), &socket, talk);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(alone[0].ends_with("$4\r\n1600\r\n"), "{}", alone[0]);
    most_of(3, 1, || {
        let (recorded_answers, ended) =
            answers(&mut place.record(&["--quiet"], &redis, &arguments), &socket, talk);
        assert!(ended.status.success(), "{}", ended.stderr);
        assert_eq!(recorded_answers, alone);
        place.assert_nothing_is_left();
        let recorded = place.recorded();
        assert!(has_no_late_rows(&recorded));
        let (hottest, _) = most(&recorded, &[LockKind::PthreadMutex], |sum| sum.waited_ns);
        let name = hottest.name.as_deref();
        assert!(name.is_some_and(|name| name.starts_with("io_threads_mutex")), "{hottest:?}");
        let frames = usual_stack(&recorded, &hottest);
        assert!(frames[0].symbol.as_deref().is_some_and(|name| name.contains("IO")), "{frames:#?}");
    });
}
