//! The keys of off-CPU times while they are added up. A long recording has millions, each with two stacks:
//! keys are numbers until the rows that are shown get their names.

use std::hash::Hash;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use serde::Serialize;
use trace_format::{Event, EventRow as _, Frame, StackId, Syscall, TaskId, TaskState};

use intervals::{
    input::Input,
    input::names::{function, is_interrupt},
};
use output::{choices, error::AnalyzeError};

choices! {
    /// The key of a row.
    By, "key" {
        /// One task with its stack, and its waker with its stack.
        #[default]
        Pair = "pair",
        /// One stack of tasks that left the CPU.
        Stack = "stack",
        /// One waker.
        Waker = "waker",
        /// One task that was off-CPU.
        Task = "task",
        /// One state of tasks.
        State = "state",
        /// One system call in which tasks left the CPU.
        Syscall = "syscall",
    }
}

/// The key of a row: the parts that [`By`] selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// The task that was off-CPU.
    pub target: Option<Side>,
    /// The task whose wake-up ended it.
    pub waker: Option<Side>,
    /// Its state.
    pub state: Option<TaskState>,
    /// The system call in which it left the CPU.
    pub syscall: Option<Syscall>,
    /// The trace, if there are several and the row belongs to one.
    #[serde(skip)]
    pub(super) trace: Option<String>,
}

/// A task in a row, with its stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Side {
    /// Its process; `None` if there is no task.
    pub pid: Option<i32>,
    /// Its thread id.
    pub tid: Option<i32>,
    /// Its name.
    pub comm: Option<String>,
    /// The name with its ids; safe to print.
    pub name: String,
    /// The functions of its stack, kernel frames first, leaf first; empty if the row is about more than one
    /// stack.
    pub stack: Vec<String>,
}

pub(super) const fn has_target(by: By) -> bool {
    matches!(by, By::Pair | By::Stack | By::Task)
}

pub(super) const fn has_waker(by: By) -> bool {
    matches!(by, By::Pair | By::Waker)
}

/// The key of a row by the ids of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct IdKey {
    target: Option<TaskId>,
    pub(super) stack: Option<StackId>,
    waker: Option<TaskId>,
    pub(super) waker_stack: Option<StackId>,
    state: Option<TaskState>,
    syscall: Option<Syscall>,
}

impl IdKey {
    pub(super) fn of(event: &Event, by: By) -> Self {
        let Event { task: target, stack, peer_stack: waker_stack, .. } = *event;
        let waker = event.waker();
        let none = Self::default();
        match by {
            By::Pair => Self { target, stack, waker, waker_stack, ..none },
            By::Stack => Self { stack, ..none },
            By::Waker => Self { waker, waker_stack, ..none },
            By::Task => Self { target, ..none },
            By::State => Self { state: event.state, ..none },
            By::Syscall => Self { syscall: event.syscall, ..none },
        }
    }
}

/// Different values, numbered in the order in which they came. Stacks have 31 bits, so the numbers fit.
pub(super) type Distinct<T> = IndexSet<T, FxBuildHasher>;

pub(super) fn number<T: Eq + Hash>(values: &mut Distinct<T>, value: T) -> u32 {
    values.insert_full(value).0 as u32
}

/// A key by numbers of names, which are the same in all traces: a long recording has millions of keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NumberKey {
    /// The task and the functions.
    target: Option<(u32, u32)>,
    waker: Option<(u32, u32)>,
    state: Option<TaskState>,
    syscall: Option<Syscall>,
    /// The index of the trace, if there are several.
    trace: Option<usize>,
}

/// The waker of tasks that a timer or a device wakes.
const INTERRUPT: &str = "(interrupt)";

/// The names of the keys of all traces.
#[derive(Default)]
pub(super) struct KeyNames {
    functions: Distinct<String>,
    /// Lists of functions.
    stacks: Distinct<Vec<u32>>,
    /// Tasks, without stacks.
    tasks: Distinct<Side>,
}

