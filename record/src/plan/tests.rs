//! Plans of machines that are not this one.

use trace_format::kernel_functions::kinds;

use super::*;
use crate::{btf::TaskOffsets, options::ProbeWay};

fn machine() -> HostFacts {
    HostFacts {
        kernel: "6.12.0".to_owned(),
        arch: "x86_64".to_owned(),
        cpus_online: Some(4),
        cpus_possible: Some(8),
        capabilities: Some(u64::MAX),
        types: Some(KernelTypes {
            task: TaskOffsets { pid: Some(1), tgid: Some(2), comm: Some(3), state: Some(4) },
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
fn a_capable_machine_gets_a_ring_for_each_possible_cpu_and_every_source() {
    let plan = Plan::make(&machine(), &Wanted::everything()).unwrap();
    assert_eq!((plan.cpus, plan.ring_bytes), (8, 8 << 20));
    let kinds = |name: &str| plan.sources().into_iter().find(|source| source.name == name).unwrap();
    assert!(kinds("pthread_uprobe").holds && !kinds("pthread_condition").holds);
    assert_eq!(plan.sources().len(), 4);
    assert!(plan.sources.contains(&raw("contention_begin", "contention_begin")));
    let waitv = Attach::Syscall { program: "enter_futex_waitv", tracepoint: "sys_enter_futex_waitv".into() };
    assert!(plan.sources.contains(&waitv));
}

fn whole(way: ProbeWay) -> Wanted {
    Wanted { kernel: Some(KernelDepth::Holds(way)), ..Wanted::everything() }
}

fn probes(plan: &Plan) -> Vec<&str> {
    fn program(attach: &Attach) -> Option<&str> {
        match attach {
            Attach::Function { program, .. } => Some(program),
            _ => None,
        }
    }
    plan.sources.iter().filter_map(program).collect()
}

#[test]
fn holds_are_recorded_of_the_kinds_whose_functions_are_there_and_waits_of_the_others() {
    let plan = Plan::make(&machine(), &whole(ProbeWay::Auto)).unwrap();
    assert_eq!(probes(&plan), ["fentry_mutex_unlock", "fexit_mutex_lock"]);
    let sources = plan.sources();
    assert_eq!(
        (sources[0].name.as_str(), &sources[0].kinds[..]),
        ("kernel_functions", &["mutex".to_owned()][..])
    );
    assert!(sources[0].holds && !sources[1].holds && sources[1].kinds.contains(&"rwsem".to_owned()));
}

#[test]
fn where_there_is_no_fentry_kprobes_do_it_and_the_return_comes_first() {
    let facts = HostFacts { fentry: Some(false), ..machine() };
    let plan = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap();
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
fn a_kernel_that_preempts_its_tasks_is_probed_by_kprobes_unless_fentry_is_asked_for() {
    let facts = HostFacts { preemptible: Some(true), ..machine() };
    let plan = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap();
    assert_eq!(plan.kernel.and_then(|kernel| kernel.holds), Some(Way::Kprobe));
    let plan = Plan::make(&facts, &whole(ProbeWay::Fentry)).unwrap();
    assert_eq!(plan.kernel.and_then(|kernel| kernel.holds), Some(Way::Fentry));
    assert!(plan.warnings.iter().any(|warning| warning.contains("recursion misses")));
}

#[test]
fn a_kernel_that_lets_nothing_onto_its_functions_offers_waits_alone() {
    let facts = HostFacts { fentry: Some(false), kprobes: false, ..machine() };
    let refusal = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap_err();
    assert!(refusal.to_string().contains("--contended-only"), "{refusal}");
    assert!(Plan::make(&machine(), &whole(ProbeWay::Kprobe)).is_ok());
    let refusal = Plan::make(&facts, &whole(ProbeWay::Kprobe)).unwrap_err();
    assert_eq!(refusal, Refusal::NoFunctions { missing: "no kprobes" });
}

#[test]
fn without_contention_tracepoints_holds_are_recorded_and_spinlocks_are_not() {
    let facts = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
    let plan = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap();
    assert!(plan.old_kernel && !Plan::make(&machine(), &Wanted::everything()).unwrap().old_kernel);
    assert!(plan.kernel.as_ref().is_some_and(|kernel| !kernel.contention));
    assert!(plan.sources().iter().all(|source| !source.kinds.contains(&"spinlock".to_owned())));
    assert!(!plan.sources.contains(&raw("contention_begin", "contention_begin")));
}

#[test]
fn only_the_chosen_kinds_are_probed_and_the_trace_says_so() {
    let filters = Filters { kinds: kinds::RWSEM, ..Filters::default() };
    let plan = Plan::make(&machine(), &Wanted { filters, ..whole(ProbeWay::Kprobe) }).unwrap();
    assert_eq!(probes(&plan), ["kprobe_up_read", "kretprobe_down_read", "kprobe_down_read"]);
    assert!(plan.sources()[0].limits.iter().any(|limit| limit.contains("only rwsem")));
}

#[test]
fn many_cpus_share_a_bounded_amount_of_memory() {
    let facts = HostFacts { cpus_possible: Some(200), ..machine() };
    let plan = Plan::make(&facts, &Wanted::everything()).unwrap();
    assert_eq!(plan.ring_bytes, 1 << 20);
    let facts = HostFacts { cpus_possible: Some(5000), ..machine() };
    assert_eq!(Plan::make(&facts, &Wanted::everything()), Err(Refusal::Cpus { cpus: 5000 }));
}

#[test]
fn a_missing_capability_is_named_with_the_next_step() {
    let facts = HostFacts { capabilities: Some(0), ..machine() };
    let refusal = Plan::make(&facts, &Wanted::everything()).unwrap_err();
    assert!(refusal.to_string().contains("CAP_BPF") && refusal.to_string().contains("sudo"));
}

#[test]
fn an_old_kernel_is_offered_what_it_can_do() {
    let facts = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
    let refusal = Plan::make(&facts, &Wanted::everything()).unwrap_err();
    assert!(refusal.to_string().contains("--locks futex"));
    let wanted = Wanted { kernel: None, ..Wanted::everything() };
    assert!(Plan::make(&facts, &wanted).is_ok());
}

#[test]
fn what_could_not_be_told_is_tried() {
    let facts =
        HostFacts { capabilities: None, contention: None, tracefs: None, futex_calls: vec![], ..machine() };
    let plan = Plan::make(&facts, &Wanted::everything()).unwrap();
    assert!(plan.mount_tracefs);
}

#[test]
fn what_will_be_missing_for_want_of_a_capability_is_said() {
    let facts = HostFacts { capabilities: Some(1 << 38 | 1 << 39), ..machine() };
    let warnings = Plan::make(&facts, &Wanted::everything()).unwrap().warnings;
    let says = |word: &str| warnings.iter().any(|warning| warning.contains(word));
    assert!(says("CAP_SYSLOG") && says("CAP_SYS_PTRACE"), "{warnings:?}");
}

#[test]
fn no_btf_and_lockdown_are_refused() {
    let facts = HostFacts { types: None, ..machine() };
    assert_eq!(Plan::make(&facts, &Wanted::everything()), Err(Refusal::NoBtf));
    let facts = HostFacts { lockdown: Some("confidentiality".into()), ..machine() };
    assert_eq!(Plan::make(&facts, &Wanted::everything()), Err(Refusal::Lockdown));
}

/// A machine that has the functions of the futex calls in `functions`, too.
fn with_futex_functions(functions: &[&'static str]) -> HostFacts {
    let mut facts = machine();
    facts.functions.extend(functions);
    facts.types.as_mut().unwrap().functions.extend(functions);
    facts
}

const BOTH: [&str; 2] = ["__x64_sys_futex", "__x64_sys_futex_waitv"];

#[test]
fn futex_calls_are_probed_at_their_functions_with_the_end_first() {
    let futexes = Wanted { kernel: None, ..Wanted::everything() };
    let facts = with_futex_functions(&BOTH);
    let plan = Plan::make(&facts, &futexes).unwrap();
    assert_eq!(plan.futex_calls, Some(FutexPlan::Functions(Way::Fentry)));
    assert_eq!(probes(&plan), ["fexit_futex", "fentry_futex", "fexit_futex_waitv", "fentry_futex_waitv"]);
    let preemptible = HostFacts { preemptible: Some(true), ..facts };
    let plan = Plan::make(&preemptible, &futexes).unwrap();
    assert_eq!(probes(&plan)[..2], ["kretprobe_futex", "kprobe_futex"]);
}

#[test]
fn futex_calls_are_come_by_with_tracepoints_if_one_of_their_functions_is_missing_or_none_can_be_probed() {
    let one = with_futex_functions(&BOTH[..1]);
    let none = HostFacts { fentry: Some(false), kprobes: false, ..with_futex_functions(&BOTH) };
    let unknown = HostFacts { fentry: None, kprobes: false, ..with_futex_functions(&BOTH) };
    for facts in [one, none, unknown] {
        let plan = Plan::make(&facts, &Wanted::everything()).unwrap();
        assert_eq!(plan.futex_calls, Some(FutexPlan::Tracepoints));
        assert!(probes(&plan).is_empty());
    }
}

#[test]
fn futex_calls_whose_arguments_are_not_described_are_probed_by_kprobes() {
    let mut facts = with_futex_functions(&BOTH);
    facts.types.as_mut().unwrap().functions.retain(|name| !BOTH.contains(name));
    let plan = Plan::make(&facts, &whole(ProbeWay::Auto)).unwrap();
    assert_eq!(plan.futex_calls, Some(FutexPlan::Functions(Way::Kprobe)));
    assert_eq!(plan.kernel.unwrap().holds, Some(Way::Fentry));
    // Who asks for fentry gets no kprobes.
    let plan = Plan::make(&facts, &whole(ProbeWay::Fentry)).unwrap();
    assert_eq!(plan.futex_calls, Some(FutexPlan::Tracepoints));
}

#[test]
fn without_tracepoints_the_futex_calls_are_those_whose_functions_are_there() {
    let facts = HostFacts { futex_calls: vec![], ..with_futex_functions(&BOTH) };
    let plan = Plan::make(&facts, &Wanted { kernel: None, ..Wanted::everything() }).unwrap();
    assert_eq!(probes(&plan).len(), 4);
}

#[test]
fn a_paranoid_kernel_refuses_events_to_all_but_root_and_fentry_needs_none() {
    let all_but_admin = !(1 << 21);
    let facts = |level, functions: &[&'static str]| HostFacts {
        perf_event_paranoid: Some(level),
        capabilities: Some(all_but_admin),
        ..with_futex_functions(functions)
    };
    let futexes = Wanted { pthread: false, ..Wanted::everything() };
    assert_eq!(Plan::make(&facts(3, &[]), &futexes).unwrap_err(), Refusal::Paranoid { level: 3 });
    assert!(Plan::make(&facts(2, &[]), &futexes).is_ok());
    assert!(Plan::make(&facts(3, &BOTH), &futexes).is_ok());
}

#[test]
fn off_cpu_time_has_programs_of_its_own_which_nobody_else_loads() {
    let tracepoints = |plan: &Plan| -> Vec<&'static str> {
        let raw = |attach: &Attach| match attach {
            Attach::Raw { program, .. } => Some(*program),
            _ => None,
        };
        plan.sources.iter().filter_map(raw).collect()
    };
    let alone = Wanted { kernel: None, futex: false, pthread: false, off_cpu: true, ..Wanted::everything() };
    let plan = Plan::make(&machine(), &alone).unwrap();
    let own = ["off_cpu_wakeup", "off_cpu_waking", "off_cpu_in", "off_cpu_out"];
    assert_eq!(tracepoints(&plan), own);
    let [source] = &plan.sources()[..] else { panic!("one source") };
    assert_eq!((source.name.as_str(), source.kinds.len()), ("off_cpu", 0));
    let without = Plan::make(&machine(), &Wanted::everything()).unwrap();
    assert!(!tracepoints(&without).iter().any(|program| own.contains(program)));
    let both = Plan::make(&machine(), &Wanted { off_cpu: true, ..Wanted::everything() }).unwrap();
    assert_eq!(tracepoints(&both).len(), own.len() + tracepoints(&without).len());
    let old = HostFacts { contention: Some(false), kernel: "5.10.0".into(), ..machine() };
    assert!(Plan::make(&old, &alone).is_ok(), "it needs nothing that 5.10 has not");
}

#[test]
fn what_is_left_out_of_off_cpu_time_is_said_of_it_and_not_of_locks() {
    let filters = Filters { min_block_ns: 7, min_wait_ns: 8, ..Filters::default() };
    let wanted = Wanted { off_cpu: true, pthread: false, filters, ..Wanted::everything() };
    let plan = Plan::make(&machine(), &wanted).unwrap();
    for source in plan.sources() {
        let says = |words: &str| source.limits.iter().any(|limit| limit.contains(words));
        let is_off_cpu = source.name == "off_cpu";
        assert_eq!(
            (says("shorter than 7 ns"), says("shorter than 8 ns")),
            (is_off_cpu, !is_off_cpu),
            "{source:?}"
        );
    }
}
