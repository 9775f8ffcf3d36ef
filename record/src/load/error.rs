//! Why the kernel side could not be put in place: the texts that users read.

use std::io;

use crate::host::TRACEFS;

/// Why the kernel side could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel refused the maps or programs.
    #[error("the kernel refused to load klock's programs; `klock check` shows what this machine permits")]
    Load(#[source] Box<aya::EbpfError>),
    /// The kernel refused one program.
    #[error("the kernel refused to {act} program {program}; `klock check` shows what this machine permits")]
    Program {
        /// Which.
        program: String,
        /// What was tried.
        act: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// The return of a function could not be probed.
    #[error("the kernel refused to probe the return of {function}; record waits alone with --contended-only")]
    Return {
        /// Which.
        function: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A process could not be probed.
    #[error("the kernel refused to put probes into process {pid}")]
    Process {
        /// Which.
        pid: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A map could not be made or filled.
    #[error("the kernel refused map {map}; try a smaller --ring")]
    Map {
        /// Which.
        map: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<aya::maps::MapError>,
    },
    /// tracefs could not be mounted.
    #[error("tracefs is not mounted and can't be; run `mount -t tracefs tracefs {}`", TRACEFS[0])]
    Tracefs(#[source] io::Error),
    /// The object holds no such program or map: it was built from other sources.
    #[error("klock's BPF object has no {0}; rebuild it with `cargo xtask bpf`")]
    Missing(String),
}
