//! Plans for machines that differ from this one.

use rustix::thread::CapabilitySet;
use trace_format::{kernel_functions::kinds, run_info::Covers};

use super::*;
use crate::{
    options::ProbePreference,
    setup::{btf::TaskOffsets, filters::ThreadSpace},
};

/// Programs of both languages are probed.
const PROBED: LockSources = LockSources { rust: true, go: true, ..LockSources::NONE };

const FUTEXES: LockSources = LockSources { futex: true, ..LockSources::NONE };
const WITHOUT_PTHREAD: LockSources = LockSources { pthread: false, ..LockSources::OF_PROGRAMS };

fn machine() -> HostFacts {
    HostFacts {
        kernel: "6.12.0".to_owned(),
        arch: "x86_64".to_owned(),
        cpus_online: Some(4),
        cpus_possible: Some(8),
        capabilities: Some(CapabilitySet::all()),
        types: Some(KernelTypes {
            task: TaskOffsets {
                pid: Some(1),
                tgid: Some(2),
                comm: Some(3),
                state: Some(4),
                flags: Some(5),
                stack: Some(6),
                leader: Some(8),
                start: Some(9),
                execs: Some(10),
                status: Some(7),
            },
            functions: ["mutex_lock", "mutex_unlock", "down_read"].into(),
            ..KernelTypes::default()
        }),
        fentry: Some(true),
        kprobes: true,
        preemptible: Some(false),
        functions: ["mutex_lock", "mutex_unlock", "up_read", "down_read"].into(),
        tracefs: Some("/sys/kernel/tracing"),
        contention: Some(true),
        futex_calls: vec!["futex", "futex_waitv"],
        ..HostFacts::default()
    }
}

#[test]
fn a_capable_machine_gets_every_source_and_a_ring_for_each_possible_cpu() {
    let plan = Plan::new(&machine(), &Selection::everything()).unwrap();
    assert_eq!((plan.cpus, plan.ring_bytes), (8, 8 << 20));
    let kinds = |name: &str| plan.sources(PROBED).into_iter().find(|source| source.name == name).unwrap();
    assert!(kinds("pthread_uprobe").holds && !kinds("pthread_condition").holds);
    assert!(!kinds("rust_uprobe").holds && !kinds("go_uprobe").uncontended);
    assert_eq!(plan.sources(PROBED).len(), 6);
    let without = plan.sources(LockSources::NONE);
    assert_eq!(without.len(), 4);
    assert!(without.iter().all(|source| !["rust_uprobe", "go_uprobe"].contains(&source.name.as_str())));
    assert!(plan.sources.contains(&Attachment::raw("contention_begin", "contention_begin")));
    let waitv =
        Attachment::Syscall { program: "enter_futex_waitv", tracepoint: "sys_enter_futex_waitv".into() };
    assert!(plan.sources.contains(&waitv));
}

fn holds(preference: ProbePreference) -> Selection {
    Selection { kernel: Some(KernelDepth::Holds(preference)), ..Selection::everything() }
}

fn probes(plan: &Plan) -> Vec<&str> {
    fn program(attach: &Attachment) -> Option<&str> {
        match attach {
            Attachment::Function { program, .. } => Some(program),
            _ => None,
        }
    }
    plan.sources.iter().filter_map(program).collect()
}

#[test]
fn kinds_without_functions_get_waits_only() {
    let plan = Plan::new(&machine(), &holds(ProbePreference::Auto)).unwrap();
    assert_eq!(probes(&plan), ["fentry_mutex_unlock", "fexit_mutex_lock"]);
    let sources = plan.sources(PROBED);
    assert_eq!(
        (sources[0].name.as_str(), &sources[0].kinds[..]),
        ("kernel_functions", &["mutex".to_owned()][..])
    );
    assert!(sources[0].holds && !sources[1].holds && sources[1].kinds.contains(&"rwsem".to_owned()));
}

#[test]
fn kprobes_replace_fentry_and_returns_are_attached_first() {
    let facts = HostFacts { fentry: Some(false), ..machine() };
    let plan = Plan::new(&facts, &holds(ProbePreference::Auto)).unwrap();
    let expected = [
        "kprobe_mutex_unlock",
        "kprobe_up_read",
        "kretprobe_mutex_lock",
        "kprobe_mutex_lock",
        "kretprobe_down_read",
        "kprobe_down_read",
    ];
    assert_eq!(probes(&plan), expected);
}

