//! Converts rows into Arrow columns, one function per table. Lists every field of a row, so that the compiler reports a
//! forgotten one.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray,
    builder::{Int32Builder, Int64Builder},
    types::Int32Type,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, SchemaRef};

use crate::{
    event::{Event, EventKind, LockId, Mode, StackId, TaskId, TaskState},
    schema,
    tables::{Frame, LockKind, LockRow, Scope, Stack, TaskRow},
};

/// Buffered events, stored column by column.
#[derive(Debug, Default)]
pub(super) struct EventColumns {
    ts: Int64Builder,
    kind: Int32Builder,
    mode: Int32Builder,
    lock: Int32Builder,
    task: Int32Builder,
    cpu: Int32Builder,
    stack: Int32Builder,
    wait: Int64Builder,
    blocked: Int64Builder,
    runq: Int64Builder,
    peer_task: Int32Builder,
    peer_stack: Int32Builder,
    errno: Int32Builder,
    count: Int64Builder,
    state: Int32Builder,
    rows: usize,
}

impl EventColumns {
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    pub(super) fn push(&mut self, event: &Event) {
        let Event {
            ts_ns,
            kind,
            mode,
            lock,
            task,
            cpu,
            stack,
            wait_ns,
            blocked_ns,
            runq_ns,
            peer_task,
            peer_stack,
            errno,
            count,
            state,
        } = *event;
        self.ts.append_value(ts_ns);
        self.kind.append_value(kind as i32);
        self.mode.append_option(mode.map(|m| m as i32));
        self.lock.append_option(lock.map(|LockId(id)| id));
        self.task.append_option(task.map(|TaskId(id)| id));
        self.cpu.append_option(cpu);
        self.stack.append_option(stack.map(|StackId(id)| id));
        self.wait.append_option(wait_ns);
        self.blocked.append_option(blocked_ns);
        self.runq.append_option(runq_ns);
        self.peer_task.append_option(peer_task.map(|TaskId(id)| id));
        self.peer_stack.append_option(peer_stack.map(|StackId(id)| id));
        self.errno.append_option(errno);
        self.count.append_option(count);
        self.state.append_option(state.map(|s| s as i32));
        self.rows += 1;
    }

    /// Returns the buffered rows as a batch and empties the buffer.
    pub(super) fn take(&mut self, schema: &SchemaRef) -> RecordBatch {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.ts.finish()),
            enum_column(self.kind.finish(), EventKind::ALL.iter().map(|k| k.as_str())),
            enum_column(self.mode.finish(), Mode::ALL.iter().map(|m| m.as_str())),
            Arc::new(self.lock.finish()),
            Arc::new(self.task.finish()),
            Arc::new(self.cpu.finish()),
            Arc::new(self.stack.finish()),
            Arc::new(self.wait.finish()),
            Arc::new(self.blocked.finish()),
            Arc::new(self.runq.finish()),
            Arc::new(self.peer_task.finish()),
            Arc::new(self.peer_stack.finish()),
            Arc::new(self.errno.finish()),
            Arc::new(self.count.finish()),
            enum_column(self.state.finish(), TaskState::ALL.iter().map(|s| s.as_str())),
        ];
        batch(schema, columns)
    }
}

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
    ];
    batch(&schema::arrow_schema(schema::TASKS), columns)
}
