//! Lines of milli-klockstat: the worked example, the ends of periods, and conserved sums.

use std::slice::from_ref;

use proptest::prelude::*;

use crate::{
    export::{self, Format, Options, Written},
    testing::{Parts, TestTrace},
};

/// One thread and one mutex, periods of 50 ms: the entry is the wait's begin, the return the acquisition.
const T3: &str = "
    source kernel kinds=mutex holds=no
    lock m mutex name=- address=0xffff888100000010
    task T pid=100 tid=101 comm=app
    121_000_000 T acquire m k:mutex_lock<k:work wait=1_000_000
    152_000_000 T acquire m k:mutex_lock<k:work wait=3_000_000
    250_500_000 T acquire m k:mutex_lock<k:work wait=500_000
    261_000_000 T acquire m k:mutex_lock<k:work wait=1_000_000
";

fn export_with(parts: &Parts, options: Options) -> (String, Written) {
    let test: TestTrace = parts.write();
    let options = Options { format: Format::Mklockstat, ..options };
    let mut out = Vec::new();
    let written = export::write(from_ref(&test.trace), &options, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), written)
}

fn lines(text: &str, options: Options) -> Vec<String> {
    export_with(&Parts::parse(text), options).0.lines().map(str::to_owned).collect()
}

#[test]
fn the_worked_example_comes_out_byte_for_byte() {
    assert_eq!(
        lines(T3, Options::default()),
        [
            "t,0,mutex_lock,work",
            "s,app,P100_T101,Mutex,0xffff888100000010,100000000,1000000,1,0",
            "s,app,P100_T101,Mutex,0xffff888100000010,150000000,3000000,1,0",
            "s,app,P100_T101,Mutex,0xffff888100000010,250000000,1500000,2,0",
        ]
    );
}

#[test]
fn an_acquisition_at_the_end_of_a_period_belongs_to_the_next() {
    let text = "source kernel kinds=mutex holds=no\nlock m mutex
        10_000_000 A acquire m wait=1\n50_000_000 A acquire m wait=1";
    let rows = lines(text, Options::default());
    assert_eq!(
        rows[1..],
        ["s,A,P100_T101,Mutex,0x1000,0,1,1,-1", "s,A,P100_T101,Mutex,0x1000,50000000,1,1,-1"]
    );
}

