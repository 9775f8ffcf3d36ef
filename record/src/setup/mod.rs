//! Decides what a recording sets up: the plan for the kernel, and how calls of pthread functions are
//! recorded.
//!
//! If the user asked for something by name and it is not possible, that is an error. If it is only part of
//! the default, it is left out with a warning.

pub(crate) mod btf;
pub(crate) mod check;
pub(crate) mod filters;
pub(crate) mod host;
pub(crate) mod launch;
pub(crate) mod plan;
pub(crate) mod target;
#[doc(hidden)]
pub mod test_overrides;

use trace_format::kernel_functions::kinds;

use crate::{
    error::RecordError,
    names::files::TargetFiles,
    options::{KernelDepth, Options, ProbePreference, PthreadMethod, SchedRows, Target},
    preload::fitness::{self, Unfit},
    setup::{
        filters::Filters,
        host::HostFacts,
        plan::{Plan, PlanError, Selection, TargetMode},
        target::ResolvedTarget,
    },
    sources::LockSources,
    sources::{
        languages as slow_paths,
        languages::{LanguageProgram, locks_of as locks_unseen_in},
        pthread::ProbedFile,
    },
    system::procfs,
};
use host::KernelFiles;

/// The parts of a recording, and the parts that were left out.
pub(crate) struct Setup {
    /// The plan for the kernel, if anything is recorded there.
    pub(crate) plan: Option<Plan>,
    /// The way to load klock's library into the command, if the command records its own calls.
    pub(crate) preload: bool,
    /// The way to record the switches of the command's threads, if they are recorded.
    pub(crate) switches: Option<SwitchesChoice>,
    /// The files that get uprobes, each with its process; `None` for the command, which is not started yet.
    pub(crate) probed: Vec<(Option<u32>, ProbedFile)>,
    /// These files, opened.
    pub(crate) files: TargetFiles,
    /// The filters, with the addresses of symbols filled in.
    pub(crate) filters: Filters,
    /// Parts of the default that are left out, a sentence each.
    pub(crate) warnings: Vec<String>,
    /// Whether the program has locks that are not recorded; a warning names them.
    pub(crate) has_unseen_locks: bool,
}

/// A choice to record switches, by perf events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchesChoice {
    /// The user asked for it by name: a refusal is an error.
    pub(crate) is_explicit: bool,
    /// `kernel.perf_event_paranoid`
    pub(crate) perf_event_paranoid: Option<i64>,
}

impl Setup {
    /// Decides on the setup for these options.
    pub(crate) fn new(
        facts: &HostFacts,
        options: &Options,
        target: &ResolvedTarget,
        kernel_files: &KernelFiles,
    ) -> Result<Self, RecordError> {
        let mut warnings = Vec::new();
        let ChosenLocks { mut locks, explicit } = ChosenLocks::new(options, target, &mut warnings)?;
        if options.lossless && !matches!(options.target, Target::Command(_)) {
            return Err(RecordError::LosslessOfRunning);
        }
        check_uprobes(locks, target)?;
        let mut pthread = PthreadSetup::default();
        if locks.pthread {
            pthread = PthreadSetup::new(options, target, explicit, &mut warnings)?;
            locks.pthread = !pthread.libcs.is_empty();
        }
        let filters = resolved_filters(options, kernel_files)?;
        let has_holders = locks.kernel || locks.pthread || pthread.preload;
        let chosen = ChosenLocks { locks, explicit };
        let selection = selection(facts, options, target, (chosen, has_holders), &filters);
        let by_default = !explicit && options.kernel.is_none();
        let plan = plan(facts, &selection, by_default, &mut pthread, &mut warnings)?;
        let PthreadSetup { preload, libcs: mut probed, mut files, .. } = pthread;
        let switches = switches(facts, options.sched, preload, plan.as_ref())?;
        let recorded =
            plan.as_ref().map_or(LockSources { pthread: locks.pthread, ..LockSources::NONE }, |plan| {
                LockSources { kernel: locks.kernel, pthread: locks.pthread, ..plan.locks }
            });
        let mut unseen = Vec::new();
        if locks.user_locks().is_some() || preload {
            let programs = language_programs(target, recorded, &mut files);
            unseen = locks_unseen_in(programs.iter().map(|(pid, program)| (*pid, program)), recorded);
            let found = programs.into_iter().filter_map(|(pid, program)| Some((pid, program.probed?.ok()?)));
            probed.extend(found);
        }
        let has_unseen_locks = !unseen.is_empty();
        warnings.append(&mut unseen);
        Ok(Self { plan, preload, switches, probed, files, filters, warnings, has_unseen_locks })
    }
}

#[derive(Clone, Copy)]
struct ChosenLocks {
    locks: LockSources,
    /// The user chose them by name.
    explicit: bool,
}

