//! The parser, a helper process without privileges: parses the files that targets map.
//!
//! Files come as descriptors. A file that makes this process crash, grow or loop costs no more than its own
//! symbols.

use std::{
    cell::OnceCell,
    collections::HashMap,
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{fs::FileExt as _, net::UnixStream},
    },
    path::PathBuf,
};

use blazesym::symbolize::{
    Input, Symbolized, Symbolizer,
    source::{Elf, Source},
};
use object::read::ReadCache;
use rustix::time::{ClockId, clock_gettime};

use super::{
    cfi,
    copy::FileCopy,
    elf::{self, Variable},
    functions::{self, slow_paths},
    language::{Language, language},
    message::{ElfFacts, Function, NamedCode, ParseRequest, SymbolFrame, Timed, receive, send},
    sandbox,
    tail_calls::{self, LocalFunction},
};
use crate::names::unwind::{Rule, UnwindPage};

/// The parser's state.
struct Parser {
    /// The directory of this process's descriptors.
    directory: &'static str,
    symbolizer: Symbolizer,
    files: HashMap<u32, Loaded>,
    bytes: u64,
}

/// A file that was read. It stays until this process ends: blazesym keeps what it read by path, and the path
/// of a copy is the number of its descriptor, which must not become the descriptor of another file.
struct Loaded {
    copy: FileCopy,
    facts: ElfFacts,
    variables: OnceCell<Vec<Variable>>,
    unwind: OnceCell<Vec<(u64, Rule)>>,
    local: OnceCell<Vec<LocalFunction>>,
    debug: Option<FileCopy>,
}

impl Loaded {
    fn unwind_rows(&self) -> &[(u64, Rule)] {
        self.unwind.get_or_init(|| cfi::rows(self.copy.bytes))
    }

    /// Returns the way from the code at an address to its caller. The table of a file is read as a whole only
    /// if it has no index.
    fn rule_at(&self, address: u64) -> Rule {
        cfi::indexed_rule(self.copy.bytes, address).unwrap_or_else(|| {
            let rows = self.unwind_rows();
            let next = rows.partition_point(|&(start, _)| start <= address);
            next.checked_sub(1).map_or(Rule::None, |row| rows[row].1)
        })
    }
}

/// Answers requests until klock closes the connection.
pub(super) fn serve(socket: &UnixStream, directory: &'static str) -> io::Result<()> {
    // Debug files come as descriptors, too. blazesym looks for none itself.
    let symbolizer = Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_demangling(false)
        .set_debug_dirs(Some(std::iter::empty::<PathBuf>()))
        .build();
    let mut parser = Parser { directory, symbolizer, files: HashMap::new(), bytes: 0 };
    loop {
        let (request, descriptor) = receive(socket)?;
        match request {
            ParseRequest::Load { file } => {
                let load = || parser.load(file, descriptor).map_err(|error| error.to_string());
                send(socket, &timed(load), None)?;
            }
            ParseRequest::LoadDebug { file } => {
                let load = || parser.load_debug(file, descriptor).unwrap_or(false);
                send(socket, &timed(load), None)?;
            }
            ParseRequest::Language => {
                let file = descriptor.map(|descriptor| ReadCache::new(File::from(descriptor)));
                send(socket, &timed(|| file.and_then(|file| language(&file))), None)?;
            }
            ParseRequest::Symbols { of } => {
                let timed = of.iter().map(|&(file, offset)| timed(|| parser.code(file, offset)));
                send(socket, &timed.collect::<Vec<_>>(), None)?;
            }
            ParseRequest::Variable { file, address } => {
                send(socket, &timed(|| parser.variable(file, address)), None)?;
            }
            ParseRequest::Unwind { file, first } => {
                send(socket, &timed(|| parser.unwind_page(file, first)), None)?;
            }
            ParseRequest::Functions { file } => send(socket, &timed(|| parser.functions(file)), None)?,
            ParseRequest::SlowPaths { file, language } => {
                send(socket, &timed(|| parser.slow_paths(file, language)), None)?;
            }
        }
    }
}

/// Measures the processor time of some work.
fn timed<T>(work: impl FnOnce() -> T) -> Timed<T> {
    let micros_now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000
    };
    let started = micros_now();
    let value = work();
    Timed { value, micros: micros_now() - started }
}

