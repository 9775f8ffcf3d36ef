//! Opens and parses the files that recorded processes map: finds their build ids, symbols, variables and
//! functions to probe.
//!
//! The owner of a recorded process controls these files, so klock itself neither opens nor reads them:
//!
//! | step | done by | if it goes wrong |
//! |---|---|---|
//! | open the very file that is mapped | the opener, a process with klock's privileges that reads no file | it is killed after two seconds |
//! | parse its contents | the parser, a process without privileges | it is killed when the file has used up its time, or dies at its limits |
//!
//! A file that went wrong is not tried again. A user whose files go wrong several times gets no names any
//! more; files that a process of another user maps, too, are unaffected.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    names::unwind::{UnwindPage, UnwindTable},
    stop::Stop,
    system::{maps::Mapping, procfs},
};

mod cfi;
mod copy;
mod debug_files;
mod elf;
mod functions;
mod helper;
mod language;
mod limits;
mod message;
mod opener;
mod parser;
mod sandbox;
mod tail_calls;
#[cfg(test)]
mod tests;

pub(crate) use helper::is_own_process;
pub use helper::run_helper;
use helper::{CallError, Helper, Role, WaitLimit};
pub(crate) use language::{Language, language};
pub(crate) use message::{ElfFacts, Function, MAX_OFFSETS, NamedCode, Segment, SymbolFrame};
use message::{OpenAnswer, OpenRequest, ParseRequest, Timed};
pub(crate) use sandbox::{has_landlock, has_seccomp};

/// Maximum time to open a file. Unit tests wait longer: they run beside whatever keeps the disk busy.
const OPEN_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 2 });
/// Maximum time for all work on a file, besides [`BYTES_PER_SECOND`].
const PARSE_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 5 });
/// Additional time for large files.
const BYTES_PER_SECOND: u64 = 8 << 20;
/// Number of a user's files that may go wrong before the others are left alone.
const MAX_STRIKES: u32 = 3;
/// Maximum number of open files for processes of one user.
const MAX_FILES: usize = 4096;
/// Maximum text of symbols for processes of one user in bytes. Symbols beyond it have no names.
const MAX_TEXT: usize = 64 << 20;
/// Maximum size of the files that one parser holds; then another one is started.
const MAX_HELD_BYTES: u64 = 1536 << 20;
/// Maximum number of files that one parser holds.
const MAX_HELD_FILES: usize = 900;

/// The reason for names that are missing because the recording ended.
const LEFT_OUT: &str = "left out at the end";

/// A process that maps files, and its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileOwner {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

impl FileOwner {
    /// Stands for the user of a process that has ended. No user has this id.
    const UNKNOWN_USER: u32 = u32::MAX;

    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, uid: procfs::user_of(pid).unwrap_or(Self::UNKNOWN_USER) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId(u32);

/// Opens and parses files. Files keep their ids, whatever happens to the helper processes.
#[derive(Debug)]
pub(crate) struct TargetFiles {
    opener: Helper,
    parser: Helper,
    files: Vec<OpenedFile>,
    /// Files by device, inode and path. An inode is not used again while its file is open.
    by_identity: FxHashMap<((u32, u32), u64, String), FileId>,
    users: FxHashMap<u32, UserStats>,
    /// Files that the present parser holds, and their size.
    held: FxHashSet<FileId>,
    held_bytes: u64,
    /// Number of files that went wrong, by reason.
    failures: FxHashMap<&'static str, u64>,
    /// Shortens the time to wait for files.
    pub(crate) stop: Stop,
}

/// A file of a recorded process.
#[derive(Debug)]
struct OpenedFile {
    descriptor: Arc<OwnedFd>,
    /// Processes that map it, one of each user.
    owners: Vec<FileOwner>,
    path: String,
    bytes: u64,
    /// The time that is left for it.
    budget: Duration,
    /// Whether it went wrong.
    failed: bool,
    /// Whether its users are not waited for any more.
    left_out: bool,
    /// Known after the first load.
    facts: Option<ElfFacts>,
    /// The file with its debug information: `None` until it is looked for.
    debug: Option<Option<OwnedFd>>,
}

/// The effects of one user's files.
#[derive(Debug, Default)]
struct UserStats {
    strikes: u32,
    files: usize,
    text_bytes: usize,
}

impl Default for TargetFiles {
    fn default() -> Self {
        Self {
            opener: Helper::new(Role::Opener),
            parser: Helper::new(Role::Parser),
            files: Vec::new(),
            by_identity: FxHashMap::default(),
            users: FxHashMap::default(),
            held: FxHashSet::default(),
            held_bytes: 0,
            failures: FxHashMap::default(),
            stop: Stop::default(),
        }
    }
}

impl TargetFiles {
    /// Returns an object that waits for shorter times once the recording is asked to stop.
    pub(crate) fn until(stop: Stop) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Starts the helper processes, so that the first file need not wait for them.
    pub(crate) fn start(&mut self) {
        // The first call tries again, and reports the error.
        let _ = self.opener.start().and_then(|()| self.parser.start());
    }