impl ChosenLocks {
    /// Returns the locks of the options or of the target's default, without those that other options or the
    /// target rule out.
    fn new(
        options: &Options,
        target: &ResolvedTarget,
        warnings: &mut Vec<String>,
    ) -> Result<Self, RecordError> {
        let chosen = options.locks.or((options.sched == SchedRows::All).then_some(LockSources::NONE));
        let explicit = chosen.is_some();
        let mut locks = chosen.unwrap_or_else(|| options.target.default_locks());
        let is_running = matches!(options.target, Target::Processes(_) | Target::Tasks(_));
        // Who chooses the way to record calls wants them recorded.
        locks.pthread |= !explicit && is_running && options.pthread_method != PthreadMethod::Auto;
        if let Some(sources) = locks.by_uprobes().user_locks().filter(|_| options.filters.min_wait_ns > 0) {
            if explicit {
                return Err(RecordError::UprobesMinWait { sources });
            }
            warnings.push(format!("{sources} are not recorded: --min-wait is for kernel locks and futexes"));
            locks = locks.without(locks.by_uprobes());
        }
        // A command that records itself knows them all but --kind.
        let records_itself = locks.pthread
            && options.pthread_method != PthreadMethod::Uprobe
            && target.program.as_ref().is_some_and(|program| fitness::of_command(program).is_ok());
        if let Some((control, what, ignoring)) = kernel_control(&options.filters, locks, records_itself)
            && let Some(sources) = ignoring.user_locks()
        {
            if explicit {
                return Err(RecordError::KernelControl { control, what, sources });
            }
            warnings.push(format!("{sources} are not recorded: {control} is for {what}"));
            locks = locks.without(LockSources { kernel: false, ..ignoring });
        }
        let kernel_threads: Vec<u32> =
            target.processes.iter().copied().filter(|&pid| procfs::is_kernel_thread(pid)).collect();
        if let Some(&pid) = kernel_threads.first() {
            if explicit && locks.user_locks().is_some() {
                return Err(RecordError::KernelThread { pid });
            }
            if kernel_threads.len() == target.processes.len() && !explicit {
                warnings.push(format!(
                    "process {pid} is a kernel thread: only its waits for kernel locks are recorded; --locks kernel records its holds, too"
                ));
                locks = LockSources { kernel: true, ..LockSources::NONE };
            }
        }
        Ok(Self { locks, explicit })
    }
}

/// Returns what the plan is made for.
fn selection(
    facts: &HostFacts,
    options: &Options,
    target: &ResolvedTarget,
    (ChosenLocks { locks, explicit }, has_holders): (ChosenLocks, bool),
    filters: &Filters,
) -> Selection {
    let depth = options.kernel.unwrap_or(if explicit && options.filters.min_wait_ns == 0 {
        KernelDepth::Holds(ProbePreference::Auto)
    } else {
        KernelDepth::Waits
    });
    let selection = Selection {
        kernel: locks.kernel.then_some(depth),
        filters: filters.clone(),
        locks: LockSources { kernel: false, ..locks },
        off_cpu: options.sched == SchedRows::All,
        switches: false,
        target: target.mode,
        ring_bytes: options.ring_bytes,
        max_stack: options.max_stack,
        stack_bytes: options.unwind.stack_bytes(),
    };
    // One program does for both tasks of a switch, and costs less than the kernel's own records.
    let is_wanted = match options.sched {
        SchedRows::Auto => {
            let is_command = matches!(options.target, Target::Command(_));
            // Without other programs, the kernel's switch records need none to be loaded.
            is_command && has_holders && !options.lossless && !selection.is_empty()
        }
        SchedRows::Holders => true,
        SchedRows::All | SchedRows::None => false,
    };
    let switches = is_wanted && Plan::has_switches(facts, &selection);
    Selection { switches, ..selection }
}

/// Plans the recording in the kernel; `None` if only the command records its own calls. A default gives up
/// what is not possible, with a warning.
fn plan(
    facts: &HostFacts,
    selection: &Selection,
    by_default: bool,
    pthread: &mut PthreadSetup,
    warnings: &mut Vec<String>,
) -> Result<Option<Plan>, RecordError> {
    let plan = match Plan::new(facts, selection) {
        Err(error @ PlanError::NoContention { .. }) if by_default => {
            warnings.push(error.to_string());
            Plan::new(facts, &Selection { kernel: None, ..selection.clone() })
        }
        Err(PlanError::Paranoid { .. }) if by_default && !selection.locks.pthread => {
            let locks = LockSources { rust: false, go: false, ..selection.locks };
            Plan::new(facts, &Selection { locks, ..selection.clone() })
        }
        plan => plan,
    };
    match (plan, pthread.preload, pthread.unfit.take()) {
        (Ok(plan), ..) => {
            warnings.extend(plan.warnings.iter().cloned());
            Ok(Some(plan))
        }
        // Only the program's own calls were asked for.
        (Err(PlanError::Nothing), true, _) => Ok(None),
        (Err(PlanError::Capability { .. }), true, _) if by_default => {
            warnings.push("only pthread calls are recorded; kernel locks and futexes need root".to_owned());
            Ok(None)
        }
        (Err(error), true, _) if by_default => {
            warnings
                .push(format!("only pthread calls are recorded, no kernel locks and no futexes: {error}"));
            Ok(None)
        }
        (Err(error), _, Some(unfit)) => Err(RecordError::NeitherWay { unfit, error }),
        (Err(error), ..) => Err(error.into()),
    }
}

