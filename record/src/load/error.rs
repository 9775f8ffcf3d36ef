//! Errors of loading and attaching the BPF programs.

use std::io;

use crate::host::TRACEFS;

/// Why the BPF programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel refused the object.
    #[error(
        "cannot load klock's BPF programs: the kernel refused them; `klock check` shows what this machine permits"
    )]
    Load(#[source] Box<aya::EbpfError>),
    /// The kernel refused one program.
    #[error(
        "cannot {action} BPF program {program}: the kernel refused it; `klock check` shows what this machine permits"
    )]
    Program {
        /// The program.
        program: String,
        /// The refused action.
        action: &'static str,
        /// The kernel's error.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// The kernel refused a probe on the return of a function.
    #[error(
        "cannot probe the return of {function}: the kernel refused it; record waits alone with --contended-only"
    )]
    Return {
        /// The function.
        function: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused the uprobes of a process.
    #[error("cannot put probes into process {pid}: the kernel refused them")]
    Process {
        /// The process.
        pid: u32,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A map could not be created or filled.
    #[error("cannot set up BPF map {map}: the kernel refused it; try a smaller --ring")]
    Map {
        /// The map.
        map: &'static str,
        /// The kernel's error.
        #[source]
        source: Box<aya::maps::MapError>,
    },
    /// tracefs could not be mounted.
    #[error("cannot mount tracefs: the kernel refused it; run `mount -t tracefs tracefs {}`", TRACEFS[0])]
    Tracefs(#[source] io::Error),
    /// The object lacks a program or map, because it was built from other sources.
    #[error("cannot find {0} in klock's BPF object; rebuild it with `cargo xtask bpf`")]
    Missing(String),
}
