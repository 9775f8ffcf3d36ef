//! Large files about the kernel, which several parts of a recording use: they are read once, when the facts are collected.

use std::{borrow::Cow, fs};

use crate::setup::btf::TypeInfo;

/// Addresses, types and names of the kernel's symbols.
const SYMBOLS: &str = "/proc/kallsyms";

/// The contents of the files. Empty if klock may not load BPF programs, which need them most.
#[derive(Debug, Default)]
pub(crate) struct KernelFiles {
    /// Lines of `address type name`; empty if they were not read.
    pub(crate) symbols: String,
    /// The kernel's types; `None` if they were not or cannot be read.
    pub(crate) types: Option<TypeInfo>,
}

impl KernelFiles {
    /// Returns the symbols, which are read now if they were not.
    pub(crate) fn symbols(&self) -> Cow<'_, str> {
        if self.symbols.is_empty() { read_symbols().into() } else { (&self.symbols).into() }
    }
}

/// Reads the symbols; empty if that fails.
pub(crate) fn read_symbols() -> String {
    fs::read_to_string(SYMBOLS).unwrap_or_default()
}
