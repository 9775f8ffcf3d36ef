//! Histories of forks, execs and exits, and the rows that they make.

use proptest::prelude::*;

use super::*;
use crate::system::control_groups::Throttling;

fn task(code: u8, ts_ns: u64, tgid: u32, tid: u32, comm: &str) -> WireTask {
    let mut padded = [0; 16];
    padded[..comm.len()].copy_from_slice(comm.as_bytes());
    WireTask { ts_ns, code, tgid, tid, comm: padded, parent_tid: tid, ..Default::default() }
}

/// The group `/app`, which had used up its quota this often.
fn app(periods: i64) -> ControlGroup {
    ControlGroup { path: Some("/app".into()), throttling: Some(Throttling::known("/cg/app", periods)) }
}

fn no_tasks() -> Tasks {
    Tasks::new([], Box::new(|_, _| None))
}

#[test]
fn a_reused_thread_id_is_another_task() {
    let mut tasks = no_tasks();
    tasks.apply(&task(code::TASK_FORK, 10, 1, 7, "first"));
    let first = tasks.id(1, 7, 0);
    tasks.apply(&task(code::TASK_EXIT, 20, 1, 7, "first"));
    tasks.apply(&task(code::TASK_FORK, 30, 1, 7, "second"));
    let second = tasks.id(1, 7, 0);
    let rows = tasks.into_rows();
    let row = |id: TaskId| &rows[id.0 as usize];
    assert_eq!((row(first).comm.as_deref(), row(first).exit_ns), (Some("first"), Some(20)));
    assert_eq!((row(second).comm.as_deref(), row(second).start_ns), (Some("second"), Some(30)));
    assert_eq!(row(second).exit_ns, None);
}

#[test]
fn a_thread_is_known_by_its_id_for_two_minutes_after_its_end_and_keeps_its_row() {
    let mut tasks = no_tasks();
    let fork = |ts_ns, tid| task(code::TASK_FORK, ts_ns, 1, tid, "t");
    let exit = |ts_ns, tid| task(code::TASK_EXIT, ts_ns, 1, tid, "t");
    let step = KEPT_NS as u64;
    tasks.apply(&fork(10, 7));
    let first = tasks.id(1, 7, 0);
    for (ts_ns, tid, is_known) in [(step, 8, true), (step + 20, 9, true), (step + 21, 10, false)] {
        tasks.apply(&if tid == 8 { exit(20, 7) } else { fork(ts_ns, tid) });
        tasks.apply(&fork(ts_ns, tid + 10));
        tasks.apply(&exit(ts_ns, tid + 10));
        assert_eq!(tasks.by_tid.contains_key(&7), is_known, "{ts_ns}");
    }
    assert_eq!(tasks.rows()[first.0 as usize].exit_ns, Some(20));
}

#[test]
fn an_exec_starts_a_new_task_and_a_new_process_under_the_old_ids() {
    let mut tasks = no_tasks();
    tasks.apply(&task(code::TASK_FORK, 10, 5, 5, "sh"));
    let (shell, before) = (tasks.id(5, 5, 0), tasks.process(5));
    tasks.apply(&task(code::TASK_EXEC, 20, 5, 5, "make"));
    let (make, after) = (tasks.id(5, 5, 0), tasks.process(5));
    assert_ne!(shell, make);
    assert_ne!(before, after);
    assert_eq!((tasks.since_ns(before), tasks.since_ns(after)), (10, 20));
    assert_eq!(tasks.rows()[0].exit_ns, Some(20));
}

#[test]
fn the_thread_that_execs_becomes_the_leader() {
    let mut tasks = no_tasks();
    tasks.apply(&task(code::TASK_FORK, 10, 5, 6, "worker"));
    let worker = tasks.id(5, 6, 0);
    tasks.apply(&WireTask { parent_tid: 6, ..task(code::TASK_EXEC, 20, 5, 5, "new") });
    assert_eq!(tasks.rows()[worker.0 as usize].exit_ns, Some(20));
}

