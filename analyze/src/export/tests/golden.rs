//! Binary exports of a real trace, decoded and compared with the files in `fixtures/exports`.
//! tests/exports.rs compares the exports that are text.

use std::io::Cursor;
use std::slice::from_ref;

use arrow_array::{Array as _, cast::AsArray as _, types::Int64Type};
use arrow_ipc::reader::FileReader;
use trace_format::Trace;

use crate::export::{Format, Options, perfetto, pprof, write};
use crate::golden;
use intervals::Filter;

fn exported(trace: &str, format: Format) -> Vec<u8> {
    // Nobody knows whether the futexes of that program are locks.
    let filter = Filter { include_idle: trace == "futex", ..Filter::default() };
    let trace = Trace::open(&golden::path(&format!("../fixtures/traces/{trace}.parquet"))).unwrap();
    let mut out = Vec::new();
    write(from_ref(&trace), &Options { format, filter, ..Options::default() }, &mut out).unwrap();
    out
}

fn compare(name: &str, found: &str) {
    golden::expect(&golden::path("../fixtures/exports").join(name), found);
}

#[test]
fn pprof_of_a_real_trace_matches_the_fixture() {
    compare("shop.pprof.txt", &pprof::tests::decoded(&exported("shop", Format::Pprof)));
}

#[test]
fn perfetto_of_a_real_trace_matches_the_fixture() {
    compare("shop.perfetto.txt", &perfetto::tests::decoded(&exported("shop", Format::Perfetto)));
}

#[test]
fn arrow_of_a_real_trace_has_the_cells_of_the_csv_fixture() {
    let mut csv = csv::Writer::from_writer(Vec::new());
    let bytes = exported("futex", Format::Arrow);
    let batches = FileReader::try_new(Cursor::new(bytes), None).unwrap();
    csv.write_record(batches.schema().fields().iter().map(|field| field.name())).unwrap();
    for batch in batches {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let cell = |column: &arrow_array::ArrayRef| match column.as_primitive_opt::<Int64Type>() {
                _ if column.is_null(row) => String::new(),
                Some(numbers) => numbers.value(row).to_string(),
                None => column.as_string::<i32>().value(row).to_owned(),
            };
            csv.write_record(batch.columns().iter().map(cell)).unwrap();
        }
    }
    compare("futex.csv", &String::from_utf8(csv.into_inner().unwrap()).unwrap());
}
