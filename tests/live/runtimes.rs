//! Records servers and runtimes whose threads wait for each other, and whose truth is known from their source
//! or their own counters: `klock why` names the place where they wait, or says that the cause was not seen.
//! It never says that locks are not the cause.
//!
//! needs: root, gcc
//! full needs: python3, ruby, javac, node, mariadbd, pg_lsclusters, db_bench, libabsl_synchronization.so, g++

use std::{fs, path::Path, process::Command};

use xtask::host::NOBODY;

use crate::support::{
    klock, most_of,
    place::{Place, trace_of, users},
    run, said,
};

const NOT_SEEN: &str = "not seen: whether a lock is the cause";

/// A name, a script that runs its program as `$RECORD PROGRAM`, and texts. `klock why` prints one of the
/// texts. Servers refuse to run as root: behind `$AS` they do so as nobody.
type Load = (&'static str, &'static str, &'static [&'static str]);

/// Four threads or processes each. A wait for the lock of the interpreter is undecided where hardly any
/// thread wakes another one.
const LOADS: &[Load] = &[
    (
        "threads of Ruby compute",
        "$RECORD ruby -e '4.times.map { Thread.new { 3_000_000.times { |i| i * i } } }.each(&:join)'",
        &[NOT_SEEN, "rb_native_cond_initialize"],
    ),
    (
        "threads of Python compute",
        "$RECORD /usr/bin/python3 -c '
import threading
def work():
    for i in range(6_000_000): i * i
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()'",
        &[NOT_SEEN, "_PyRuntime"],
    ),
    (
        "threads of Java sleep in a monitor",
        "cat > Monitor.java << 'END'
public class Monitor {
    static void work() { for (int i = 0; i < 200; i++) synchronized (Monitor.class) { try { Thread.sleep(2); } catch (InterruptedException e) { } } }
    public static void main(String[] a) { for (int i = 0; i < 4; i++) new Thread(Monitor::work).start(); }
}
END
javac Monitor.java && $RECORD java Monitor",
        &[NOT_SEEN, "lock at os::PlatformEvent::park"],
    ),
    (
        "threads of Java sleep in a ReentrantLock",
        "cat > Locked.java << 'END'
import java.util.concurrent.locks.ReentrantLock;
public class Locked {
    static final ReentrantLock lock = new ReentrantLock();
    static void work() { for (int i = 0; i < 200; i++) { lock.lock(); try { Thread.sleep(2); } catch (InterruptedException e) { } finally { lock.unlock(); } } }
    public static void main(String[] a) { for (int i = 0; i < 4; i++) new Thread(Locked::work).start(); }
}
END
javac Locked.java && $RECORD java Locked",
        &[NOT_SEEN, "lock at Parker::park"],
    ),
    (
        "workers of Node wait for an atomic word",
        "cat > atomics.js << 'END'
const { Worker, isMainThread, workerData } = require('worker_threads');
if (isMainThread) { const word = new SharedArrayBuffer(4); for (let i = 0; i < 4; i++) new Worker(__filename, { workerData: word }); }
else {
    const word = new Int32Array(workerData);
    const pause = ms => { const end = Date.now() + ms; while (Date.now() < end); };
    for (let i = 0; i < 200; i++) {
        while (Atomics.compareExchange(word, 0, 0, 1) !== 0) Atomics.wait(word, 0, 1);
        pause(2); Atomics.store(word, 0, 0); Atomics.notify(word, 0, 1);
    }
}
END
$RECORD node atomics.js",
        &[NOT_SEEN, "lock at v8::internal::Object v8::internal::FutexEmulation"],
    ),
    (
        "processes write to one SQLite database",
        "$RECORD /usr/bin/python3 -c '
import os, sqlite3
sqlite3.connect(\"db\").execute(\"create table t(n)\")
for _ in range(4):
    if os.fork() == 0:
        db = sqlite3.connect(\"db\", timeout=60, isolation_level=None)
        for i in range(60):
            for sql in \"begin immediate\", \"insert into t values(1)\", \"commit\": db.execute(sql)
        os._exit(0)
for _ in range(4): os.wait()'",
        &[NOT_SEEN],
    ),
    (
        "threads of OpenMP sleep in a critical section",
        "echo '#include <unistd.h>
int main(void) {
#pragma omp parallel for num_threads(4)
    for (int i = 0; i < 400; i++) {
#pragma omp critical
        usleep(2000);
    }
}' > critical.c
gcc -g -fopenmp critical.c -o critical && $RECORD ./critical",
        &[NOT_SEEN, "libgomp"],
    ),
    (
        "threads share a lock of Abseil",
        "echo '#include <absl/synchronization/mutex.h>
#include <thread>
#include <unistd.h>
#include <vector>
static absl::Mutex busy;
static void work() { for (int i = 0; i < 200; i++) { absl::MutexLock lock(&busy); usleep(1000); } }
int main() { std::vector<std::thread> all; for (int i = 0; i < 4; i++) all.emplace_back(work); for (auto &one : all) one.join(); }' > busy.cc
g++ -std=c++17 -g -O1 -pthread busy.cc -o busy -labsl_synchronization -labsl_time -labsl_base && $RECORD ./busy",
        &[NOT_SEEN, "lock at absl::"],
    ),
    (
        "clients of PostgreSQL update one row",
        "bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
$AS $bin/initdb -A trust -U user -D data > /dev/null
$RECORD $AS $bin/postgres -D data -k $PWD -c listen_addresses= 2> log.txt &
until $bin/pg_isready -q -h $PWD; do sleep 0.1; done
$bin/psql -q -h $PWD -U user -c 'CREATE TABLE hot AS SELECT 0 AS n' postgres
echo 'UPDATE hot SET n = n + 1; SELECT pg_sleep(0.001);' > hot.sql
$bin/pgbench -h $PWD -U user -n -f hot.sql -c 16 -j 2 -T 5 postgres 2> /dev/null > /dev/null
kill -INT $(head -1 data/postmaster.pid)
wait $!",
        &[NOT_SEEN, "lock at ProcSleep", "lock at XLogFlush"],
    ),
    (
        "clients of PostgreSQL commit",
        "bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
$AS $bin/initdb -A trust -U user -D data > /dev/null
$RECORD $AS $bin/postgres -D data -k $PWD -c listen_addresses= 2> log.txt &
until $bin/pg_isready -q -h $PWD; do sleep 0.1; done
$bin/pgbench -h $PWD -U user -i -q -s 20 postgres 2> /dev/null > /dev/null
$bin/pgbench -h $PWD -U user -N -c 16 -j 2 -T 8 postgres 2> /dev/null > /dev/null
kill -INT $(head -1 data/postmaster.pid)
wait $!",
        &[NOT_SEEN, "lock at XLogFlush"],
    ),
    (
        "clients of MariaDB update one row",
        "PATH=$PATH:/usr/sbin
$AS mariadb-install-db --no-defaults --datadir=$PWD/data --auth-root-authentication-method=normal --skip-test-db > /dev/null 2>&1
$RECORD $AS mariadbd --no-defaults --user=$($AS id -un) --datadir=$PWD/data --socket=$PWD/socket --skip-networking --skip-grant-tables 2> log.txt &
run() { $1 --no-defaults --socket=$PWD/socket --user=root \"${@:2}\"; }
until run mariadb-admin ping > /dev/null 2>&1; do sleep 0.1; done
run mariadb-slap --concurrency=8 --number-of-queries=8000 --create='CREATE TABLE t (n INT) ENGINE=InnoDB; INSERT INTO t VALUES (1)' \
    --query='UPDATE t SET n = n + 1' > /dev/null
run mariadb-admin shutdown
wait $!",
        &[NOT_SEEN, "lock at mariadbd"],
    ),
    (
        "threads of RocksDB write with fdatasync",
        "$RECORD db_bench --benchmarks=fillrandom --threads=8 --num=2000 --sync=1 --db=$PWD/rocks > /dev/null 2>&1",
        &[NOT_SEEN, "lock at rocksdb::WriteThread", "adds up locks for which threads wait at one place"],
    ),
];

/// Three of four threads wait for the last one at the end of each parallel region.
const UNEVEN: &str = "cat > uneven.c << 'END'
#include <omp.h>
static volatile long sum;
static void work(long steps) { for (long i = 0; i < steps; i++) sum += i; }
int main(void) {
    for (int round = 0; round < 40; round++) {
#pragma omp parallel num_threads(4)
        work(omp_get_thread_num() == 0 ? 10000000 : 10000);
    }
}
END
gcc -O1 -g -fopenmp uneven.c -o uneven && $RECORD ./uneven";

/// A lock of parking_lot, and one of tokio, whose tasks are no threads.
const CRATES: [(&str, &str); 2] = [
    (
        "Cargo.toml",
        "[package]
name = 'crates'
edition = '2021'
[workspace]
[dependencies]
parking_lot = '0.12'
tokio = { version = '1', features = ['rt-multi-thread', 'sync', 'time'] }
[profile.dev]
opt-level = 1
",
    ),
    (
        "src/main.rs",
        "use std::{sync::Arc, thread, time::Duration};
static BUSY: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);
fn parking() {
    for _ in 0..200 {
        let mut busy = BUSY.lock();
        thread::sleep(Duration::from_millis(1));
        *busy += 1;
    }
}
async fn task(lock: Arc<tokio::sync::Mutex<u64>>) {
    for _ in 0..200 {
        let mut busy = lock.lock().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        *busy += 1;
    }
}
fn main() {
    if std::env::args().nth(1).as_deref() == Some(\"parking\") {
        return thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(parking))));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let lock = Arc::new(tokio::sync::Mutex::new(0));
    let tasks: Vec<_> = (0..4).map(|_| runtime.spawn(task(Arc::clone(&lock)))).collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}
",
    ),
];

