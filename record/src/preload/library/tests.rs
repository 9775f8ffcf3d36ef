//! Tests in a directory below `/var/lib` as root, and below the home directory otherwise: the directory for
//! temporary files is one that everybody can write, where the library is never installed.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    process::{Child, Command},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::*;

/// Makes a directory below which only the user of the tests can write; `None` if the machine has none.
fn private() -> Option<TempDir> {
    let parent = if directory::is_root() { Some("/var/lib".into()) } else { std::env::var_os("HOME") };
    let folder = TempDir::new_in(parent?).ok()?;
    Directory::open(&folder.path().join("probe")).ok()?;
    Some(folder)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_library_needs_no_symbol_newer_than_glibc_2_17() {
    use object::{Endianness, elf, read::elf::FileHeader as _};
    let header = elf::FileHeader64::<Endianness>::parse(BYTES).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, BYTES).unwrap();
    let (mut needs, link) = sections.gnu_verneed(endian, BYTES).unwrap().unwrap();
    let strings = sections.strings(endian, BYTES, link).unwrap();
    let mut versions = Vec::new();
    while let Some((need, mut symbols)) = needs.next().unwrap() {
        let library = String::from_utf8_lossy(need.file(endian, strings).unwrap()).into_owned();
        while let Some(symbol) = symbols.next().unwrap() {
            let version = String::from_utf8_lossy(symbol.name(endian, strings).unwrap()).into_owned();
            let numbers = version.strip_prefix("GLIBC_").unwrap_or_else(|| panic!("{library}: {version}"));
            versions.push((
                numbers.split('.').map(|n| n.parse().unwrap()).collect::<Vec<u32>>(),
                library.clone(),
            ));
        }
    }
    assert!(versions.iter().all(|(version, _)| version.as_slice() <= [2, 17].as_slice()), "{versions:?}");
    assert!(versions.iter().any(|(_, library)| library == "libdl.so.2"), "{versions:?}");
}

#[test]
fn the_file_is_installed_once_and_stays() {
    let Some(folder) = private() else { return };
    let place = folder.path().join("new/klock");
    let library = Library::install_in(&place).unwrap();
    let path = library.path.clone();
    assert_eq!(path, place.join(file_name()));
    assert_eq!(fs::read(&path).unwrap(), BYTES);
    assert_eq!((mode(&path), mode(&place)), (0o755, 0o755));
    let inode = fs::metadata(&path).unwrap().ino();
    drop(library);
    let again = Library::install_in(&place).unwrap();
    assert_eq!(fs::metadata(&again.path).unwrap().ino(), inode);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 2, "the library and the lock");
}

#[test]
fn a_file_with_another_content_mode_or_kind_is_replaced() {
    let Some(folder) = private() else { return };
    let place = folder.path().join("klock");
    let path = Library::install_in(&place).unwrap().path.clone();
    let spoil: [fn(&Path); 4] = [
        |path| fs::write(path, "short").unwrap(),
        |path| fs::write(path, vec![0; BYTES.len()]).unwrap(),
        |path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        },
    ];
    for spoil in spoil {
        spoil(&path);
        let library = Library::install_in(&place).unwrap();
        assert!(fs::symlink_metadata(&library.path).unwrap().is_file());
        assert_eq!((fs::read(&library.path).unwrap(), mode(&library.path)), (BYTES.to_vec(), 0o755));
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let refusal = Library::install_in(&place).unwrap_err();
    assert!(refusal.to_string().contains(PREFIX), "{refusal}");
}

#[test]
fn a_directory_that_others_can_write_is_refused_wherever_it_is() {
    let Some(folder) = private() else { return };
    for bits in [0o777, 0o775, 0o757, 0o1777] {
        let open = folder.path().join(format!("{bits:o}"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(bits)).unwrap();
        for place in [open.clone(), open.join("a/klock")] {
            let refusal = Library::install_in(&place).unwrap_err();
            assert_eq!(refusal.to_string(), format!("others can write to {}", open.display()));
        }
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "nothing is created there");
    }
    let refusal = Library::install_in(Path::new("/tmp/klock-test/klock")).unwrap_err();
    assert_eq!(refusal.to_string(), "others can write to /tmp");
}

