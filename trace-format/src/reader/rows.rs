//! Arrow batches to rows, one function per table; the reverse of `writer/columns.rs`. Every value that the format
//! does not allow is an error that names its row and column.

use std::{path::Path, str::FromStr};

use arrow_array::{
    Array, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, types::Int32Type,
};

use super::Batch;
use crate::{
    FormatError,
    event::{EventKind, LockId, Mode, StackId, TaskId, TaskState},
    tables::{Frame, LockRow, Stack, TaskRow},
};

/// A batch and where it came from.
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) row_group: usize,
    pub(super) first_row: u64,
    pub(super) batch: &'a RecordBatch,
}

impl Source<'_> {
    fn bad(&self, row: usize, column: &'static str, detail: String) -> FormatError {
        let path = self.path.to_owned();
        FormatError::Value {
            path,
            row_group: self.row_group,
            row: self.first_row + row as u64,
            column,
            detail,
        }
    }

    /// The column, checked when the file was opened.
    fn column<T: Array + Clone + 'static>(&self, name: &'static str) -> Result<T, FormatError> {
        let column = self.batch.column_by_name(name).and_then(|c| c.as_any().downcast_ref::<T>());
        column.cloned().ok_or_else(|| self.bad(0, name, "the column has another type here".to_owned()))
    }

    /// What `read` makes of the column, if it is here.
    fn asked<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&'static str) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        self.batch.column_by_name(name).map(|_| read(name)).transpose()
    }

    /// The column, without a null.
    fn required<T: Array + Clone + 'static>(&self, name: &'static str) -> Result<T, FormatError> {
        let column: T = self.column(name)?;
        let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        match nulls.and_then(|nulls| nulls.iter().position(|valid| !valid)) {
            Some(row) => Err(self.bad(row, name, "null, and the format requires a value".to_owned())),
            None => Ok(column),
        }
    }

    /// A column of words, each word parsed once.
    fn words<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<Vec<Option<T>>, FormatError> {
        let (column, parsed) = self.parsed_words::<T>(name)?;
        let known: Option<Vec<T>> = parsed.iter().map(|word| word.as_ref().ok().copied()).collect();
        // Nothing to complain of, which is how it is: a lookup per row.
        if let Some(known) = known {
            let keys = column.keys().values().iter();
            return Ok(match column.keys().nulls() {
                None => keys.map(|&key| Some(known[key as usize])).collect(),
                Some(nulls) => {
                    keys.zip(nulls).map(|(&key, valid)| valid.then(|| known[key as usize])).collect()
                }
            });
        }
        (0..column.len())
            .map(|row| match column.key(row).map(|key| &parsed[key]) {
                None => Ok(None),
                Some(Ok(value)) => Ok(Some(*value)),
                Some(Err(detail)) => Err(self.bad(row, name, detail.clone())),
            })
            .collect()
    }

    fn required_words<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<Vec<T>, FormatError> {
        let (column, parsed) = self.parsed_words::<T>(name)?;
        let known: Option<Vec<T>> = parsed.iter().map(|word| word.as_ref().ok().copied()).collect();
        // Nothing to complain of, which is how it is: a lookup per row.
        if let Some(known) = known.filter(|_| column.null_count() == 0) {
            return Ok(column.keys().values().iter().map(|&key| known[key as usize]).collect());
        }
        let words = self.words(name)?.into_iter().enumerate();
        words
            .map(|(row, w)| {
                w.ok_or_else(|| self.bad(row, name, "null, and the format requires a word".to_owned()))
            })
            .collect()
    }

    /// The column, and its words in the order of the dictionary.
    #[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
    fn parsed_words<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<(DictionaryArray<Int32Type>, Vec<Result<T, String>>), FormatError> {
        let column: DictionaryArray<Int32Type> = self.column(name)?;
        let values = column.values().as_any().downcast_ref::<StringArray>();
        let values = values.ok_or_else(|| self.bad(0, name, "not a column of text".to_owned()))?;
        let parsed =
            values.iter().map(|word| word.unwrap_or("").parse::<T>().map_err(|e| e.to_string())).collect();
        Ok((column, parsed))
    }
}

/// The value, unless it is null.
pub(super) fn int32(column: &Int32Array, row: usize) -> Option<i32> {
    column.is_valid(row).then(|| column.value(row))
}

/// The value, unless it is null.
pub(super) fn int64(column: &Int64Array, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row))
}

fn text(column: &StringArray, row: usize) -> Option<String> {
    column.is_valid(row).then(|| column.value(row).to_owned())
}

/// Columns that were not asked for are not in the batch.
pub(super) fn events(source: &Source<'_>) -> Result<Batch, FormatError> {
    Ok(Batch {
        ts: source.required("ts_ns")?,
        kind: kinds(source)?,
        mode: source.asked("mode", |name| source.words::<Mode>(name))?,
        lock: source.asked("lock_id", |name| source.column(name))?,
        task: source.asked("task_id", |name| source.column(name))?,
        cpu: source.asked("cpu", |name| source.column(name))?,
        stack: source.asked("stack_id", |name| source.column(name))?,
        wait: source.asked("wait_ns", |name| source.column(name))?,
        blocked: source.asked("blocked_ns", |name| source.column(name))?,
        runq: source.asked("runq_ns", |name| source.column(name))?,
        peer_task: source.asked("peer_task_id", |name| source.column(name))?,
        peer_stack: source.asked("peer_stack_id", |name| source.column(name))?,
        errno: source.asked("errno", |name| source.column(name))?,
        count: source.asked("count", |name| source.column(name))?,
        state: source.asked("state", |name| source.words::<TaskState>(name))?,
    })
}

fn kinds(source: &Source<'_>) -> Result<Vec<EventKind>, FormatError> {
    source.required_words("event")
}