/// The numbers of the names of one trace.
pub(super) struct TraceNumbers<'a> {
    at: usize,
    input: &'a Input<'a>,
    stacks: FxHashMap<StackId, u32>,
    /// The stacks of interrupts, up to the function with which the kernel enters them.
    interrupts: FxHashMap<StackId, u32>,
    no_stack: u32,
    /// Those of the tasks so far.
    tasks: FxHashMap<Option<TaskId>, u32>,
}

/// Returns the names of a task.
fn without_stack(task: Option<TaskId>, input: &Input<'_>) -> Side {
    let row = task.and_then(|task| input.names.task(task));
    Side {
        pid: row.map(|row| row.pid),
        tid: row.map(|row| row.tid),
        comm: row.and_then(|row| row.comm.clone()),
        name: task.map_or_else(String::new, |task| input.names.task_label(task)),
        stack: Vec::new(),
    }
}

impl KeyNames {
    /// Numbers the wanted stacks of a trace. A task gets its number with the first key that has the task.
    pub(super) fn of_trace<'a>(
        &mut self,
        (at, input): (usize, &'a Input<'a>),
        wanted: &FxHashSet<StackId>,
    ) -> Result<TraceNumbers<'a>, AnalyzeError> {
        let (mut stacks, mut interrupts) = (FxHashMap::default(), FxHashMap::default());
        if !wanted.is_empty() {
            input.trace.each_stack(|stack| {
                if wanted.contains(&stack.id) {
                    let functions = stack.frames.iter().map(function);
                    let functions: Vec<u32> =
                        functions.map(|name| number(&mut self.functions, name)).collect();
                    let enters =
                        |frame: &Frame| frame.kernel && frame.symbol.as_deref().is_some_and(is_interrupt);
                    if let Some(at) = stack.frames.iter().position(enters) {
                        interrupts.insert(stack.id, number(&mut self.stacks, functions[..=at].to_vec()));
                    }
                    stacks.insert(stack.id, number(&mut self.stacks, functions));
                }
            })?;
        }
        let no_stack = number(&mut self.stacks, Vec::new());
        Ok(TraceNumbers { at, input, stacks, interrupts, no_stack, tasks: FxHashMap::default() })
    }

    /// Returns the key with the names of a trace. A task that an interrupt found on the CPU woke nobody.
    pub(super) fn number(&mut self, key: IdKey, by: By, of: &mut TraceNumbers<'_>) -> NumberKey {
        let interrupt = key.waker_stack.and_then(|stack| of.interrupts.get(&stack)).map(|stack| {
            let name = INTERRUPT.to_owned();
            (number(&mut self.tasks, Side { name, ..Side::default() }), *stack)
        });
        let mut side = |task: Option<TaskId>, stack: Option<StackId>| {
            let find = || number(&mut self.tasks, without_stack(task, of.input));
            let task = *of.tasks.entry(task).or_insert_with(find);
            (task, stack.and_then(|stack| of.stacks.get(&stack)).copied().unwrap_or(of.no_stack))
        };
        let is_of_trace = matches!(by, By::Pair | By::Waker | By::Task);
        NumberKey {
            target: has_target(by).then(|| side(key.target, key.stack)),
            waker: has_waker(by).then(|| {
                match interrupt.unwrap_or_else(|| side(key.waker, key.waker_stack)) {
                    (task, _) if by == By::Waker => (task, of.no_stack),
                    waker => waker,
                }
            }),
            state: key.state,
            syscall: key.syscall,
            trace: is_of_trace.then_some(of.at),
        }
    }

    pub(super) fn key(&self, key: NumberKey, inputs: &[Input<'_>]) -> Key {
        let side = |(task, stack): (u32, u32)| {
            let functions = self.stacks[stack as usize].iter();
            let stack = functions.map(|function| self.functions[*function as usize].clone());
            Side { stack: stack.collect(), ..self.tasks[task as usize].clone() }
        };
        Key {
            target: key.target.map(side),
            waker: key.waker.map(side),
            state: key.state,
            syscall: key.syscall,
            trace: key.trace.filter(|_| inputs.len() > 1).map(|at| inputs[at].label.clone()),
        }
    }
}
