//! Finds the functions in which the locks of Rust and Go wait: a process or a program in, offsets of probes out.
//!
//! These locks take no function of the C library when they are free, so only waits can be recorded. The program is a file of the
//! process's owner, so [`TargetFiles`] opens and parses it.

use std::path::{Path, PathBuf};

use object::read::ReadCache;
use trace_format::user_functions::SLOW_PATHS;

use crate::{
    names::files::{FileId, FileOwner, Language, MAX_OFFSETS, TargetFiles, language},
    options::LockSources,
    preload::fitness::program_of,
    sources::{pthread as uprobes, pthread::ProbedFile},
    system::maps,
};

/// A program of Rust or Go.
#[derive(Clone, Debug)]
pub(crate) struct LanguageProgram {
    /// The path as the process sees it.
    pub(crate) path: PathBuf,
    pub(crate) language: Language,
    /// The opened file; `None` for a command's, until it is needed.
    file: Option<FileId>,
    /// Its slow paths, or why they cannot be probed; `None` if they were not asked for.
    pub(crate) probed: Option<Result<ProbedFile, String>>,
}

impl LanguageProgram {
    #[cfg(test)]
    pub(crate) fn of_test(language: Language, probed: Option<Result<ProbedFile, String>>) -> Self {
        Self { path: PathBuf::from("/app"), language, file: None, probed }
    }

    /// Finds the slow paths of the program, if its locks are among `locks`.
    pub(crate) fn find_slow_paths(&mut self, locks: LockSources, files: &mut TargetFiles) {
        let is_chosen = match self.language {
            Language::Rust => locks.rust,
            Language::Go => locks.go,
        };
        self.probed = is_chosen.then(|| self.slow_paths(files));
    }

    fn slow_paths(&mut self, files: &mut TargetFiles) -> Result<ProbedFile, String> {
        let file = match self.file {
            Some(file) => file,
            None => {
                let opened = uprobes::open(&self.path).map_err(|error| error.to_string())?;
                files.add_own(&self.path.to_string_lossy(), opened)?
            }
        };
        self.file = Some(file);
        let found = files.slow_paths(file, self.language)?;
        let known = |symbol: &str| SLOW_PATHS.iter().find(|function| function.symbol == symbol);
        let mut functions: Vec<_> = found
            .into_iter()
            .filter(|found| found.offsets.len() <= MAX_OFFSETS)
            .filter_map(|found| Some((*known(&found.symbol)?, found.offsets)))
            .collect();
        functions.sort_by_key(|(function, _)| SLOW_PATHS.iter().position(|known| known == function));
        Ok(ProbedFile { path: self.path.clone(), file: files.descriptor(file), functions })
    }

    /// Returns the functions to probe, if there are any.
    pub(crate) fn to_probe(&self) -> Option<&ProbedFile> {
        self.probed.as_ref()?.as_ref().ok()
    }
}

/// Returns the program of a process, if it is of Rust or Go.
pub(crate) fn of_process(pid: u32, files: &mut TargetFiles) -> Option<LanguageProgram> {
    // The program is mapped below its libraries.
    let mapped = maps::find(pid, |mapping| mapping.executable && mapping.inode != 0).ok()?;
    let program = mapped.first()?;
    let file = files.open(FileOwner::of(pid), program).ok()?;
    let language = files.language(file)?;
    Some(LanguageProgram { path: PathBuf::from(&*program.path), language, file: Some(file), probed: None })
}

/// Returns the program of a command, if it is of Rust or Go. The command will run with klock's rights, so klock itself reads its headers.
pub(crate) fn of_command(program: &Path) -> Option<LanguageProgram> {
    let path = program_of(program);
    let language = language(&ReadCache::new(uprobes::open(&path).ok()?))?;
    Some(LanguageProgram { path, language, file: None, probed: None })
}

#[cfg(test)]
mod tests {
    use trace_format::user_functions::RUST_MUTEX;

    use super::*;

    const RUST: LockSources = LockSources { rust: true, ..LockSources::NONE };

    #[test]
    fn the_slow_paths_of_a_process_and_of_its_program_are_the_same() {
        let mut files = TargetFiles::default();
        let process = of_process(std::process::id(), &mut files).unwrap();
        let mut functions = |mut program: LanguageProgram| {
            assert_eq!(program.language, Language::Rust);
            program.find_slow_paths(LockSources::NONE, &mut files);
            assert!(program.probed.is_none());
            program.find_slow_paths(RUST, &mut files);
            program.to_probe().unwrap().functions.clone()
        };
        let of_process = functions(process);
        let of_command = functions(of_command(&std::env::current_exe().unwrap()).unwrap());
        assert_eq!(of_process, of_command);
        assert!(of_process.iter().any(|(function, _)| function.symbol == RUST_MUTEX));
    }

    #[test]
    fn a_program_of_c_and_a_file_that_is_no_program_are_of_neither_language() {
        for path in ["/bin/true", "/etc/passwd", "/no/such/file"] {
            assert!(of_command(Path::new(path)).is_none(), "{path}");
        }
    }
}
