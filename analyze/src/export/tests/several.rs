//! Exports of several traces: formats that can hold them add them up, the others say why not.

use super::{Format, Options, write};
use crate::testing;

const TEXT: &str = "
    source kernel_contended kinds=rwsem holds=no
    lock k rwsem name=mmap_lock
    task A comm=worker
    1_000 A wait k k:down_read<k:do_page_fault<a.c:1:get
    5_000 A acquire k k:down_read<k:do_page_fault<a.c:1:get wait=4_000
";

/// Exports two traces of two machines.
fn exported(format: Format) -> Result<(String, u64), String> {
    let (one, two) = (testing::trace_of_host("one", TEXT), testing::trace_of_host("two", TEXT));
    let options = Options { format, unit: super::super::Unit::Ns, ..Options::default() };
    let mut out = Vec::new();
    let written = write(&[one.trace, two.trace], &options, &mut out).map_err(|error| error.to_string())?;
    Ok((String::from_utf8_lossy(&out).into_owned(), written.items))
}

#[test]
fn equal_stacks_and_callers_of_several_traces_are_added_up() {
    let (folded, lines) = exported(Format::Folded).unwrap();
    assert!(lines == 1 && folded.ends_with(" 8000\n"), "{folded}");
    let (waits, lines) = exported(Format::Offwaketime2).unwrap();
    assert!(lines == 1 && waits.ends_with(" 8\n"), "{waits}");
    let (table, rows) = exported(Format::PerfLock).unwrap();
    assert!(rows == 1 && table.contains("         2      8.00 us "), "{table}");
    assert_eq!(exported(Format::LockProf).unwrap().1, 1);
    assert_eq!(exported(Format::Pprof).unwrap().1, 2);
}

#[test]
fn events_of_several_traces_have_a_column_for_the_trace() {
    let (csv, rows) = exported(Format::Csv).unwrap();
    assert!(rows == 4 && csv.starts_with("trace,host,") && csv.contains("\ntwo,two,"), "{csv}");
}

#[test]
fn a_format_for_one_trace_gives_the_reason() {
    for format in [Format::Perfetto, Format::Firefox, Format::Mklockstat, Format::Locktrace] {
        let error = exported(format).unwrap_err();
        assert!(error.starts_with(&format!("cannot export 2 traces as {format}: ")), "{error}");
        assert!(error.ends_with("; export them one by one"), "{error}");
    }
}