/// Returns what `klock why` says of a load.
fn said_of(place: &Place, is_root: bool, script: &str) -> String {
    let trace = place.path(trace_of(is_root));
    let folder = place.directory(if is_root { "root" } else { "user" });
    let mut shell = if is_root { Command::new("bash") } else { place.command("bash") };
    shell.current_dir(&folder).args(["-c", script]);
    let nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    shell.env("AS", if is_root { nobody.as_str() } else { "" });
    shell.env("RECORD", format!("{} record -q -f -o {} --", place.klock.display(), trace.display()));
    let ended = run(&mut shell);
    assert!(ended.status.success(), "{}", ended.stderr);
    fs::remove_dir_all(&folder).unwrap();
    why(&trace)
}

fn why(trace: &Path) -> String {
    said(&run(klock().args(["why", "-n", "1"]).arg(trace)))
}

#[test]
#[ignore = "full: runs servers and runtimes for minutes; two recordings of three decide"]
fn locks_of_servers_and_runtimes_are_named_or_said_to_be_not_seen() {
    let place = Place::new();
    for (load, script, words) in LOADS {
        for &is_root in users() {
            most_of(3, 1, || {
                let said = said_of(&place, is_root, script);
                assert!(!said.contains("locks are not the cause"), "{load}, root {is_root}: {said}");
                assert!(
                    words.iter().any(|word| said.contains(word)),
                    "{load}, root {is_root}: none of {words:?} in {said}"
                );
                println!("{load}, root {is_root}: {}", &said[..said.len().min(200)]);
            });
        }
    }
}