#[test]
fn a_preemptible_kernel_gets_kprobes_unless_fentry_is_chosen() {
    let facts = HostFacts { preemptible: Some(true), ..machine() };
    let plan = Plan::new(&facts, &holds(ProbePreference::Auto)).unwrap();
    assert_eq!(plan.kernel.and_then(|kernel| kernel.holds), Some(ProbeMethod::Kprobe));
    let plan = Plan::new(&facts, &holds(ProbePreference::Fentry)).unwrap();
    assert_eq!(plan.kernel.and_then(|kernel| kernel.holds), Some(ProbeMethod::Fentry));
    assert!(plan.warnings.iter().any(|warning| warning.contains("recursion misses")));
}

#[test]
fn without_probes_on_functions_only_waits_can_be_recorded() {
    let facts = HostFacts { fentry: Some(false), kprobes: false, ..machine() };
    let error = Plan::new(&facts, &holds(ProbePreference::Auto)).unwrap_err();
    assert!(error.to_string().contains("--contended-only"), "{error}");
    assert!(Plan::new(&machine(), &holds(ProbePreference::Kprobe)).is_ok());
    let error = Plan::new(&facts, &holds(ProbePreference::Kprobe)).unwrap_err();
    assert_eq!(error, PlanError::NoFunctions { missing: "no kprobes" });
}

#[test]
fn without_contention_tracepoints_spinlocks_are_not_recorded() {
    let facts = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
    let plan = Plan::new(&facts, &holds(ProbePreference::Auto)).unwrap();
    assert!(plan.old_kernel && !Plan::new(&machine(), &Selection::everything()).unwrap().old_kernel);
    assert!(plan.kernel.as_ref().is_some_and(|kernel| !kernel.contention));
    assert!(plan.sources(PROBED).iter().all(|source| !source.kinds.contains(&"spinlock".to_owned())));
    assert!(!plan.sources.contains(&Attachment::raw("contention_begin", "contention_begin")));
}

#[test]
fn only_the_chosen_kinds_are_probed() {
    let filters = Filters { kinds: kinds::RWSEM, ..Filters::default() };
    let plan = Plan::new(&machine(), &Selection { filters, ..holds(ProbePreference::Kprobe) }).unwrap();
    assert_eq!(probes(&plan), ["kprobe_up_read", "kretprobe_down_read", "kprobe_down_read"]);
    assert!(plan.sources(PROBED)[0].limits.iter().any(|limit| limit.contains("only rwsem")));
}

#[test]
fn the_memory_of_all_rings_is_bounded() {
    let facts = HostFacts { cpus_possible: Some(200), ..machine() };
    let plan = Plan::new(&facts, &Selection::everything()).unwrap();
    assert_eq!(plan.ring_bytes, 1 << 20);
    let facts = HostFacts { cpus_possible: Some(5000), ..machine() };
    assert_eq!(Plan::new(&facts, &Selection::everything()), Err(PlanError::Cpus { cpus: 5000 }));
}

#[test]
fn the_error_for_a_missing_capability_names_the_next_step() {
    let facts = HostFacts { capabilities: Some(CapabilitySet::empty()), ..machine() };
    let error = Plan::new(&facts, &Selection::everything()).unwrap_err();
    assert!(error.to_string().contains("CAP_BPF") && error.to_string().contains("sudo"));
}

#[test]
fn the_error_for_an_old_kernel_names_an_alternative() {
    let facts = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
    let error = Plan::new(&facts, &Selection::everything()).unwrap_err();
    assert!(error.to_string().contains("--locks futex"));
    let selection = Selection { kernel: None, ..Selection::everything() };
    assert!(Plan::new(&facts, &selection).is_ok());
}

#[test]
fn unknown_features_are_tried() {
    let facts =
        HostFacts { capabilities: None, contention: None, tracefs: None, futex_calls: vec![], ..machine() };
    let plan = Plan::new(&facts, &Selection::everything()).unwrap();
    assert!(plan.mount_tracefs);
}