#[test]
fn a_new_name_changes_an_existing_row() {
    let mut tasks = no_tasks();
    tasks.apply(&task(code::TASK_FORK, 10, 5, 5, "java"));
    let id = tasks.id(5, 5, 0);
    tasks.apply(&task(code::TASK_RENAME, 15, 5, 5, "GC Thread#0"));
    assert_eq!(tasks.rows()[id.0 as usize].comm.as_deref(), Some("GC Thread#0"));
}

#[test]
fn an_exiting_task_keeps_its_row() {
    let mut tasks = no_tasks();
    tasks.apply(&task(code::TASK_FORK, 10, 5, 5, "a"));
    tasks.apply(&task(code::TASK_EXIT, 20, 5, 5, "a"));
    let id = tasks.id(5, 5, 0);
    assert_eq!(tasks.rows()[id.0 as usize].exit_ns, Some(20));
    assert_eq!(tasks.rows().len(), 1);
}

#[test]
fn a_task_without_descriptor_is_looked_up_once() {
    let calls = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = std::rc::Rc::clone(&calls);
    let mut tasks = Tasks::new(
        [],
        Box::new(move |tgid, tid| {
            counted.set(counted.get() + 1);
            (tid == 8).then(|| Known { tgid, tid, comm: Some("found".into()), ..Known::default() })
        }),
    );
    let (found, gone) = (tasks.id(8, 8, 0), tasks.id(9, 9, 0));
    tasks.id(8, 8, 0);
    tasks.id(9, 9, 0);
    assert_eq!(calls.get(), 2);
    assert_eq!(tasks.rows()[found.0 as usize].comm.as_deref(), Some("found"));
    assert_eq!(tasks.rows()[gone.0 as usize].comm, None);
}

#[test]
fn a_thread_of_another_process_lends_no_name() {
    let other = |_, tid| Some(Known { tgid: 99, tid, comm: Some("other".into()), ..Known::default() });
    let mut tasks = Tasks::new([], Box::new(other));
    tasks.id(8, 8, 0);
    assert_eq!((tasks.rows()[0].pid, &tasks.rows()[0].comm), (8, &None));
}

#[test]
fn a_process_that_records_itself_starts_with_its_leader_and_a_new_program_is_another_process() {
    let mut tasks = no_tasks();
    let known = Known { tgid: 5, tid: 5, group: app(5), ..Known::default() };
    tasks.start_image(5, Some(known), 100, true);
    tasks.start_thread(5, 5, b"main\0\0\0\0\0\0\0\0\0\0\0\0", 110);
    tasks.start_thread(5, 6, b"worker\0\0\0\0\0\0\0\0\0\0", 120);
    let (first, main, worker) = (tasks.process(5), tasks.id(5, 5, 0), tasks.id(5, 6, 0));
    tasks.exit_thread(6, b"worker-1\0\0\0\0\0\0\0\0", 150);
    tasks.start_image(5, None, 200, true);
    assert_ne!(tasks.process(5), first);
    assert_ne!(tasks.id(5, 5, 0), main);
    let row = |id: TaskId| tasks.rows()[id.0 as usize].clone();
    assert_eq!(
        (row(main).comm.as_deref(), row(main).start_ns, row(main).exit_ns),
        (Some("main"), Some(100), Some(200))
    );
    assert_eq!((row(worker).comm.as_deref(), row(worker).exit_ns), (Some("worker-1"), Some(150)));
    assert_eq!(row(worker).cgroup.as_deref(), Some("/app"));
}

#[test]
fn a_session_soon_after_an_exit_is_the_same_thread_and_a_later_one_is_not() {
    let mut tasks = no_tasks();
    let name = b"t\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    tasks.start_image(5, None, 0, true);
    tasks.start_thread(5, 6, name, 100);
    let thread = tasks.id(5, 6, 0);
    tasks.exit_thread(6, name, 200);
    tasks.start_thread(5, 6, name, 300);
    assert_eq!(tasks.id(5, 6, 0), thread);
    tasks.start_thread(5, 6, name, 1_000_000_000);
    assert_ne!(tasks.id(5, 6, 0), thread);
}