    /// Kills the helper processes. A later call would start them again.
    pub(crate) fn stop_helpers(&mut self) {
        self.opener.stop();
        self.parser.stop();
    }

    /// Opens the file of a mapping, or returns why it is not opened.
    pub(crate) fn open(&mut self, owner: FileOwner, mapping: &Mapping) -> Result<FileId, String> {
        let identity = (mapping.device, mapping.inode, mapping.path.to_string());
        if let Some(&id) = self.by_identity.get(&identity) {
            self.join(id, owner);
            return Ok(id);
        }
        // The file of a process that has ended may still be at its path.
        let FileOwner { pid, uid } = owner;
        let user = self.users.entry(uid).or_default();
        if user.strikes >= MAX_STRIKES || user.files >= MAX_FILES {
            self.count_failure("not opened, because too many others of its user failed or are open");
            return Err("too many files of this user failed or are open".to_owned());
        }
        let request = OpenRequest::Mapped {
            pid,
            range: (mapping.start, mapping.end),
            device: mapping.device,
            inode: mapping.inode,
            path: mapping.path.to_string(),
        };
        let (descriptor, bytes) = self.open_requested(uid, &request)?;
        let id = self.add(owner, &mapping.path, descriptor, bytes)?;
        self.by_identity.insert(identity, id);
        Ok(id)
    }

    /// Adds a file that klock opened itself: the program of a command, which will run with klock's rights.
    pub(crate) fn add_own(&mut self, path: &str, file: std::fs::File) -> Result<FileId, String> {
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        self.add(FileOwner::of(std::process::id()), path, file.into(), bytes)
    }

    fn add(
        &mut self,
        owner: FileOwner,
        path: &str,
        descriptor: OwnedFd,
        bytes: u64,
    ) -> Result<FileId, String> {
        let id = FileId(u32::try_from(self.files.len()).map_err(|_error| "too many files")?);
        self.users.entry(owner.uid).or_default().files += 1;
        self.files.push(OpenedFile {
            descriptor: Arc::new(descriptor),
            owners: vec![owner],
            path: path.to_owned(),
            bytes,
            budget: PARSE_LIMIT
                + Duration::from_millis(bytes.min(copy::MAX_FILE_BYTES) * 1000 / BYTES_PER_SECOND),
            failed: false,
            left_out: false,
            facts: None,
            debug: None,
        });
        Ok(id)
    }

    /// Notes that a process maps an open file, too. Returns whether it is the first one of its user: what
    /// could not be read for the others may be read now.
    pub(crate) fn join(&mut self, id: FileId, owner: FileOwner) -> bool {
        let file = self.file_mut(id);
        let is_new = file.owners.iter().all(|known| known.uid != owner.uid);
        if is_new {
            file.owners.push(owner);
            file.left_out = false;
        }
        is_new
    }

    pub(crate) fn descriptor(&self, id: FileId) -> Arc<OwnedFd> {
        Arc::clone(&self.file(id).descriptor)
    }

