//! Decides from a program's file whether it loads klock's library. Nothing is run.

use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use object::{
    Endianness, elf,
    read::{
        ReadCache, ReadRef,
        elf::{FileHeader as _, ProgramHeader as _},
    },
};

/// The reason why a program cannot record itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("{} is linked statically and loads no library", path.display())]
    Static { path: PathBuf },
    #[error("{} is loaded by {loader}, and klock's library needs 64-bit glibc", path.display())]
    Other { path: PathBuf, loader: String },
    #[error("{} runs with more rights than yours (setuid, setgid, capabilities) and does not load your library", path.display())]
    Privileged { path: PathBuf },
    #[error("cannot read {}: {detail}", path.display())]
    Unreadable { path: PathBuf, detail: String },
}

/// Examines the file that a command runs.
pub(crate) fn of_command(program: &Path) -> Result<(), Unfit> {
    let program = program_of(program);
    let unreadable =
        |detail: String| Unfit::Unreadable { path: program.clone(), detail: detail.to_lowercase() };
    if gains_rights(&program) {
        return Err(Unfit::Privileged { path: program });
    }
    let file = open(&program).map_err(|error| unreadable(crate::setup::launch::system_message(&error)))?;
    let facts = facts(&ReadCache::new(file)).map_err(|error| unreadable(error.to_string()))?;
    match facts.loader {
        None => Err(Unfit::Static { path: program }),
        Some(loader) if !facts.is_native || !is_glibc(&loader) => Err(Unfit::Other { path: program, loader }),
        Some(_) => Ok(()),
    }
}

/// `/lib64/ld-linux-x86-64.so.2`, `/lib/ld-linux-aarch64.so.1`
fn is_glibc(loader: &str) -> bool {
    loader.rsplit('/').next().is_some_and(|name| name.starts_with("ld-linux"))
}

/// Opens a regular file. Neither a pipe nor a device has an effect.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// Returns the dynamic loader of a program; `None` if it is linked statically.
pub(crate) fn loader_of(program: &Path) -> Result<Option<String>, String> {
    let file = open(program).map_err(|error| error.to_string())?;
    facts(&ReadCache::new(file)).map(|facts| facts.loader).map_err(|error| error.to_string())
}

/// The program that runs a file: the file itself, or the interpreter of a script.
pub(crate) fn program_of(file: &Path) -> PathBuf {
    const MAX_CHAIN: usize = 4;
    let mut program = file.to_owned();
    for _ in 0..MAX_CHAIN {
        let mut head = [0; 256];
        let count = open(&program).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
        let head = &head[..count];
        if head.starts_with(&elf::ELFMAG) || count == 0 {
            break;
        }
        // Without an interpreter line, the shell runs it.
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let word = line.strip_prefix(b"#!").map(String::from_utf8_lossy);
        let word = word.as_deref().and_then(|line| line.split_whitespace().next());
        program = PathBuf::from(word.unwrap_or("/bin/sh"));
    }
    program
}

/// Maximum length of a path in bytes, as in the kernel.
const MAX_PATH: u64 = 4096;

struct Facts {
    /// It is a 64-bit program for this machine's processor.
    is_native: bool,
    loader: Option<String>,
}

fn facts<'data, R: ReadRef<'data>>(data: R) -> object::Result<Facts> {
    let Ok(header) = elf::FileHeader64::<Endianness>::parse(data) else {
        // A 32-bit program cannot load the library, whatever its loader is.
        elf::FileHeader32::<Endianness>::parse(data)?;
        return Ok(Facts { is_native: false, loader: Some("a 32-bit loader".to_owned()) });
    };
    let endian = header.endian()?;
    let machine = if cfg!(target_arch = "x86_64") { elf::EM_X86_64 } else { elf::EM_AARCH64 };
    let mut loader = None;
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == elf::PT_INTERP {
            let (offset, size) = segment.file_range(endian);
            let path = data.read_bytes_at(offset, size.min(MAX_PATH)).unwrap_or_default();
            loader = Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned());
        }
    }
    Ok(Facts { is_native: header.e_machine(endian) == machine, loader })
}

/// Whether the kernel would run the file with other rights than ours: then the loader ignores our library.
fn gains_rights(program: &Path) -> bool {
    // SAFETY: the calls have no preconditions.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let Ok(meta) = fs::metadata(program) else { return false };
    let by_user = meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid;
    let by_group = meta.mode() & libc::S_ISGID != 0 && meta.gid() != gid;
    by_user || by_group || uid != 0 && has_capabilities(program)
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else { return false };
    // SAFETY: two C strings; without a buffer, the call only returns the size.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, process::Command};

    use super::*;

    fn built(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
        let (source, program) = (folder.join("empty.c"), folder.join(name));
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let status = Command::new("gcc").args(flags).arg(&source).arg("-o").arg(&program).status();
        assert!(status.expect("gcc is installed").success());
        program
    }

    #[test]
    fn an_ordinary_program_loads_the_library() {
        assert_eq!(of_command(Path::new("/bin/true")), Ok(()));
    }

    #[test]
    fn a_static_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for flags in [&["-static"][..], &["-static-pie"]] {
            let program = built(folder.path(), "static", flags);
            assert_eq!(of_command(&program), Err(Unfit::Static { path: program }));
        }
    }

    #[test]
    fn the_loader_of_another_libc_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let program = built(folder.path(), "musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
        let error = of_command(&program).unwrap_err();
        assert!(error.to_string().contains("/lib/ld-musl-x86_64.so.1"), "{error}");
    }

    #[test]
    fn a_program_that_gains_rights_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let program = built(folder.path(), "other", &[]);
        // SAFETY: the call has no preconditions.
        let root = unsafe { libc::getuid() } == 0;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(of_command(&program).is_ok(), "we own it");
        if root {
            std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
            assert_eq!(of_command(&program), Err(Unfit::Privileged { path: program }));
        }
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        for text in ["#!/bin/sh\ntrue\n", "#!/usr/bin/env sh\ntrue\n", "true\n"] {
            fs::write(&script, text).unwrap();
            assert!(of_command(&script).is_ok(), "{text}");
        }
        let program = built(folder.path(), "static", &["-static"]);
        fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        assert_eq!(of_command(&script), Err(Unfit::Static { path: program }));
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let missing = of_command(Path::new("/no/such/program")).unwrap_err();
        assert!(missing.to_string().starts_with("cannot read /no/such/program: "), "{missing}");
    }
}