#[test]
fn a_thread_that_was_born_begins_then_and_has_its_creator_when_it_records_itself() {
    let mut tasks = no_tasks();
    let name = b"t\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    tasks.born(5, 6, 5, 90);
    tasks.start_image(5, None, 100, true);
    tasks.born(5, 6, 5, 110);
    tasks.born(5, 7, 6, 120);
    tasks.start_thread(5, 7, name, 150);
    tasks.start_thread(5, 6, name, 160);
    let [main, first, second] = [5, 6, 7].map(|tid| tasks.id(5, tid, 0));
    let row = |tasks: &Tasks, id: TaskId| tasks.rows()[id.0 as usize].clone();
    assert_eq!([first, second].map(|id| row(&tasks, id).start_ns), [Some(110), Some(120)]);
    assert_eq!([main, first, second].map(|id| row(&tasks, id).parent), [None, Some(main), Some(first)]);
    // The thread id is used again.
    tasks.exit_thread(6, name, 200);
    tasks.born(5, 6, 7, 201);
    tasks.start_thread(5, 6, name, 202);
    let again = tasks.id(5, 6, 0);
    assert_ne!(again, first);
    assert_eq!((row(&tasks, again).start_ns, row(&tasks, again).parent), (Some(201), Some(second)));
    tasks.exit_born(6, 300);
    tasks.exit_born(5, 310);
    assert_eq!([again, main].map(|id| row(&tasks, id).exit_ns), [Some(300), None]);
    tasks.start_thread(5, 6, name, 1_000_000_000);
    assert_ne!(tasks.id(5, 6, 0), again, "its birth was not seen");
}

#[test]
fn a_goroutine_has_a_row_of_its_own_in_each_process() {
    let mut tasks = no_tasks();
    let (a, b) = (tasks.process(5), tasks.process(6));
    let first = tasks.goroutine(a, 5, 0xc000_0040);
    let second = tasks.goroutine(b, 6, 0xc000_0040);
    assert_eq!(tasks.goroutine(a, 5, 0xc000_0040), first);
    let row = |id: TaskId| &tasks.rows()[id.0 as usize];
    assert_eq!((row(first).pid, row(first).tid, row(first).comm.as_deref()), (5, -1, Some("goroutine")));
    assert_eq!((row(second).pid, row(second).tid), (6, -2));
}

#[test]
fn each_cpu_has_an_idle_task_of_its_own() {
    let mut tasks = no_tasks();
    let (a, b) = (tasks.id(0, 0, 0), tasks.id(0, 0, 1));
    assert_ne!(a, b);
    assert_eq!(tasks.id(0, 0, 0), a);
    assert_eq!(tasks.rows()[1].comm.as_deref(), Some("swapper/1"));
}

#[test]
fn a_task_names_its_creator_whichever_of_them_has_the_first_event() {
    let mut tasks = no_tasks();
    tasks.apply(&task(code::TASK_FORK, 10, 5, 5, "main"));
    tasks.apply(&WireTask { parent_tid: 5, ..task(code::TASK_FORK, 20, 5, 6, "first") });
    let first = tasks.id(5, 6, 0);
    assert_eq!(tasks.rows()[first.0 as usize].parent, None, "the creator has no row");
    let main = tasks.id(5, 5, 0);
    tasks.apply(&WireTask { parent_tid: 6, ..task(code::TASK_FORK, 30, 5, 7, "second") });
    let second = tasks.id(5, 7, 0);
    let parent = |id: TaskId| tasks.rows()[id.0 as usize].parent;
    assert_eq!([first, second, main].map(parent), [Some(main), Some(first), None]);
}