#[test]
fn missing_optional_capabilities_are_warned_about() {
    let facts = HostFacts { capabilities: Some(CapabilitySet::PERFMON | CapabilitySet::BPF), ..machine() };
    let warnings = Plan::new(&facts, &Selection::everything()).unwrap().warnings;
    let has = |word: &str| warnings.iter().any(|warning| warning.contains(word));
    assert!(has("CAP_SYSLOG") && has("CAP_SYS_PTRACE"), "{warnings:?}");
}

#[test]
fn missing_btf_and_lockdown_are_errors() {
    let facts = HostFacts { types: None, ..machine() };
    assert_eq!(Plan::new(&facts, &Selection::everything()), Err(PlanError::NoBtf));
    let facts = HostFacts { lockdown: Some("confidentiality".into()), ..machine() };
    assert_eq!(Plan::new(&facts, &Selection::everything()), Err(PlanError::Lockdown));
}

/// Returns a machine that also has these functions of futex calls.
fn with_futex_functions(functions: &[&'static str]) -> HostFacts {
    let mut facts = machine();
    facts.functions.extend(functions);
    facts.types.as_mut().unwrap().functions.extend(functions);
    facts
}

const BOTH: [&str; 2] = ["__x64_sys_futex", "__x64_sys_futex_waitv"];

#[test]
fn futex_functions_are_probed_with_the_exit_first() {
    let futexes = Selection { kernel: None, ..Selection::everything() };
    let facts = with_futex_functions(&BOTH);
    let plan = Plan::new(&facts, &futexes).unwrap();
    assert_eq!(plan.futex_calls, Some(FutexPlan::Functions(ProbeMethod::Fentry)));
    assert_eq!(probes(&plan), ["fexit_futex", "fentry_futex", "fexit_futex_waitv", "fentry_futex_waitv"]);
    let preemptible = HostFacts { preemptible: Some(true), ..facts };
    let plan = Plan::new(&preemptible, &futexes).unwrap();
    assert_eq!(probes(&plan)[..2], ["kretprobe_futex", "kprobe_futex"]);
}

#[test]
fn futex_calls_fall_back_to_tracepoints_if_a_function_is_missing_or_none_can_be_probed() {
    let one = with_futex_functions(&BOTH[..1]);
    let none = HostFacts { fentry: Some(false), kprobes: false, ..with_futex_functions(&BOTH) };
    let unknown = HostFacts { fentry: None, kprobes: false, ..with_futex_functions(&BOTH) };
    for facts in [one, none, unknown] {
        let plan = Plan::new(&facts, &Selection::everything()).unwrap();
        assert_eq!(plan.futex_calls, Some(FutexPlan::Tracepoints));
        assert!(probes(&plan).is_empty());
    }
}

#[test]
fn futex_functions_without_described_arguments_get_kprobes() {
    let mut facts = with_futex_functions(&BOTH);
    facts.types.as_mut().unwrap().functions.retain(|name| !BOTH.contains(name));
    let plan = Plan::new(&facts, &holds(ProbePreference::Auto)).unwrap();
    assert_eq!(plan.futex_calls, Some(FutexPlan::Functions(ProbeMethod::Kprobe)));
    assert_eq!(plan.kernel.unwrap().holds, Some(ProbeMethod::Fentry));
    // A user who chose fentry gets no kprobes.
    let plan = Plan::new(&facts, &holds(ProbePreference::Fentry)).unwrap();
    assert_eq!(plan.futex_calls, Some(FutexPlan::Tracepoints));
}

#[test]
fn without_tracepoints_the_futex_calls_are_those_with_functions() {
    let facts = HostFacts { futex_calls: vec![], ..with_futex_functions(&BOTH) };
    let plan = Plan::new(&facts, &Selection { kernel: None, ..Selection::everything() }).unwrap();
    assert_eq!(probes(&plan).len(), 4);
}

#[test]
fn a_paranoid_kernel_reserves_perf_events_for_root_and_fentry_needs_none() {
    let all_but_admin = CapabilitySet::all() - CapabilitySet::SYS_ADMIN;
    let facts = |level, functions: &[&'static str]| HostFacts {
        perf_event_paranoid: Some(level),
        capabilities: Some(all_but_admin),
        ..with_futex_functions(functions)
    };
    let futexes = Selection { locks: FUTEXES, ..Selection::everything() };
    assert_eq!(Plan::new(&facts(3, &[]), &futexes).unwrap_err(), PlanError::Paranoid { level: 3 });
    assert!(Plan::new(&facts(2, &[]), &futexes).is_ok());
    assert!(Plan::new(&facts(3, &BOTH), &futexes).is_ok());
}

#[test]
fn off_cpu_programs_are_attached_only_if_off_cpu_time_is_recorded() {
    let tracepoints = |plan: &Plan| -> Vec<&'static str> {
        let raw = |attach: &Attachment| match attach {
            Attachment::Raw { program, .. } => Some(*program),
            _ => None,
        };
        plan.sources.iter().filter_map(raw).collect()
    };
    let alone = Selection { off_cpu: true, ..Selection::everything().without_locks() };
    let plan = Plan::new(&machine(), &alone).unwrap();
    let own = ["off_cpu_wakeup", "off_cpu_waking", "off_cpu_in", "off_cpu_out"];
    assert_eq!(tracepoints(&plan), own);
    let [source] = &plan.sources(PROBED)[..] else { panic!("one source") };
    assert_eq!((source.name.as_str(), source.kinds.len()), ("sched", 0));
    let without = Plan::new(&machine(), &Selection::everything()).unwrap();
    assert!(!tracepoints(&without).iter().any(|program| own.contains(program)));
    let both = Plan::new(&machine(), &Selection { off_cpu: true, ..Selection::everything() }).unwrap();
    assert_eq!(tracepoints(&both).len(), own.len() + tracepoints(&without).len());
    let old = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
    assert!(Plan::new(&old, &alone).is_ok(), "5.10 has all it needs");
}