#[test]
#[ignore = "full: what else the machine does has a part in who waits; two recordings of three decide"]
fn threads_of_openmp_that_wait_for_the_last_one_do_not_wait_for_a_lock() {
    let place = Place::new();
    for &is_root in users() {
        most_of(3, 1, || {
            let said = said_of(&place, is_root, UNEVEN);
            // An ordinary user does not see why threads of libgomp sleep.
            let words = if is_root { "waits for locks are not the cause" } else { NOT_SEEN };
            assert!(said.contains(words), "root {is_root}: {said}");
        });
    }
}

#[test]
#[ignore = "full: downloads crates; two recordings of three decide"]
fn locks_of_crates_of_rust_are_named_or_said_to_be_not_seen() {
    let place = Place::new();
    let folder = place.directory("source");
    fs::create_dir(folder.join("src")).unwrap();
    CRATES.iter().for_each(|(file, text)| fs::write(folder.join(file), text).unwrap());
    let built = run(Command::new("cargo")
        .args(["build", "--quiet"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", "target"));
    assert!(built.status.success(), "{}", built.stderr);
    let program = place.copy(&folder.join("target/debug/crates"));
    for (mode, of_root) in [("parking", "lock at "), ("tasks", NOT_SEEN)] {
        for &is_root in users() {
            most_of(3, 1, || {
                let trace = place.path(trace_of(is_root));
                let mut record = if is_root { klock() } else { place.command(&place.klock) };
                record.args(["record", "-q", "-f", "-o"]).arg(&trace).arg("--").arg(&program).arg(mode);
                let ended = run(&mut record);
                assert!(ended.status.success(), "{}", ended.stderr);
                let said = why(&trace);
                assert!(
                    said.contains(if is_root { of_root } else { NOT_SEEN }),
                    "{mode}, root {is_root}: {said}"
                );
                assert!(!said.contains("locks are not the cause"), "{mode}, root {is_root}: {said}");
            });
        }
    }
}