/// Returns the way to record the switches of the command's threads; `None` if they are not recorded, or by
/// the plan's program.
fn switches(
    facts: &HostFacts,
    sched: SchedRows,
    has_preload: bool,
    plan: Option<&Plan>,
) -> Result<Option<SwitchesChoice>, RecordError> {
    let records = match sched {
        SchedRows::Auto => has_preload && plan.is_none(),
        SchedRows::Holders if plan.is_some_and(|plan| plan.switches) => false,
        SchedRows::Holders if !has_preload => return Err(RecordError::HoldersOfRunning),
        SchedRows::Holders => true,
        SchedRows::All | SchedRows::None => false,
    };
    Ok(records.then_some(SwitchesChoice {
        is_explicit: sched == SchedRows::Holders,
        perf_event_paranoid: facts.perf_event_paranoid,
    }))
}

fn check_uprobes(locks: LockSources, target: &ResolvedTarget) -> Result<(), RecordError> {
    let is_of_all = matches!(target.mode, TargetMode::All | TargetMode::Cgroup { .. });
    if let Some(sources) = locks.by_uprobes().user_locks().filter(|_| is_of_all) {
        let word = locks.by_uprobes().rows().next().map_or("", |row| row.word);
        return Err(RecordError::UprobesOfAll { sources, word });
    }
    if locks.go && target.mode == TargetMode::Threads {
        return Err(RecordError::GoOfThreads);
    }
    Ok(())
}

/// Returns the programs of Rust and Go that the target runs or will run, with the slow paths of the locks to
/// record. The command, which is not started yet, has no PID.
fn language_programs(
    target: &ResolvedTarget,
    locks: LockSources,
    files: &mut TargetFiles,
) -> Vec<(Option<u32>, LanguageProgram)> {
    let mut programs: Vec<_> = target
        .processes
        .iter()
        .filter_map(|&pid| Some((Some(pid), slow_paths::of_process(pid, files)?)))
        .collect();
    programs.extend(target.program.iter().filter_map(|path| Some((None, slow_paths::of_command(path)?))));
    programs.iter_mut().for_each(|(_, program)| program.find_slow_paths(locks, files));
    programs
}

/// Returns the option that not all locks know, if one is set, what it is for, and the chosen locks that would
/// ignore it.
fn kernel_control(
    filters: &Filters,
    locks: LockSources,
    records_itself: bool,
) -> Option<(&'static str, &'static str, LockSources)> {
    let both = "kernel locks and pthread calls of a command that can load klock's library";
    match filters.kinds {
        all if all == kinds::ALL && filters.sample <= 1 => None,
        // What else is recorded of such a command are waits, which are not sampled, of locks that do not
        // spin.
        _ if records_itself && !filters.chooses_kinds() => None,
        _ if filters.sample > 1 => Some(("--sample", both, locks)),
        // No futex spins.
        _ if !filters.chooses_kinds() => Some(("--no-spin", both, LockSources { futex: false, ..locks })),
        _ => Some(("--kind", "kernel locks", locks)),
    }
}

/// Checks the filters and looks up the addresses of symbols.
fn resolved_filters(options: &Options, kernel_files: &KernelFiles) -> Result<Filters, RecordError> {
    let mut filters = options.filters.clone();
    filters.check()?;
    if !filters.locks.is_empty() {
        filters.look_up(&kernel_files.symbols())?;
    }
    Ok(filters)
}

/// The way in which calls of pthread functions are recorded: by the command itself, or by uprobes on libcs.
#[derive(Default)]
struct PthreadSetup {
    preload: bool,
    /// Why the command cannot record its own calls.
    unfit: Option<Unfit>,
    libcs: Vec<(Option<u32>, ProbedFile)>,
    files: TargetFiles,
}

impl PthreadSetup {
    /// Chooses the best way for this target.
    fn new(
        options: &Options,
        target: &ResolvedTarget,
        explicit: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Self, RecordError> {
        let mut setup = Self::default();
        match (&target.program, options.pthread_method) {
            (Some(program), PthreadMethod::Auto | PthreadMethod::Preload) => {
                match fitness::of_command(program) {
                    Ok(()) => return Ok(Self { preload: true, ..setup }),
                    Err(unfit) if options.pthread_method == PthreadMethod::Preload => {
                        return Err(RecordError::Unloadable(unfit));
                    }
                    Err(unfit) => {
                        warnings.push(format!("{unfit}: it does not record itself"));
                        setup.unfit = Some(unfit);
                    }
                }
            }
            (None, PthreadMethod::Preload) => return Err(RecordError::PreloadOfRunning),
            _ => {}
        }
        for (pid, libc) in target.libcs(&mut setup.files) {
            match libc {
                Ok(libc) => setup.libcs.push((pid, libc)),
                Err(error) if explicit => return Err(error.into()),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        Ok(setup)
    }
}
