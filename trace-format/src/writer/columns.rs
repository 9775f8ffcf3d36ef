//! Converts rows of the side tables into Arrow columns, one function per table. Lists every field of a row, so that the compiler reports a
//! forgotten one.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, types::Int32Type,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, SchemaRef};

use crate::{
    schema,
    tables::{Frame, LockKind, LockRow, Scope, Stack, TaskRow},
};

/// Builds a column of enum values from the index of each row's value in `names`.
fn enum_column<'a>(keys: Int32Array, names: impl Iterator<Item = &'a str>) -> ArrayRef {
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    Arc::new(
        DictionaryArray::<Int32Type>::try_new(keys, values)
            .expect("every key is the index of a declared value"),
    )
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(Arc::clone(schema), columns)
        .expect("the columns follow the declarations that the schema is made from")
}

/// Builds the stacks table.
pub(super) fn stacks(stacks: &[Stack]) -> RecordBatch {
    let ids = Int32Array::from_iter_values(stacks.iter().map(|s| s.id.0));
    let frames: Vec<&Frame> = stacks.iter().flat_map(|s| &s.frames).collect();
    let lengths = stacks.iter().map(|s| s.frames.len());
    let DataType::List(element) = schema::ColumnType::Frames.arrow() else {
        unreachable!("frames are a list")
    };
    let list =
        ListArray::new(element, OffsetBuffer::from_lengths(lengths), Arc::new(frame_struct(&frames)), None);
    batch(&schema::arrow_schema(schema::STACKS), vec![Arc::new(ids), Arc::new(list)])
}

fn frame_struct(frames: &[&Frame]) -> StructArray {
    fn text<'a>(frames: &[&'a Frame], of: impl Fn(&'a Frame) -> Option<&'a str>) -> ArrayRef {
        Arc::new(frames.iter().map(|f| of(f)).collect::<StringArray>())
    }
    fn number(frames: &[&Frame], of: impl Fn(&Frame) -> Option<u64>) -> ArrayRef {
        Arc::new(frames.iter().map(|f| of(f).map(u64::cast_signed)).collect::<Int64Array>())
    }
    fn boolean(frames: &[&Frame], of: impl Fn(&Frame) -> bool) -> ArrayRef {
        Arc::new(frames.iter().map(|f| Some(of(f))).collect::<BooleanArray>())
    }
    let columns: Vec<ArrayRef> = vec![
        number(frames, |f| f.address),
        text(frames, |f| f.module.as_deref()),
        text(frames, |f| f.build_id.as_deref()),
        number(frames, |f| f.offset),
        text(frames, |f| f.symbol.as_deref()),
        number(frames, |f| f.symbol_offset),
        text(frames, |f| f.file.as_deref()),
        Arc::new(frames.iter().map(|f| f.line).collect::<Int32Array>()),
        boolean(frames, |f| f.inlined),
        boolean(frames, |f| f.kernel),
        boolean(frames, |f| f.guessed),
    ];
    StructArray::new(schema::arrow_schema(schema::FRAME).fields().clone(), columns, None)
}

/// Builds the locks table.
pub(super) fn locks(locks: &[LockRow]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(locks.iter().map(|l| l.id.0))),
        Arc::new(locks.iter().map(|l| l.address.map(u64::cast_signed)).collect::<Int64Array>()),
        enum_column(
            Int32Array::from_iter_values(locks.iter().map(|l| l.kind as i32)),
            LockKind::ALL.iter().map(|k| k.as_str()),
        ),
        enum_column(
            Int32Array::from_iter_values(locks.iter().map(|l| l.scope as i32)),
            Scope::ALL.iter().map(|s| s.as_str()),
        ),
        Arc::new(locks.iter().map(|l| l.pid).collect::<Int32Array>()),
        Arc::new(locks.iter().map(|l| l.name.as_deref()).collect::<StringArray>()),
        Arc::new(locks.iter().map(|l| l.init_stack.map(|s| s.0)).collect::<Int32Array>()),
        Arc::new(Int64Array::from_iter_values(locks.iter().map(|l| l.first_ns))),
        Arc::new(Int64Array::from_iter_values(locks.iter().map(|l| l.last_ns))),
        Arc::new(locks.iter().map(|l| l.shared.as_deref()).collect::<StringArray>()),
    ];
    batch(&schema::arrow_schema(schema::LOCKS), columns)
}

/// Builds the tasks table.
pub(super) fn tasks(tasks: &[TaskRow]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(tasks.iter().map(|t| t.id.0))),
        Arc::new(Int32Array::from_iter_values(tasks.iter().map(|t| t.pid))),
        Arc::new(Int32Array::from_iter_values(tasks.iter().map(|t| t.tid))),
        Arc::new(tasks.iter().map(|t| t.comm.as_deref()).collect::<StringArray>()),
        Arc::new(tasks.iter().map(|t| t.start_ns).collect::<Int64Array>()),
        Arc::new(tasks.iter().map(|t| t.exit_ns).collect::<Int64Array>()),
        Arc::new(tasks.iter().map(|t| t.cgroup.as_deref()).collect::<StringArray>()),
        Arc::new(tasks.iter().map(|t| t.parent.map(|p| p.0)).collect::<Int32Array>()),
    ];
    batch(&schema::arrow_schema(schema::TASKS), columns)
}
