//! Converts Arrow batches into rows, one function per table; the reverse of `writer/columns.rs`. A value that the format does
//! not allow is an error that names its row and column.

use std::{path::Path, str::FromStr};

use arrow_array::{
    Array, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, types::Int32Type,
};

use super::batch::{Batch, int32, int64};
use crate::{
    FormatError,
    event::{CallKind, EventKind, LockId, Mode, StackId, TaskId, TaskState},
    syscall::Syscall,
    tables::{Frame, LockRow, Stack, StackCounts, TaskRow},
};

/// A record batch and its position in the file.
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) row_group: usize,
    pub(super) first_row: u64,
    pub(super) batch: &'a RecordBatch,
}

impl Source<'_> {
    /// Builds the error for an invalid value.
    fn invalid(&self, row: usize, column: &'static str, detail: impl Into<String>) -> FormatError {
        FormatError::Value {
            path: self.path.to_owned(),
            row_group: self.row_group,
            row: self.first_row + row as u64,
            column,
            detail: detail.into(),
        }
    }

    /// Returns the column. Its type was checked when the file was opened.
    fn column<T: Array + Clone + 'static>(&self, name: &'static str) -> Result<T, FormatError> {
        let column = self.batch.column_by_name(name).and_then(|c| c.as_any().downcast_ref::<T>());
        column.cloned().ok_or_else(|| self.invalid(0, name, "the column has another type here"))
    }

    /// Reads the column if the batch has it.
    fn optional<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&'static str) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        self.batch.column_by_name(name).map(|_| read(name)).transpose()
    }

    /// Returns the column and checks that it has no nulls.
    fn required<T: Array + Clone + 'static>(&self, name: &'static str) -> Result<T, FormatError> {
        let column: T = self.column(name)?;
        let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        match nulls.and_then(|nulls| nulls.iter().position(|valid| !valid)) {
            Some(row) => Err(self.invalid(row, name, "null, but the format requires a value")),
            None => Ok(column),
        }
    }

    /// Reads a column of enum values, which may be null.
    fn values<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<Vec<Option<T>>, FormatError> {
        let (column, parsed) = self.dictionary::<T>(name)?;
        // Fast path: all names are valid.
        if let Some(known) = all_valid(&parsed) {
            let keys = column.keys().values().iter();
            if let ([only], None) = (&*known, column.keys().nulls()) {
                return Ok(vec![Some(*only); keys.len()]);
            }
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
                Some(Err(detail)) => Err(self.invalid(row, name, detail.clone())),
            })
            .collect()
    }

    /// Reads a column of enum values without nulls.
    fn required_values<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<Vec<T>, FormatError> {
        let (column, parsed) = self.dictionary::<T>(name)?;
        // Fast path: all names are valid and there are no nulls.
        if let Some(known) = all_valid(&parsed).filter(|_| column.null_count() == 0) {
            return Ok(column.keys().values().iter().map(|&key| known[key as usize]).collect());
        }
        let values = self.values(name)?.into_iter().enumerate();
        values
            .map(|(row, value)| {
                value.ok_or_else(|| self.invalid(row, name, "null, but the format requires a value"))
            })
            .collect()
    }

    /// Returns the column, and the parsed names of its dictionary.
    #[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
    fn dictionary<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<(DictionaryArray<Int32Type>, Vec<Result<T, String>>), FormatError> {
        let column: DictionaryArray<Int32Type> = self.column(name)?;
        let values = column.values().as_any().downcast_ref::<StringArray>();
        let values = values.ok_or_else(|| self.invalid(0, name, "not a text column"))?;
        let parsed =
            values.iter().map(|text| text.unwrap_or("").parse::<T>().map_err(|e| e.to_string())).collect();
        Ok((column, parsed))
    }
}

/// Returns the values of a dictionary if all its names are valid.
fn all_valid<T: Copy>(parsed: &[Result<T, String>]) -> Option<Vec<T>> {
    parsed.iter().map(|value| value.as_ref().ok().copied()).collect()
}

fn text(column: &StringArray, row: usize) -> Option<String> {
    column.is_valid(row).then(|| column.value(row).to_owned())
}

/// Reads the columns of events that are in the batch.
pub(super) fn events(source: &Source<'_>) -> Result<Batch, FormatError> {
    Ok(Batch {
        ts: source.required("ts_ns")?,
        kind: source.required_values("event")?,
        mode: source.optional("mode", |name| source.values::<Mode>(name))?,
        lock: source.optional("lock_id", |name| source.column(name))?,
        task: source.optional("task_id", |name| source.column(name))?,
        cpu: source.optional("cpu", |name| source.column(name))?,
        stack: source.optional("stack_id", |name| source.column(name))?,
        wait: source.optional("wait_ns", |name| source.column(name))?,
        blocked: source.optional("blocked_ns", |name| source.column(name))?,
        runq: source.optional("runq_ns", |name| source.column(name))?,
        peer_task: source.optional("peer_task_id", |name| source.column(name))?,
        peer_stack: source.optional("peer_stack_id", |name| source.column(name))?,
        errno: source.optional("errno", |name| source.column(name))?,
        count: source.optional("count", |name| source.column(name))?,
        state: source.optional("state", |name| source.values::<TaskState>(name))?,
        call: source.optional("call", |name| source.values::<CallKind>(name))?,
        syscall: source.optional("syscall", |name| source.values::<Syscall>(name))?,
    })
}

