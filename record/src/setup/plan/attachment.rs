//! A BPF program and the hook that it is attached to.

/// A BPF program to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// A raw tracepoint.
    Raw {
        /// The program.
        program: &'static str,
        /// The tracepoint.
        tracepoint: &'static str,
    },
    /// A system call tracepoint.
    Syscall {
        /// The program.
        program: &'static str,
        /// The tracepoint, in the group `syscalls`.
        tracepoint: String,
    },
    /// The entry or return of a kernel function.
    Function {
        /// The program.
        program: String,
        /// The type of probe.
        probe: ProbeType,
        /// The function.
        function: &'static str,
        /// Whether recording fails without this probe, because holds would never end. Other probes may be skipped.
        required: bool,
    },
}

impl Attachment {
    /// Returns the attachment to a raw tracepoint.
    pub(crate) fn raw(program: &'static str, tracepoint: &'static str) -> Self {
        Self::Raw { program, tracepoint }
    }

    /// Returns the attachment to a function, whose program is named after it: `fexit_mutex_lock`.
    pub(crate) fn function(probe: ProbeType, name: &str, function: &'static str, required: bool) -> Self {
        Self::Function { program: format!("{}_{name}", probe.prefix()), probe, function, required }
    }
}

/// A type of probe on a kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeType {
    /// At the entry, by a trampoline (5.5).
    Fentry,
    /// At the return, with access to the arguments (5.5).
    Fexit,
    /// At the entry, by a breakpoint or ftrace.
    Kprobe,
    /// At the return.
    Kretprobe,
}

impl ProbeType {
    /// Returns the prefix of the names of its programs.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Fexit => "fexit",
            Self::Kprobe => "kprobe",
            Self::Kretprobe => "kretprobe",
        }
    }
}
