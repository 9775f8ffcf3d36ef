//! One small table in every format.

use super::{Cell, Column, Field, Format, column::select, write_rows, writer};

fn columns() -> Vec<Column<()>> {
    vec![
        Column::timestamp("ts", |()| 0, "").heading("time").width(11, 11),
        Column::duration("wait", |()| 0, "").width(7, 7),
        Column::count("stack_id", |()| 0, "").programs(),
        Column::text("task", |()| Cell::Null, "").width(6, 12),
        Column::text("site", |()| Cell::Null, "").heading("at"),
    ]
}

fn fields() -> Vec<Field> {
    columns().into_iter().map(|column| column.field).collect()
}

#[test]
fn columns_are_chosen_by_heading_or_name_in_any_order() {
    let chosen = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let columns = select(columns(), &words);
        columns
            .map(|columns| columns.into_iter().map(|c| (c.field.name, c.field.is_shown)).collect::<Vec<_>>())
    };
    assert_eq!(chosen(&["wait", "ts_ns"]).unwrap(), [("wait_ns".into(), true), ("ts_ns".into(), true)]);
    assert_eq!(chosen(&["stack_id"]).unwrap(), [("stack_id".into(), true)]);
    assert_eq!(chosen(&[]).unwrap()[2], ("stack_id".into(), false));
    let error = chosen(&["ts"]).unwrap_err().to_string();
    assert!(error.contains("time, wait, stack_id, task, at"), "{error}");
}

fn written(format: Format, width: Option<usize>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rows = writer(format, &fields(), width, &mut out).unwrap();
    let cell = |text: &'static str| Cell::from(text);
    let row =
        [1_000_000_001_i64.into(), 1_500_i64.into(), 7_i64.into(), cell("worker-thread"), cell("a|b.c:1")];
    rows.push(&row).unwrap();
    rows.push(&[0_i64.into(), Cell::Null, Cell::Null, Cell::Null, cell("a, \"b\"\\u{1b}")]).unwrap();
    rows.finish().unwrap();
    drop(rows);
    out
}

fn text(format: Format, width: Option<usize>) -> String {
    String::from_utf8(written(format, width)).unwrap()
}

#[test]
fn text_has_columns_of_one_width_and_cuts_at_the_terminals() {
    assert_eq!(
        text(Format::Text, None),
        "       time     wait  task          at
1.000000001  1.50 µs  worker…hread  a|b.c:1
0.000000000        -                a, \"b\"\\u{1b}
"
    );
    let narrow = text(Format::Text, Some(40));
    assert!(narrow.contains("1.000000001  1.50 µs  wor…ad  a|b.c:1\n"), "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 40));
}

#[test]
fn a_place_is_shown_without_its_directories() {
    let short = super::cell::without_directories;
    assert_eq!(short("/home/me/app/src/main.rs:7 (run)"), "main.rs:7 (run)");
    assert_eq!(short("/home/me/main.rs:7? (run)"), "main.rs:7? (run)");
    assert_eq!(short("operator/(int)+0x1f"), "operator/(int)+0x1f");
    assert_eq!(short("<a/b as C>::d:9x"), "<a/b as C>::d:9x");
}

#[test]
fn csv_and_json_lines_have_every_field_and_no_units() {
    assert_eq!(
        text(Format::Csv, Some(10)),
        "ts_ns,wait_ns,stack_id,task,site\n1000000001,1500,7,worker-thread,a|b.c:1\n0,,,,\"a, \"\"b\"\"\\u{1b}\"\n"
    );
    let json = text(Format::Json, None);
    let rows: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["wait_ns"], &rows[1]["wait_ns"]), (&1500.into(), &serde_json::Value::Null));
    assert_eq!(rows[1]["site"], "a, \"b\"\\u{1b}");
}

#[test]
fn markdown_escapes_what_would_be_markup() {
    assert_eq!(
        text(Format::Md, None).lines().take(3).collect::<Vec<_>>(),
        [
            "| time | wait | task | at |",
            "| ---: | ---: | --- | --- |",
            "| 1.000000001 | 1.50 µs | worker-thread | a\\|b.c:1 |"
        ]
    );
}

#[test]
fn parquet_columns_have_a_dictionary_unless_nearly_all_values_differ() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    let columns: [Column<i64>; 3] = [
        Column::count("repeats", |row: &i64| row / 10, ""),
        Column::duration("differs", |row: &i64| row * 7_919, ""),
        Column::text("text", |row: &i64| (*row * 3).to_string().into(), ""),
    ];
    let mut bytes = Vec::new();
    write_rows(Format::Parquet, &columns, 0..5_000_i64, &mut bytes).unwrap();
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    let group = SerializedFileReader::new(file).unwrap().metadata().row_group(0).clone();
    let has_dictionary: Vec<bool> =
        group.columns().iter().map(|column| column.dictionary_page_offset().is_some()).collect();
    assert_eq!(has_dictionary, [true, false, true]);
    assert!(
        group.columns().iter().all(|column| column.statistics().is_some()),
        "engines leave files out by them"
    );
}

#[test]
fn parquet_has_the_same_values() {
    use arrow_array::{Array, Int64Array, StringArray};
    let bytes = written(Format::Parquet, None);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.parquet");
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(file, 1024).unwrap();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    let wait = batches[0].column_by_name("wait_ns").unwrap().as_any().downcast_ref::<Int64Array>().unwrap();
    assert_eq!((wait.value(0), wait.is_null(1), wait.len()), (1500, true, 2));
    let site = batches[0].column_by_name("site").unwrap().as_any().downcast_ref::<StringArray>().unwrap();
    assert_eq!(site.value(1), "a, \"b\"\\u{1b}");
}