#[test]
fn off_cpu_time_without_stacks_has_one_program_and_covers_holders() {
    let selection =
        Selection { switches: true, kernel: None, locks: WITHOUT_PTHREAD, ..Selection::everything() };
    let plan = Plan::new(&machine(), &selection).unwrap();
    let own = |plan: &Plan| {
        plan.sources.iter().filter(|one| **one == Attachment::raw("switch", "sched_switch")).count()
    };
    assert_eq!(own(&plan), 1);
    assert!(!plan.off_cpu && plan.has_holders_only());
    let sources = plan.sources(PROBED);
    let source = sources.iter().find(|source| source.is_sched()).unwrap();
    assert_eq!((source.covers, source.ready), (Some(Covers::ContendedHolds), Some(false)));
    let with_holds = Selection { kernel: Some(KernelDepth::Waits), ..selection.clone() };
    assert!(
        !Plan::new(&machine(), &with_holds).unwrap().has_holders_only(),
        "the kernel may name other holders"
    );
    assert_eq!(own(&Plan::new(&machine(), &Selection::everything()).unwrap()), 0);
    assert!(Plan::has_switches(&machine(), &selection));
    let user = HostFacts { capabilities: Some(CapabilitySet::empty()), ..machine() };
    assert!(!Plan::has_switches(&user, &selection));
}

#[test]
fn kernel_threads_are_not_told_apart_without_their_flags() {
    let filters = Filters { threads: Some(ThreadSpace::Kernel), ..Filters::default() };
    let selection = Selection { off_cpu: true, filters, ..Selection::everything() };
    let plan = Plan::new(&machine(), &selection).unwrap();
    let off_cpu = plan.sources(PROBED).into_iter().find(|source| source.is_sched()).unwrap();
    assert!(off_cpu.limits.contains(&"off-CPU time: only kernel threads are recorded".to_owned()));
    let mut types = machine().types.unwrap();
    types.task.flags = None;
    let without = HostFacts { types: Some(types), ..machine() };
    assert_eq!(Plan::new(&without, &selection), Err(PlanError::NoTaskFlags));
}

#[test]
fn limits_of_off_cpu_time_are_not_limits_of_locks() {
    let filters = Filters { min_block_ns: 7, min_wait_ns: 8, ..Filters::default() };
    let selection = Selection { off_cpu: true, locks: WITHOUT_PTHREAD, filters, ..Selection::everything() };
    let plan = Plan::new(&machine(), &selection).unwrap();
    for source in plan.sources(PROBED) {
        let has = |words: &str| source.limits.iter().any(|limit| limit.contains(words));
        let is_off_cpu = source.is_sched();
        assert_eq!(
            (has("shorter than 7 ns"), has("shorter than 8 ns")),
            (is_off_cpu, !is_off_cpu),
            "{source:?}"
        );
    }
}
