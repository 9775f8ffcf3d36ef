//! The library as a file: written into a folder of its own, from which programs load it, and removed when the command has
//! ended, whatever becomes of klock.
//!
//! A small process, the guardian, sees to that: it waits until klock is gone, by a pipe that closes then, and removes what
//! klock could not. While the command runs on without klock, the file stays: each program that the command starts looks for
//! it, and would complain.

use std::{
    ffi::{CString, OsStr, OsString},
    fs,
    io::{self, PipeWriter, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::OsStrExt as _,
            fs::{DirBuilderExt as _, PermissionsExt as _},
        },
    },
    path::{Path, PathBuf},
};

use super::server::random;

/// The library's bytes.
const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libklock_preload.so"));
/// Its name as a file: it stands in the mappings of every recorded process.
const FILE: &str = "libklock_preload.so";

/// The file, as long as it is needed.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    folder: PathBuf,
    guardian: Option<Guardian>,
}

#[derive(Debug)]
struct Guardian {
    pid: libc::pid_t,
    /// Closes when klock ends, however it does.
    pipe: PipeWriter,
}

impl Library {
    /// Writes the file where programs of any user can load it.
    pub fn write() -> io::Result<Self> {
        let mut refusal = io::Error::from(io::ErrorKind::NotFound);
        for place in places() {
            match Self::write_below(&place) {
                Ok(library) => return Ok(library),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    fn write_below(place: &Path) -> io::Result<Self> {
        if !takes_programs(place) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let folder = place.join(format!("klock-{:016x}", random()));
        let path = folder.join(FILE);
        // First the one who cleans up.
        let guardian = Guardian::start(&path, &folder)?;
        fs::DirBuilder::new().mode(0o755).create(&folder)?;
        let library = Self { path, folder, guardian: Some(guardian) };
        // Whatever the umask says: the command may become another user.
        let open_to_all = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        open_to_all(&library.folder)?;
        fs::write(&library.path, BYTES)?;
        open_to_all(&library.path)?;
        Ok(library)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file stays until this process ends, if klock ends before it.
    pub fn stays_for(&mut self, pid: u32) {
        if let Some(guardian) = &mut self.guardian {
            // A guardian that is gone removes nothing; we still do.
            let _ = guardian.pipe.write_all(&pid.to_ne_bytes());
        }
    }

    /// klock ends before the command: the file is the guardian's business from here on.
    pub fn leave_to_guardian(mut self) {
        self.guardian = None;
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let Some(Guardian { pid, pipe }) = self.guardian.take() else { return };
        // If we can't, the guardian can't either.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.folder);
        // SAFETY: no memory is involved. The guardian is our child and has nothing left to do.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        drop(pipe);
    }
}

impl Guardian {
    fn start(path: &Path, folder: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        let (inside, pipe) = io::pipe()?;
        let inside_fd = inside.as_raw_fd();
        // SAFETY: the child calls only functions that are async-signal-safe, on memory that was made before the fork, as a
        // fork of a process with threads demands.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: as above.
            0 => unsafe { guard(inside_fd, &path, &folder) },
            pid => Ok(Self { pid, pipe }),
        }
    }
}

/// The guardian's life. It keeps nothing of klock's open and gets no signal that is meant for klock.
///
/// # Safety
/// To be called in a child process that was just forked.
unsafe fn guard(pipe: libc::c_int, path: &CString, folder: &CString) -> ! {
    // SAFETY: all calls are system calls; the two strings live on, nothing else is pointed to but locals.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"klock-guardian".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Only the pipe stays, under the number 0: whoever waits for klock's output to close must not wait for us.
        libc::dup2(pipe, 0);
        libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32);
        let mut command = -1;
        loop {
            let mut pid = 0_u32;
            match libc::read(0, (&raw mut pid).cast(), size_of_val(&pid)) {
                count if count == size_of_val(&pid) as isize => {
                    command = libc::syscall(libc::SYS_pidfd_open, pid, 0) as libc::c_int;
                }
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => break,
            }
        }
        if command >= 0 {
            let mut poll = libc::pollfd { fd: command, events: libc::POLLIN, revents: 0 };
            while libc::poll(&raw mut poll, 1, -1) == -1 && *libc::__errno_location() == libc::EINTR {}
        }
        libc::unlink(path.as_ptr());
        libc::rmdir(folder.as_ptr());
        libc::_exit(0)
    }
}

/// Where files for a while go. A path in LD_PRELOAD ends at a space or a colon.
fn places() -> Vec<PathBuf> {
    let chosen = std::env::var_os("TMPDIR").map(PathBuf::from);
    let usual = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    let usable = |path: &PathBuf| {
        path.is_absolute() && !path.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b))
    };
    chosen.into_iter().chain(usual).filter(usable).collect()
}

/// Whether what is written there can be run.
fn takes_programs(place: &Path) -> bool {
    let Ok(path) = CString::new(place.as_os_str().as_bytes()) else { return false };
    // SAFETY: plain integers, for which zero is a value; the path lives through the call.
    unsafe {
        let mut facts = std::mem::zeroed::<libc::statvfs>();
        libc::statvfs(path.as_ptr(), &raw mut facts) == 0 && facts.f_flag & libc::ST_NOEXEC == 0
    }
}

/// The variable that has programs load the library, before what the user wants loaded.
pub fn preload_value(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn gone_soon(path: &Path) -> bool {
        let begun = Instant::now();
        while path.exists() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(2));
        }
        !path.exists()
    }

    #[test]
    fn the_file_is_there_for_everybody_and_gone_when_it_is_dropped() {
        let library = Library::write().unwrap();
        let (path, folder) = (library.path().to_owned(), library.folder.clone());
        assert_eq!(fs::read(&path).unwrap(), BYTES);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o755);
        drop(library);
        assert!(!folder.exists());
    }

    #[test]
    fn the_guardian_removes_the_file_when_klock_is_gone_and_the_command_has_ended() {
        let mut library = Library::write().unwrap();
        let (path, folder) = (library.path().to_owned(), library.folder.clone());
        let mut command = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        library.stays_for(command.id());
        // As the end of this process would do.
        library.leave_to_guardian();
        std::thread::sleep(Duration::from_millis(50));
        assert!(path.exists(), "the command still needs it");
        command.kill().unwrap();
        command.wait().unwrap();
        assert!(gone_soon(&folder));
    }

    #[test]
    fn without_a_command_the_guardian_removes_the_file_as_soon_as_klock_is_gone() {
        let library = Library::write().unwrap();
        let folder = library.folder.clone();
        library.leave_to_guardian();
        assert!(gone_soon(&folder));
    }

    #[test]
    fn what_the_user_wants_loaded_comes_second() {
        let value = |before: Option<&str>| preload_value(Path::new("/t/k.so"), before.map(OsStr::new));
        assert_eq!(value(None), "/t/k.so");
        assert_eq!(value(Some("")), "/t/k.so");
        assert_eq!(value(Some("/usr/lib/libjemalloc.so")), "/t/k.so:/usr/lib/libjemalloc.so");
    }
}
