//! Binary exports of a real trace, decoded and compared with the files in `fixtures/exports`. `KLOCK_BLESS=1 cargo test -p
//! analyze` updates them. tests/exports.rs compares the exports that are text.

use std::slice::from_ref;
use std::{fs, io::Cursor, path::Path};

use arrow_array::{Array as _, cast::AsArray as _, types::Int64Type};
use arrow_ipc::reader::FileReader;
use trace_format::Trace;

use crate::export::{Format, Options, perfetto, pprof, write};

fn fixture(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(path)
}

fn exported(trace: &str, format: Format) -> Vec<u8> {
    let trace = Trace::open(&fixture(&format!("traces/{trace}.parquet"))).unwrap();
    let mut out = Vec::new();
    write(from_ref(&trace), &Options { format, ..Options::default() }, &mut out).unwrap();
    out
}

fn compare(name: &str, found: &str) {
    let path = fixture("exports").join(name);
    if std::env::var_os("KLOCK_BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differs = expected.lines().zip(found.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None, "{name}; KLOCK_BLESS=1 writes it anew, `git diff` shows how");
    assert_eq!(expected.lines().count(), found.lines().count(), "{name}");
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