/// Adds the number of events of each kind to `counts`, in the order of [`EventKind::ALL`]. Counts dictionary keys, which is
/// faster than building rows.
pub(super) fn count_kinds(source: &Source<'_>, counts: &mut [u64]) -> Result<(), FormatError> {
    let (column, parsed) = source.dictionary::<EventKind>("event")?;
    match all_valid(&parsed).filter(|_| column.null_count() == 0) {
        Some(known) => {
            let mut by_key = vec![0_u64; known.len()];
            column.keys().values().iter().for_each(|&key| by_key[key as usize] += 1);
            known.iter().zip(by_key).for_each(|(kind, count)| counts[*kind as usize] += count);
        }
        // Some row is invalid; this returns the error for it.
        None => {
            let kinds: Vec<EventKind> = source.required_values("event")?;
            kinds.iter().for_each(|kind| counts[*kind as usize] += 1);
        }
    }
    Ok(())
}

/// Returns the id of a row, which must be its index.
fn dense(
    source: &Source<'_>,
    ids: &Int32Array,
    row: usize,
    column: &'static str,
) -> Result<i32, FormatError> {
    let id = ids.value(row);
    let index = source.first_row + row as u64;
    if i64::from(id) == i64::try_from(index).unwrap_or(-1) {
        Ok(id)
    } else {
        Err(source.invalid(row, column, format!("id {id} in row {index}, ids are dense from 0")))
    }
}

pub(super) fn stacks(source: &Source<'_>, into: &mut Vec<Stack>) -> Result<(), FormatError> {
    let ids: Int32Array = source.required("stack_id")?;
    let lists: ListArray = source.required("frames")?;
    for row in 0..ids.len() {
        let id = StackId(dense(source, &ids, row, "stack_id")?);
        let element = lists.value(row);
        let frames = element.as_any().downcast_ref::<StructArray>();
        let frames = frames.ok_or_else(|| source.invalid(row, "frames", "not a list of frames"))?;
        into.push(Stack { id, frames: frames_of(source, row, frames)? });
    }
    Ok(())
}

/// Adds the stacks and their frames, of which only the functions are read.
pub(super) fn count_frames(source: &Source<'_>, counts: &mut StackCounts) -> Result<(), FormatError> {
    let lists: ListArray = source.required("frames")?;
    let frames = lists.values().as_any().downcast_ref::<StructArray>();
    let symbols = frames.and_then(|frames| frames.column_by_name("symbol"));
    let symbols = symbols.ok_or_else(|| source.invalid(0, "frames", "not a list of frames"))?;
    counts.stacks += lists.len();
    counts.frames += symbols.len();
    counts.named += symbols.len() - symbols.null_count();
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
        column.ok_or_else(|| source.invalid(row, "frames", format!("field {name} has another type here")))
    }
    let strings = |name| field::<StringArray>(source, row, frames, name);
    let longs = |name| field::<Int64Array>(source, row, frames, name);
    let booleans = |name| field::<BooleanArray>(source, row, frames, name);
    let (address, offset, symbol_offset) = (longs("address")?, longs("offset")?, longs("symbol_offset")?);
    let (module, build_id, symbol) = (strings("module")?, strings("build_id")?, strings("symbol")?);
    let (file, line) = (strings("file")?, field::<Int32Array>(source, row, frames, "line")?);
    let (inlined, kernel) = (booleans("inlined")?, booleans("kernel")?);
    // Older traces do not have it.
    let guessed = booleans("guessed").ok();
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
            guessed: guessed.is_some_and(|guessed| guessed.is_valid(i) && guessed.value(i)),
        })
        .collect())
}

pub(super) fn locks(source: &Source<'_>, into: &mut Vec<LockRow>) -> Result<(), FormatError> {
    let ids: Int32Array = source.required("lock_id")?;
    let address: Int64Array = source.column("address")?;
    let (kinds, scopes) = (source.required_values("kind")?, source.required_values("scope")?);
    let (pid, init): (Int32Array, Int32Array) = (source.column("pid")?, source.column("init_stack_id")?);
    let name: StringArray = source.column("name")?;
    let shared: Option<StringArray> = source.optional("shared", |name| source.column(name))?;
    let (first, last): (Int64Array, Int64Array) = (source.required("first_ns")?, source.required("last_ns")?);
    for row in 0..ids.len() {
        into.push(LockRow {
            id: LockId(dense(source, &ids, row, "lock_id")?),
            address: int64(&address, row).map(i64::cast_unsigned),
            kind: kinds[row],
            scope: scopes[row],
            pid: int32(&pid, row),
            name: text(&name, row),
            shared: shared.as_ref().and_then(|shared| text(shared, row)),
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
    let parent: Option<Int32Array> = source.optional("parent_task_id", |name| source.column(name))?;
    for row in 0..ids.len() {
        into.push(TaskRow {
            id: TaskId(dense(source, &ids, row, "task_id")?),
            pid: pid.value(row),
            tid: tid.value(row),
            comm: text(&comm, row),
            start_ns: int64(&start, row),
            exit_ns: int64(&exit, row),
            cgroup: text(&cgroup, row),
            parent: parent.as_ref().and_then(|parent| int32(parent, row)).map(TaskId),
        });
    }
    Ok(())
}