#[test]
fn lines_are_sorted_by_period_thread_and_address() {
    let text = "lock x mutex address=0x20\nlock y mutex address=0x10\ntask A tid=300\ntask B tid=200
        60_000_000 A acquire x wait=0\n61_000_000 A acquire y wait=0\n62_000_000 B acquire x wait=0\n70_000_000 B acquire x wait=1\n130_000_000 B acquire y wait=0";
    let order: Vec<String> = lines(text, Options::default())
        .into_iter()
        .filter(|line| line.starts_with('s'))
        .map(|line| line.split(',').skip(2).step_by(2).take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(order, ["P100_T200 0x20", "P100_T300 0x10", "P100_T300 0x20", "P100_T200 0x10"]);
}

#[test]
fn monitors_are_left_out_unless_selected() {
    let text = "task A comm=collectl\n10 A acquire m wait=0";
    assert_eq!(lines(text, Options::default()), Vec::<String>::new());
    assert_eq!(lines(text, Options { with_monitors: true, ..Options::default() }).len(), 2);
}

#[test]
fn attempts_are_those_of_the_report_so_that_threads_whose_attempts_all_failed_have_lines() {
    let text = "lock m pthread_mutex\nsource preload kinds=pthread_mutex holds=yes
        10 A acquire m\n20 A acquire m\n30 B try_fail m errno=16\n40 C wait m\n70 C abandon m wait=30 errno=110
        80 A release m\n90 A release m\n95 A acquire m\n96 A release m";
    let rows = lines(text, Options::default());
    let sums: Vec<&str> = rows.iter().filter_map(|line| line.strip_prefix("s,")).collect();
    assert_eq!(
        sums,
        [
            "A,P100_T101,Mutex,0x1000,0,0,2,-1",
            "B,P100_T102,Mutex,0x1000,0,0,1,-1",
            "C,P100_T103,Mutex,0x1000,0,30,1,-1",
        ],
        "the second acquisition of A is a recursion"
    );
}

#[test]
fn kinds_without_a_type_of_the_original_are_left_out_with_a_note() {
    let text =
        "lock a rwlock\nlock b rwsem\nlock c semaphore\nlock d mutex\nlock e spinlock\nlock f pthread_rwlock
        1 A acquire a\n2 A acquire b\n3 A acquire c\n4 A acquire d\n5 A acquire e\n6 A acquire f";
    let (out, written) = export_with(&Parts::parse(text), Options::default());
    let types: Vec<&str> = out
        .lines()
        .filter(|line| line.starts_with('s'))
        .map(|line| line.split(',').nth(3).unwrap())
        .collect();
    assert_eq!(types, ["RWLock", "Semaphore", "Semaphore", "Mutex", "RWLock"]);
    assert_eq!(
        written.notes,
        ["attempts to get locks of kinds without a type in this format are left out: spinlock (1)"]
    );
    assert_eq!(written.items, 5);
}

#[test]
fn a_stack_line_comes_once_before_its_first_use_leaf_first_with_offsets() {
    let mut parts = Parts::parse(
        "1 A acquire m k:lock<user\n2 B acquire m k:lock<user\n3 C acquire m\n60_000_000 A acquire m other wait=0",
    );
    parts.stacks[0].frames[0].symbol_offset = Some(0x1f);
    parts.stacks[0].frames[1].symbol = None;
    let rows = lines_of(&parts);
    assert_eq!(
        rows,
        [
            "t,0,lock+0x1f,[unknown]",
            "s,A,P100_T101,Mutex,0x1000,0,0,1,0",
            "s,B,P100_T102,Mutex,0x1000,0,0,1,0",
            "t,-1,[Stack Trace Not Obtained]",
            "s,C,P100_T103,Mutex,0x1000,0,0,1,-1",
            // A thread has the stack of its first acquisition of the lock.
            "s,A,P100_T101,Mutex,0x1000,50000000,0,1,0",
        ]
    );
}

fn lines_of(parts: &Parts) -> Vec<String> {
    export_with(parts, Options::default()).0.lines().map(str::to_owned).collect()
}

#[test]
fn no_name_ends_a_line_or_a_field_and_a_csv_reader_reads_it_back() {
    let mut parts = Parts::parse("1 A acquire m leaf<root");
    parts.tasks[0].comm = Some("=c,m\"d\n\u{1b}".to_owned());
    parts.stacks[0].frames[0].symbol = Some("f(int, \"x\")\n".to_owned());
    parts.stacks[0].frames[1].symbol = Some(format!("=cmd{}", "n".repeat(65536)));
    let (out, _) = export_with(&parts, Options::default());
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(out.as_bytes());
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 2);
    assert_eq!((&records[0][2], records[0].len()), ("f(int, \"x\")\\u{a}", 4));
    assert!(records[0][3].starts_with("'=cmdnn"));
    assert_eq!((&records[1][1], records[1].len()), ("'=c_m_d_\\u{1b}", 9));
}

proptest! {
    /// However the time is cut, all of it is there, and every acquisition.
    #[test]
    fn exact_periods_add_up_to_all_waits_and_acquisitions(
        acquisitions in proptest::collection::vec((1_i64..400_000_000, 0_i64..300_000_000, 0..3_usize, 0..3_usize), 1..40),
        period_ms in 1_i64..200,
    ) {
        let mut acquisitions = acquisitions;
        acquisitions.sort_unstable();
        let source = "source kernel kinds=mutex holds=no\nlock m0 mutex\nlock m1 mutex\nlock m2 mutex\n".to_owned();
        let acquired = acquisitions
            .iter()
            .map(|(ts, wait, task, lock)| format!("{} T{task} acquire m{lock} wait={wait}\n", ts + 300_000_000));
        let text: String = [source].into_iter().chain(acquired).collect();
        let period_ns = period_ms * 1_000_000;
        let options = Options { period_ns: Some(period_ns), ..Options::default() };
        let sums = lines(&text, options).iter().filter(|line| line.starts_with('s')).fold((0, 0), |sums, line| {
            let fields: Vec<&str> = line.split(',').collect();
            let (start, waited, count): (i64, i64, i64) =
                (fields[5].parse().unwrap(), fields[6].parse().unwrap(), fields[7].parse().unwrap());
            assert!(start % period_ns == 0 && count > 0);
            (sums.0 + waited, sums.1 + count)
        });
        let waited: i64 = acquisitions.iter().map(|(_, wait, _, _)| wait).sum();
        prop_assert_eq!(sums, (waited, acquisitions.len() as i64));
    }
}