#[test]
fn a_symlinked_parent_is_resolved_and_then_checked() {
    let Some(folder) = private() else { return };
    let (target, link) = (folder.path().join("target"), folder.path().join("link"));
    fs::create_dir(&target).unwrap();
    symlink(&target, &link).unwrap();
    let library = Library::install_in(&link.join("klock")).unwrap();
    assert!(library.path.starts_with(&target), "{:?}", library.path);
    let elsewhere = folder.path().join("elsewhere");
    symlink("/tmp", &elsewhere).unwrap();
    let refusal = Library::install_in(&elsewhere.join("klock")).unwrap_err();
    assert_eq!(refusal.to_string(), "others can write to /tmp");
}

#[test]
fn a_path_that_ld_preload_cannot_hold_is_refused() {
    let Some(folder) = private() else { return };
    for name in ["with space", "with:colon", "$LIB"] {
        let refusal = Library::install_in(&folder.path().join(name)).unwrap_err();
        assert!(refusal.to_string().starts_with("LD_PRELOAD cannot hold"), "{refusal}");
    }
}

#[test]
fn without_a_home_the_error_names_the_variables() {
    if directory::is_root() {
        return;
    }
    let refusals = directory::candidates(|name| (name == "HOME").then(|| "relative".into()));
    let refusals = refusals.into_iter().map(Result::unwrap_err).collect();
    let error = LibraryError { refusals }.to_string();
    assert!(error.contains("HOME or XDG_CACHE_HOME is not set to an absolute path"), "{error}");
}

/// A process that has a text in its environment, killed when this is dropped.
struct Holder(Child);

impl Holder {
    fn of(text: &Path) -> Self {
        Self(Command::new("sleep").arg("1000").env("LD_PRELOAD_OF_A_CHILD", text).spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A name that no other test has in its environment.
fn other_version(place: &Path) -> PathBuf {
    let path = place.join(format!("{PREFIX}{:016x}{SUFFIX}", random()));
    fs::write(&path, "old").unwrap();
    path
}

#[test]
fn an_old_version_stays_while_a_process_or_a_recording_uses_it() {
    let Some(folder) = private() else { return };
    if !directory::is_root() {
        // Processes of this user that cannot be examined keep all versions.
        return;
    }
    let place = folder.path().join("klock");
    let current = Library::install_in(&place).unwrap().path.clone();
    let old = other_version(&place);
    let holder = Holder::of(&old);
    drop(Library::install_in(&place).unwrap());
    assert!(old.exists(), "a process may load it");
    drop(holder);
    let library = Library::install_in(&place).unwrap();
    let late = Holder::of(&old);
    drop(library);
    assert!(old.exists(), "a process has come during the recording");
    drop(late);
    let other = Library::install_in(&place).unwrap();
    drop(Library::install_in(&place).unwrap());
    assert!(old.exists(), "another recording runs");
    drop(other);
    // A process that another test has just forked holds all locks until it executes its program.
    let begun = Instant::now();
    while old.exists() && begun.elapsed() < Duration::from_secs(300) {
        drop(Library::install_in(&place).unwrap());
    }
    assert!(!old.exists() && current.exists());
}

#[test]
fn libraries_of_the_user_come_first() {
    let value = |before: Option<&str>| preload_value(Path::new("/t/k.so"), before.map(OsStr::new));
    assert_eq!(value(None), "/t/k.so");
    assert_eq!(value(Some("")), "/t/k.so");
    assert_eq!(value(Some("/usr/lib/libjemalloc.so")), "/usr/lib/libjemalloc.so:/t/k.so");
}
