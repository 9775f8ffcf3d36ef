//! perf's table: layout, units, and which waits count.

use std::slice::from_ref;

use super::Aggregate;
use crate::{
    export::{self, Format, Options},
    testing::{Parts, text_of},
};

/// Two waits for a semaphore, one of which is given up, one for a mutex, one that does not end; and one of a
/// user lock.
const WAITS: &str = "
    source kernel_contended kinds=mutex,rwsem holds=no
    lock s rwsem name=mm_struct.mmap_lock address=0xffff8881
    lock m mutex name=- address=0xffff8882
    task A tid=11 comm=aa\ntask B tid=12 comm=bb
    1_000 A wait s shared k:down_read<k:fault peer=B
    3_500_000 A acquire s shared k:down_read<k:fault wait=3_499_000
    4_000_000 B wait s shared k:down_read<k:fault
    4_000_999 B abandon s shared k:down_read<k:fault wait=999 errno=4
    5_000_000 B wait m k:mutex_lock<k:write_it peer=A
    5_001_500 B acquire m k:mutex_lock<k:write_it wait=1_500
    6_000_000 A wait m k:mutex_lock<k:write_it
    6_500_000 B wait u main
    6_600_000 B acquire u main wait=100_000
";

fn export(parts: &Parts, options: Options) -> String {
    let test = parts.write();
    text_of(|out| export::write(from_ref(&test.trace), &options, out).map(|_| ()))
}

fn by(aggregate: Aggregate) -> Options {
    Options { format: Format::PerfLock, aggregate, ..Options::default() }
}

fn separated(aggregate: Aggregate) -> Options {
    Options { separator: Some(",".to_owned()), ..by(aggregate) }
}

#[test]
fn the_table_is_laid_out_as_perf_prints_it() {
    let parts = Parts::parse(WAITS);
    assert_eq!(
        export(&parts, by(Aggregate::Caller)),
        " contended   total wait     max wait     avg wait         type   caller

         2      3.50 ms      3.50 ms      1.75 ms      rwsem:R   fault
         1      1.50 us      1.50 us      1.50 us        mutex   write_it
"
    );
    assert_eq!(
        export(&parts, by(Aggregate::Task)),
        " contended   total wait     max wait     avg wait          pid   comm

         1      3.50 ms      3.50 ms      3.50 ms           11   aa
         2      2.50 us      1.50 us      1.25 us           12   bb
"
    );
    assert_eq!(
        export(&parts, by(Aggregate::Lock)),
        " contended   total wait     max wait     avg wait            address   symbol

         2      3.50 ms      3.50 ms      1.75 ms   00000000ffff8881   mm_struct.mmap_lock (rwsem)
         1      1.50 us      1.50 us      1.50 us   00000000ffff8882    (mutex)
"
    );
    assert_eq!(
        export(&parts, by(Aggregate::Owner)),
        " contended   total wait     max wait     avg wait          pid   owner

         1      3.50 ms      3.50 ms      3.50 ms           12   bb
         1      1.50 us      1.50 us      1.50 us           11   aa
         1       999 ns       999 ns       999 ns           -1   Unknown
"
    );
}

#[test]
fn separated_values_are_in_nanoseconds_below_one_comment() {
    let parts = Parts::parse(WAITS);
    assert_eq!(
        export(&parts, separated(Aggregate::Caller)),
        "# output: contended, total wait, max wait, avg wait, type, caller
2, 3499999, 3499000, 1749999, rwsem:R, fault
1, 1500, 1500, 1500, mutex, write_it
"
    );
    assert_eq!(
        export(&parts, separated(Aggregate::Lock)),
        "# output: contended, total wait, max wait, avg wait, address, symbol, type
2, 3499999, 3499000, 1749999, ffff8881, mm_struct.mmap_lock, rwsem
1, 1500, 1500, 1500, ffff8882, , mutex
"
    );
    let owner = export(&parts, separated(Aggregate::Owner));
    assert!(
        owner.starts_with("# output: contended, total wait, max wait, avg wait, pid, owner\n"),
        "{owner}"
    );
}

#[test]
fn the_first_rows_are_those_of_the_longest_total_wait() {
    let options = Options { limit: Some(1), ..separated(Aggregate::Task) };
    let table = export(&Parts::parse(WAITS), options);
    assert!(table.lines().count() == 2 && table.ends_with(", 11, aa\n"), "{table}");
}

#[test]
fn user_locks_are_included_if_the_filter_names_them() {
    let test = Parts::parse(WAITS).write();
    let mut options = separated(Aggregate::Caller);
    options.filter.kinds = vec![trace_format::LockKind::PthreadMutex];
    let table = text_of(|out| export::write(from_ref(&test.trace), &options, out).map(|_| ()));
    assert!(table.ends_with("\n1, 100000, 100000, 100000, pthread_mutex, main\n"), "{table}");
}

#[test]
fn units_are_those_of_perf() {
    let words = [999, 1_000, 1_500_000, 2_000_000_000, 90_000_000_000, 7_200_000_000_000].map(super::time);
    assert_eq!(
        words,
        ["      999 ns", "     1.00 us", "     1.50 ms", "     2.00 s ", "     1.50 m ", "     2.00 h "]
    );
}

#[test]
fn no_name_ends_a_row_or_makes_a_field() {
    let mut parts = Parts::parse(WAITS);
    parts.tasks[0].comm = Some("=a, b\n\u{1b}".to_owned());
    parts.stacks[0].frames[1].symbol = Some(format!("f, 1\n{}", "n".repeat(65536)));
    let table = export(&parts, separated(Aggregate::Task));
    assert!(table.contains(", 11, '=a_ b\\u{a}\\u{1b}\n"), "{table}");
    for aggregate in Aggregate::ALL {
        let table = export(&parts, separated(*aggregate));
        let fields: Vec<usize> = table.lines().map(|line| line.split(',').count()).collect();
        assert!(fields.windows(2).all(|pair| pair[0] == pair[1]), "{aggregate}: {fields:?}");
        assert!(!export(&parts, by(*aggregate)).contains('\u{1b}'));
    }
}