    /// Returns the facts of a file; empty if it is not an ELF file or could not be parsed.
    pub(crate) fn facts(&mut self, id: FileId) -> ElfFacts {
        if self.file(id).facts.is_none() {
            let _ = self.load(id);
        }
        self.file(id).facts.clone().unwrap_or_default()
    }

    /// Returns the language of a program, if it has locks of its own. Reads a few parts of the file, which
    /// may be large, and does not load it.
    pub(crate) fn language(&mut self, id: FileId) -> Option<Language> {
        self.may_be_read(id).ok()?;
        let descriptor = self.descriptor(id);
        self.ask_with(id, &ParseRequest::Language, Some(&descriptor)).ok().flatten()
    }

    pub(crate) fn symbols(&mut self, of: &[(FileId, u64)]) -> Vec<NamedCode> {
        let mut all = vec![NamedCode::default(); of.len()];
        let mut wanted: Vec<usize> = (0..of.len()).collect();
        wanted.retain(|&index| self.load_with_debug(of[index].0).is_ok());
        // Loading may have replaced the parser, and with it the files that were loaded before.
        let are_held = wanted.iter().all(|&index| self.held.contains(&of[index].0));
        if !are_held || self.ask_symbols(of, &wanted, &mut all).is_err() {
            // One of the files went wrong: which one shows when each is asked alone.
            for index in wanted {
                let file = of[index].0;
                if self.load_with_debug(file).is_ok()
                    && let Err(error) = self.ask_symbols(of, &[index], &mut all)
                {
                    self.fail(file, &error);
                }
            }
        }
        all
    }

    /// Returns the name of the variable at an address in the numbering of a file.
    pub(crate) fn variable(&mut self, id: FileId, address: u64) -> Option<String> {
        self.load_with_debug(id).ok()?;
        self.ask(id, &ParseRequest::Variable { file: id.0, address }).ok().flatten()
    }

    /// Returns the pthread functions of a library, or why there are none.
    pub(crate) fn functions(&mut self, id: FileId) -> Result<Vec<Function>, String> {
        self.load(id)?;
        self.ask(id, &ParseRequest::Functions { file: id.0 })?
    }

    /// Returns the slow paths of the locks of a program in this language, or why there are none.
    pub(crate) fn slow_paths(&mut self, id: FileId, language: Language) -> Result<Vec<Function>, String> {
        self.load(id)?;
        self.ask(id, &ParseRequest::SlowPaths { file: id.0, language })?
    }

    /// Returns the unwind table of a file; `None` if the file cannot be read, for its users so far or at all.
    pub(crate) fn unwind_table(&mut self, id: FileId) -> Option<UnwindTable> {
        self.load(id).ok()?;
        let mut table = UnwindTable::new(self.facts(id).segments);
        let mut first = 0;
        loop {
            let page: UnwindPage = self.ask(id, &ParseRequest::Unwind { file: id.0, first }).ok()?;
            first += page.distances.len();
            if !table.add(&page) {
                return Some(table);
            }
        }
    }

    fn file(&self, id: FileId) -> &OpenedFile {
        &self.files[id.0 as usize]
    }

    fn file_mut(&mut self, id: FileId) -> &mut OpenedFile {
        &mut self.files[id.0 as usize]
    }

    fn open_requested(&mut self, uid: u32, request: &OpenRequest) -> Result<(OwnedFd, u64), String> {
        let limit = self.wait_limit(uid, OPEN_LIMIT);
        match self.opener.call::<OpenAnswer>(request, None, &limit) {
            Ok((Ok(bytes), Some(descriptor))) => Ok((descriptor, bytes)),
            Ok((Ok(_), None)) => Err("no descriptor".to_owned()),
            Ok((Err(reason), _)) => Err(reason),
            Err(error @ CallError::Stopped) => {
                self.count_failure(LEFT_OUT);
                Err(error.to_string())
            }
            Err(error) => {
                self.users.entry(uid).or_default().strikes += 1;
                self.count_failure("did not open in time");
                Err(error.to_string())
            }
        }
    }