#[test]
fn the_next_owner_of_a_thread_id_is_no_parent_and_a_new_program_has_none() {
    let mut tasks = no_tasks();
    tasks.apply(&task(code::TASK_FORK, 10, 5, 5, "sh"));
    tasks.apply(&WireTask { parent_tid: 5, ..task(code::TASK_FORK, 20, 6, 6, "sh") });
    let child = tasks.id(6, 6, 0);
    tasks.apply(&task(code::TASK_EXIT, 30, 5, 5, "sh"));
    tasks.apply(&task(code::TASK_FORK, 40, 5, 5, "other"));
    tasks.id(5, 5, 0);
    tasks.apply(&WireTask { parent_tid: 6, ..task(code::TASK_EXEC, 50, 6, 6, "make") });
    let make = tasks.id(6, 6, 0);
    let parent = |id: TaskId| tasks.rows()[id.0 as usize].parent;
    assert_eq!([child, make].map(parent), [None, None]);
}

#[test]
fn the_periods_without_quota_count_from_the_first_look_at_a_process_or_at_its_parent() {
    let parent = Known { tgid: 5, tid: 5, group: app(5), ..Known::default() };
    let mut tasks = Tasks::new([parent], no_lookup());
    tasks.apply(&WireTask { parent_tid: 5, ..task(code::TASK_FORK, 10, 6, 6, "child") });
    let rows = [5, 6, 7].map(|pid| tasks.id(pid, pid, 0));
    let times = |group: ControlGroup| ProcessTimes { cpu_ns: Some(3), throttling: group.throttling };
    tasks.read_process_times(0, |_| times(app(7)));
    let throttled = |tasks: &Tasks| {
        rows.map(|id| &tasks.rows()[id.0 as usize]).map(|row| row.throttled_periods.zip(row.throttled_ns))
    };
    assert_eq!(throttled(&tasks), [Some((2, 20)), Some((2, 20)), None]);
    tasks.exit_process(6, ProcessExit { exit_ns: 20, times: times(app(9)) });
    assert_eq!(throttled(&tasks), [Some((2, 20)), Some((4, 40)), None]);
}

#[test]
fn a_child_starts_in_the_cgroup_of_its_parent() {
    let parent = Known { tgid: 5, tid: 5, group: app(5), ..Known::default() };
    let mut tasks = Tasks::new([parent], Box::new(|_, _| None));
    tasks.apply(&WireTask { parent_tid: 5, ..task(code::TASK_FORK, 10, 6, 6, "child") });
    tasks.id(6, 6, 0);
    assert_eq!(tasks.rows()[0].cgroup.as_deref(), Some("/app"));
}

proptest! {
    #[test]
    fn the_changed_rows_make_the_rows_of_before_those_of_now(
        steps in prop::collection::vec((0..6_u8, 0..3_u32, 0..3_u32), 0..60),
    ) {
        let mut tasks = no_tasks();
        let mut copy: Vec<TaskRow> = Vec::new();
        for (ts_ns, (step, tid, other)) in (1..).zip(steps) {
            let (tid, other) = (tid + 5, other + 5);
            let code = match step {
                0 => code::TASK_FORK,
                1 => code::TASK_EXEC,
                2 => code::TASK_RENAME,
                3 => code::TASK_EXIT,
                _ => 0,
            };
            let name = if ts_ns % 2 == 0 { "a" } else { "b" };
            tasks.apply(&WireTask { parent_tid: other, ..task(code, ts_ns, 5, tid, name) });
            match step {
                4 => drop(tasks.id(5, tid, 0)),
                5 => {
                    let (first, second) = (tasks.id(5, tid, 0), tasks.id(5, other, 0));
                    tasks.set_creator(first, second, ts_ns as i64);
                    for row in tasks.take_changed() {
                        let at = row.id.0 as usize;
                        if at == copy.len() { copy.push(row) } else { copy[at] = row }
                    }
                    prop_assert_eq!(&*copy, tasks.rows());
                }
                _ => {}
            }
        }
    }
}
