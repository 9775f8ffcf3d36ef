//! The keys of rows in the model: the key columns that belong to a lock, a task and a stack of the random
//! histories.

use trace_format::{LockId, LockKind, StackId, TaskId};

use super::{Key, context::TASKS};
use crate::key::By;
use intervals::engine::histories::KINDS;

/// Returns the thread id of a task.
pub(super) fn tid(task: TaskId) -> i32 {
    TASKS[task.0 as usize].tid
}

/// Returns the key columns of a row, as in CSV.
pub(super) fn key(by: By, lock: LockId, task: TaskId, stack: Option<StackId>) -> Key {
    let kind = KINDS[lock.0 as usize];
    let who = &TASKS[task.0 as usize];
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let class = [kind.to_string(), String::new()];
    let id = stack;
    // No stack has a user frame, so the site of a user lock is unknown.
    let stack = stack.filter(|_| kind.is_kernel()).map(|stack| stack.0);
    let key: Vec<String> = match by {
        By::Lock => vec![lock.0.to_string(), String::new(), kind.to_string(), String::new()],
        By::Site => match stack {
            Some(0 | 1) => ["a.c", "1", "f", "a.c:1"].map(str::to_owned).into_iter().chain(class).collect(),
            Some(_) => ["a.c", "2", "f", "a.c:2"].map(str::to_owned).into_iter().chain(class).collect(),
            None => ["", "", "", "(unknown)"].map(str::to_owned).into_iter().chain(class).collect(),
        },
        By::Stack => {
            let functions = match stack {
                Some(0) => "f",
                Some(1) => "f;g",
                Some(_) => "f;h",
                None => "",
            };
            [functions.to_owned()].into_iter().chain(class).collect()
        }
        By::Class => class.to_vec(),
        By::Kind => vec![kind.to_string()],
        By::Task => vec![task.0.to_string(), who.pid.to_string(), who.tid.to_string(), text(who.comm)],
        By::TaskLock => {
            let (task, lock) = (key(By::Task, lock, task, None), key(By::Lock, lock, task, None));
            let [lock_id, address, kind, _] = <[String; 4]>::try_from(lock).unwrap();
            let of_lock = [lock_id, address, kind, String::new(), String::new()];
            task.into_iter().chain(of_lock).collect()
        }
        By::Process => {
            let pid = who.pid;
            let of_first = TASKS.iter().find(|task| task.pid == pid && task.tid == pid).and_then(|t| t.comm);
            let any = || TASKS.iter().rev().filter(|task| task.pid == pid).find_map(|task| task.comm);
            vec![pid.to_string(), text(of_first.or_else(any))]
        }
        By::Comm => vec![text(who.comm)],
        By::Cgroup => vec![text(who.cgroup)],
        By::Host => vec!["here".to_owned()],
        // No stack of the model has a function with a purpose.
        By::Purpose => vec![if kind == LockKind::CondVar { "condvar" } else { "lock" }.to_owned()],
        list => {
            let functions = key(By::Stack, lock, task, id).swap_remove(0);
            match list.to_string().as_str() {
                "task,lock,stack" => [key(By::TaskLock, lock, task, id), vec![functions]].concat(),
                "process,kind,stack" => {
                    let [kind, name] = class;
                    [key(By::Process, lock, task, id), vec![kind, functions, name]].concat()
                }
                other => unreachable!("the model does not know {other}"),
            }
        }
    };
    key
}