/// How many events there are of each kind, in the order of [`EventKind::ALL`]: counted by the words' places in the dictionary, which are
/// bytes to look at and not rows to build.
pub(super) fn count_kinds(source: &Source<'_>, counts: &mut [u64]) -> Result<(), FormatError> {
    let (column, parsed) = source.parsed_words::<EventKind>("event")?;
    let known: Option<Vec<EventKind>> = parsed.into_iter().map(Result::ok).collect();
    match known.filter(|_| column.null_count() == 0) {
        Some(known) => {
            let mut by_word = vec![0_u64; known.len()];
            column.keys().values().iter().for_each(|&key| by_word[key as usize] += 1);
            known.iter().zip(by_word).for_each(|(kind, count)| counts[*kind as usize] += count);
        }
        // One of the rows is bad; this names it.
        None => kinds(source)?.iter().for_each(|kind| counts[*kind as usize] += 1),
    }
    Ok(())
}

/// Ids are dense: the row's place is its id.
fn dense(
    source: &Source<'_>,
    ids: &Int32Array,
    row: usize,
    column: &'static str,
) -> Result<i32, FormatError> {
    let id = ids.value(row);
    let place = source.first_row + row as u64;
    if i64::from(id) == i64::try_from(place).unwrap_or(-1) {
        Ok(id)
    } else {
        Err(source.bad(row, column, format!("id {id} in row {place}, ids are dense from 0")))
    }
}

pub(super) fn stacks(source: &Source<'_>, into: &mut Vec<Stack>) -> Result<(), FormatError> {
    let ids: Int32Array = source.required("stack_id")?;
    let lists: ListArray = source.required("frames")?;
    for row in 0..ids.len() {
        let id = StackId(dense(source, &ids, row, "stack_id")?);
        let element = lists.value(row);
        let frames = element.as_any().downcast_ref::<StructArray>();
        let frames = frames.ok_or_else(|| source.bad(row, "frames", "not a list of frames".to_owned()))?;
        into.push(Stack { id, frames: frames_of(source, row, frames)? });
    }
    Ok(())
}

fn frames_of(source: &Source<'_>, row: usize, frames: &StructArray) -> Result<Vec<Frame>, FormatError> {
    fn field<'a, T: Array + 'static>(
        source: &Source<'_>,
        row: usize,
        frames: &'a StructArray,
        name: &'static str,
    ) -> Result<&'a T, FormatError> {
        let column = frames.column_by_name(name).and_then(|c| c.as_any().downcast_ref::<T>());
        column.ok_or_else(|| source.bad(row, "frames", format!("field {name} has another type here")))
    }
    let strings = |name| field::<StringArray>(source, row, frames, name);
    let longs = |name| field::<Int64Array>(source, row, frames, name);
    let marks = |name| field::<BooleanArray>(source, row, frames, name);
    let (address, offset, symbol_offset) = (longs("address")?, longs("offset")?, longs("symbol_offset")?);
    let (module, build_id, symbol) = (strings("module")?, strings("build_id")?, strings("symbol")?);
    let (file, line) = (strings("file")?, field::<Int32Array>(source, row, frames, "line")?);
    let (inlined, kernel) = (marks("inlined")?, marks("kernel")?);
    let unsigned = |column: &Int64Array, i| int64(column, i).map(i64::cast_unsigned);
    Ok((0..frames.len())
        .map(|i| Frame {
            address: unsigned(address, i),
            module: text(module, i),
            build_id: text(build_id, i),
            offset: unsigned(offset, i),
            symbol: text(symbol, i),
            symbol_offset: unsigned(symbol_offset, i),
            file: text(file, i),
            line: int32(line, i),
            inlined: inlined.is_valid(i) && inlined.value(i),
            kernel: kernel.is_valid(i) && kernel.value(i),
        })
        .collect())
}

pub(super) fn locks(source: &Source<'_>, into: &mut Vec<LockRow>) -> Result<(), FormatError> {
    let ids: Int32Array = source.required("lock_id")?;
    let address: Int64Array = source.column("address")?;
    let (kinds, scopes) = (source.required_words("kind")?, source.required_words("scope")?);
    let (pid, init): (Int32Array, Int32Array) = (source.column("pid")?, source.column("init_stack_id")?);
    let name: StringArray = source.column("name")?;
    let (first, last): (Int64Array, Int64Array) = (source.required("first_ns")?, source.required("last_ns")?);
    for row in 0..ids.len() {
        into.push(LockRow {
            id: LockId(dense(source, &ids, row, "lock_id")?),
            address: int64(&address, row).map(i64::cast_unsigned),
            kind: kinds[row],
            scope: scopes[row],
            pid: int32(&pid, row),
            name: text(&name, row),
            init_stack: int32(&init, row).map(StackId),
            first_ns: first.value(row),
            last_ns: last.value(row),
        });
    }
    Ok(())
}

pub(super) fn tasks(source: &Source<'_>, into: &mut Vec<TaskRow>) -> Result<(), FormatError> {
    let ids: Int32Array = source.required("task_id")?;
    let (pid, tid): (Int32Array, Int32Array) = (source.required("pid")?, source.required("tid")?);
    let (comm, cgroup): (StringArray, StringArray) = (source.column("comm")?, source.column("cgroup")?);
    let (start, exit): (Int64Array, Int64Array) = (source.column("start_ns")?, source.column("exit_ns")?);
    for row in 0..ids.len() {
        into.push(TaskRow {
            id: TaskId(dense(source, &ids, row, "task_id")?),
            pid: pid.value(row),
            tid: tid.value(row),
            comm: text(&comm, row),
            start_ns: int64(&start, row),
            exit_ns: int64(&exit, row),
            cgroup: text(&cgroup, row),
        });
    }
    Ok(())
}