impl Parser {
    fn load(&mut self, file: u32, descriptor: Option<OwnedFd>) -> io::Result<ElfFacts> {
        if let Some(loaded) = self.files.get(&file) {
            return Ok(loaded.facts.clone());
        }
        let source = File::from(descriptor.ok_or(io::ErrorKind::InvalidInput)?);
        let mut magic = [0; 4];
        if source.read_at(&mut magic, 0)? != magic.len() || magic != object::elf::ELFMAG {
            // It has neither symbols nor segments.
            return Ok(ElfFacts::default());
        }
        let copy = self.copy(&source)?;
        let facts = elf::facts(copy.bytes).unwrap_or_default();
        let loaded = Loaded {
            copy,
            facts: facts.clone(),
            variables: OnceCell::new(),
            unwind: OnceCell::new(),
            local: OnceCell::new(),
            debug: None,
        };
        self.files.insert(file, loaded);
        Ok(facts)
    }

    fn load_debug(&mut self, file: u32, descriptor: Option<OwnedFd>) -> io::Result<bool> {
        if self.files.get(&file).is_none_or(|loaded| loaded.debug.is_some()) {
            return Ok(self.files.contains_key(&file));
        }
        let debug = self.copy(&File::from(descriptor.ok_or(io::ErrorKind::InvalidInput)?))?;
        let Some(loaded) = self.files.get_mut(&file) else { return Ok(false) };
        let belongs = elf::is_debug_file_of(loaded.copy.bytes, debug.bytes);
        loaded.debug = belongs.then_some(debug);
        Ok(belongs)
    }

    fn copy(&mut self, file: &File) -> io::Result<FileCopy> {
        self.bytes = self.bytes.saturating_add(file.metadata()?.len());
        sandbox::allow_space(self.bytes)?;
        FileCopy::of(file, self.directory)
    }

    fn code(&self, file: u32, offset: u64) -> NamedCode {
        let Some(loaded) = self.files.get(&file) else { return NamedCode::default() };
        // By address: blazesym adds up an offset without a check.
        let find = |copy: &FileCopy, address| {
            let source = Source::Elf(Elf::new(&copy.path));
            match self.symbolizer.symbolize_single(&source, Input::VirtOffset(address)) {
                Ok(Symbolized::Sym(symbol)) => Some(SymbolFrame::all_of(&symbol)),
                _ => None,
            }
        };
        // Offsets in a file with debug information differ; addresses are the same.
        let segments = &loaded.facts.segments;
        let segment = segments.iter().find(|s| offset.wrapping_sub(s.offset) < s.file_bytes);
        let address = segment.map(|s| s.address.wrapping_add(offset - s.offset));
        let of_local = |address| {
            let local = loaded.local.get_or_init(|| tail_calls::local_functions(loaded.copy.bytes));
            let (name, offset) = tail_calls::name_of(local, address)?;
            Some(vec![SymbolFrame::of_local(name, offset)])
        };
        let functions = address.and_then(|address| {
            let debug = loaded.debug.as_ref().and_then(|debug| find(debug, address));
            debug.or_else(|| find(&loaded.copy, address)).or_else(|| of_local(address))
        });
        let keeps_frame_pointer =
            address.is_some_and(|address| loaded.rule_at(address).keeps_frame_pointer());
        NamedCode { functions: functions.unwrap_or_default(), keeps_frame_pointer }
    }

    fn variable(&self, file: u32, address: u64) -> Option<String> {
        let loaded = self.files.get(&file)?;
        let variables = loaded.variables.get_or_init(|| elf::variables(loaded.copy.bytes));
        elf::name_of(variables, address)
    }

    fn unwind_page(&self, file: u32, first: usize) -> UnwindPage {
        let Some(loaded) = self.files.get(&file) else { return UnwindPage::default() };
        cfi::page(loaded.unwind_rows(), first)
    }

    fn functions(&self, file: u32) -> Result<Vec<Function>, String> {
        let loaded = self.files.get(&file).ok_or("it is not loaded")?;
        functions::functions(loaded.copy.bytes).map_err(|error| error.to_string())
    }

    fn slow_paths(&self, file: u32, language: Language) -> Result<Vec<Function>, String> {
        let loaded = self.files.get(&file).ok_or("it is not loaded")?;
        slow_paths(loaded.copy.bytes, language)
    }
}