    /// Lets the parser read a file, unless it did so before.
    fn load(&mut self, id: FileId) -> Result<(), String> {
        self.may_be_read(id)?;
        let bytes = self.file(id).bytes;
        if self.held.contains(&id) {
            return Ok(());
        }
        if bytes > copy::MAX_FILE_BYTES {
            self.file_mut(id).failed = true;
            self.count_failure("too large");
            return Err("it is larger than 1 GiB".to_owned());
        }
        if self.held.len() >= MAX_HELD_FILES || self.held_bytes.saturating_add(bytes) > MAX_HELD_BYTES {
            self.restart_parser();
        }
        let descriptor = self.descriptor(id);
        let loaded: Result<ElfFacts, String> =
            self.ask_with(id, &ParseRequest::Load { file: id.0 }, Some(&descriptor))?;
        let facts = loaded.inspect_err(|_| {
            self.file_mut(id).failed = true;
            self.count_failure("not read");
        })?;
        self.held.insert(id);
        self.held_bytes += bytes;
        self.file_mut(id).facts.get_or_insert(facts);
        Ok(())
    }

    fn ask_symbols(
        &mut self,
        of: &[(FileId, u64)],
        wanted: &[usize],
        all: &mut [NamedCode],
    ) -> Result<(), CallError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let request = wanted.iter().map(|&index| (of[index].0.0, of[index].1)).collect();
        let longest = wanted.iter().map(|&index| self.file(of[index].0)).max_by_key(|file| file.budget);
        let limit = longest.map_or(Duration::ZERO, |file| file.budget);
        // If one of the files may not be waited for, each is asked for alone.
        let limits = wanted.iter().map(|&index| self.wait_limit(self.owner(of[index].0).uid, limit));
        let Some(limit) = limits.min_by_key(|limit| limit.after_stop) else { return Ok(()) };
        let answer =
            self.parser.call::<Vec<Timed<NamedCode>>>(&ParseRequest::Symbols { of: request }, None, &limit);
        let (answers, _) = answer.inspect_err(|_| self.forget_held_unless_running())?;
        for (&index, named) in wanted.iter().zip(answers) {
            let file = of[index].0;
            self.spend(file, Duration::from_micros(named.micros));
            let user = self.users.entry(self.owner(file).uid).or_default();
            user.text_bytes += named.value.functions.iter().map(SymbolFrame::text_bytes).sum::<usize>();
            all[index] = named.value;
            if user.text_bytes > MAX_TEXT {
                all[index].functions.clear();
            }
        }
        Ok(())
    }

    fn ask<A: serde::de::DeserializeOwned>(
        &mut self,
        id: FileId,
        request: &ParseRequest,
    ) -> Result<A, String> {
        self.ask_with(id, request, None)
    }

    /// Asks the parser about one file, within the file's budget of time.
    fn ask_with<A: serde::de::DeserializeOwned>(
        &mut self,
        id: FileId,
        request: &ParseRequest,
        descriptor: Option<&OwnedFd>,
    ) -> Result<A, String> {
        let limit = self.wait_limit(self.owner(id).uid, self.file(id).budget);
        match self.parser.call::<Timed<A>>(request, descriptor.map(OwnedFd::as_fd), &limit) {
            Ok((answer, _)) => {
                self.spend(id, Duration::from_micros(answer.micros));
                Ok(answer.value)
            }
            Err(error) => {
                self.forget_held_unless_running();
                self.fail(id, &error);
                Err(error.to_string())
            }
        }
    }

    fn restart_parser(&mut self) {
        self.parser.stop();
        self.forget_held_unless_running();
    }

    /// Notes that another parser will be started, which holds no files. A parser that was not asked because
    /// the recording ended still runs, and holds its files.
    fn forget_held_unless_running(&mut self) {
        if !self.parser.is_running() {
            self.held.clear();
            self.held_bytes = 0;
        }
    }
}

/// Returns a path by which klock and the kernel reach a file that klock holds open.
pub(crate) fn path_of(descriptor: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}
