//! Attacks on the library that recorded programs load: another user must never choose what they load, and
//! programs that start after the end of klock, or where the library is out of reach, print no errors of the
//! loader.
//!
//! The attacker is a user by number. klock runs as root, or as nobody where an ordinary user's directories
//! are the subject.
//!
//! needs: root, gcc, unshare

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::support::{self, ATTACKER, Ended, fixture, run, set_mode, skip, soon};
use xtask::host::{NOBODY, of_nobody};

/// The longest wait for something that must happen: it ends hangs only.
const LIMIT: Duration = Duration::from_secs(300);

/// A folder that everybody can write, with a copy of klock.
struct Scene {
    folder: TempDir,
}

impl Scene {
    /// `None` if the tests do not run as root.
    fn new() -> Option<Self> {
        if !xtask::host::is_root() {
            skip("needs root, to act as several users");
            return None;
        }
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        set_mode(scene.folder.path(), 0o777);
        fs::copy(env!("CARGO_BIN_EXE_klock"), scene.path("klock")).unwrap();
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `klock record` of a command, with an environment in which only these variables name directories.
    /// Without locks of the kernel it starts sooner.
    fn record(&self, variables: &[(&str, &Path)], command: &[&str]) -> Command {
        let mut record = Command::new(self.path("klock"));
        record.args(["record", "--quiet", "--locks", "pthread", "-f", "-o"]).arg(self.path("t.parquet"));
        record.arg("--").args(command);
        record.current_dir(self.folder.path()).stdin(Stdio::null());
        for name in ["HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "LD_PRELOAD"] {
            record.env_remove(name);
        }
        record.envs(variables.iter().copied());
        record
    }

    /// Runs a command recorded as nobody.
    fn as_nobody(&self, variables: &[(&str, &Path)], command: &[&str]) -> Ended {
        run(self.record(variables, command).uid(NOBODY).gid(NOBODY))
    }

    /// Runs klock as root in a mount namespace that `script` has changed, and returns what the command gets
    /// in LD_PRELOAD.
    fn where_mounts_are(&self, script: &str) -> Ended {
        let record = self.record(&[], &["sh", "-c", "echo \"$LD_PRELOAD\""]);
        let mut command = Command::new("unshare");
        let script = format!("{script}\nexec \"$@\"");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", &script, "sh"]);
        command.arg(record.get_program()).args(record.get_args()).current_dir(self.folder.path());
        run(&mut command)
    }

    /// Builds the attacker's library.
    fn evil_library(&self) -> PathBuf {
        let library = self.path("evil.so");
        let source = support::root().join("fixtures/attacks/evil_library.c");
        let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(built.unwrap().success());
        library
    }
}

/// Makes a directory of a user.
fn directory(path: &Path, uid: u32, mode: u32) {
    fs::create_dir_all(path).unwrap();
    chown(path, Some(uid), Some(uid)).unwrap();
    set_mode(path, mode);
}

/// Waits until a file has whole lines, and returns its content.
#[track_caller]
fn written(path: &Path) -> String {
    let mut text = String::new();
    soon(LIMIT, &format!("lines in {}", path.display()), || {
        text = fs::read_to_string(path).unwrap_or_default();
        text.ends_with('\n')
    });
    text
}

/// Runs a command that leaves a daemon. After klock has ended, the attacker tries to take the library's
/// place; then the daemon starts a program. Returns what the daemon has printed, and the path of the library.
fn daemon_after_klock(scene: &Scene, record: impl FnOnce(&[&str]) -> Command) -> (String, String) {
    let evil = scene.evil_library();
    let at = |name: &str| scene.path(name).display().to_string();
    let daemon = format!(
        "export EVIL_MARK={mark}; echo \"${{KLOCK_PRELOAD%%:*}}\" > {socket}; echo \"$LD_PRELOAD\" > {library}; \
         while [ ! -e {go} ]; do sleep 0.05; done; /bin/true 2>> {log}; /bin/echo ran >> {log} 2>&1; mv {log} {done}",
        mark = at("mark"),
        library = at("library"),
        socket = at("socket"),
        go = at("go"),
        log = at("log"),
        done = at("done"),
    );
    let ended = run(&mut record(&["setsid", "--fork", "sh", "-c", &daemon]));
    assert!(ended.status.success(), "{}", ended.stderr);
    // The first process has exited, and klock removes what it removes.
    std::thread::sleep(Duration::from_millis(500));
    let library = written(&scene.path("library")).trim().to_owned();
    assert!(library.starts_with('/') && library.ends_with(".so"), "{library}");
    let folder = Path::new(&library).parent().unwrap().display().to_string();
    let attack = format!(
        "rm -rf {library}; rmdir {folder}; mv {folder} {folder}.old; mkdir -p {folder}; cp {evil} {library}; \
         ln -sf {evil} {library}; cat {evil} > {library}; chmod 777 {folder} {library}",
        evil = evil.display()
    );
    let mut attacker = Command::new("sh");
    run(attacker.args(["-c", &attack]).uid(ATTACKER).gid(ATTACKER));
    let socket = written(&scene.path("socket")).trim().to_owned();
    let bind = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(sys.argv[1])";
    let mut attacker = Command::new("python3");
    let ended = run(attacker.args(["-c", bind, &socket]).uid(ATTACKER).gid(ATTACKER));
    assert!(
        socket.starts_with('/') && ended.stderr.contains("PermissionError"),
        "{socket}: {}",
        ended.stderr
    );
    assert!(!Path::new(&socket).exists(), "klock has left its socket");
    fs::write(scene.path("go"), "").unwrap();
    (written(&scene.path("done")), library)
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_daemon_of_root_loads_nothing_of_another_user_after_klock_has_ended() {
    let Some(scene) = Scene::new() else { return };
    let (printed, library) = daemon_after_klock(&scene, |command| scene.record(&[], command));
    assert!(!scene.path("mark").exists(), "{}", written(&scene.path("mark")));
    assert_eq!(printed, "ran\n", "the loader complains");
    for path in Path::new(&library).ancestors() {
        let facts = fs::metadata(path).unwrap();
        assert_eq!((facts.uid(), facts.mode() & 0o022), (0, 0), "{}", path.display());
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_daemon_of_a_user_loads_nothing_of_another_user_after_klock_has_ended() {
    let Some(scene) = Scene::new() else { return };
    let home = of_nobody().unwrap().unwrap();
    let (printed, library) = daemon_after_klock(&scene, |command| {
        let mut record = scene.record(&[("HOME", home.path())], command);
        record.uid(NOBODY).gid(NOBODY);
        record
    });
    assert!(!scene.path("mark").exists(), "{}", written(&scene.path("mark")));
    assert_eq!(printed, "ran\n", "the loader complains");
    assert!(Path::new(&library).starts_with(home.path()), "{library}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_home_that_others_can_write_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let home = of_nobody().unwrap().unwrap();
    for mode in [0o777, 0o1777, 0o775] {
        set_mode(home.path(), mode);
        let ended = scene.as_nobody(&[("HOME", home.path())], &["true"]);
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains("others can write to"), "{}", ended.stderr);
        assert!(ended.stderr.contains("set XDG_CACHE_HOME"), "{}", ended.stderr);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "klock has written there");
    }
    // Below a directory for temporary files, the name of a removed home is free for others.
    let temporary = scene.path("home");
    directory(&temporary, NOBODY, 0o700);
    let ended = scene.as_nobody(&[("HOME", &temporary)], &["true"]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("others can write to /tmp"), "{}", ended.stderr);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_directory_of_another_user_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let home = of_nobody().unwrap().unwrap();
    let cache = home.path().join(".cache");
    for planted in [cache.clone(), cache.join("klock")] {
        directory(&cache, NOBODY, 0o700);
        directory(&planted, ATTACKER, 0o755);
        let ended = scene.as_nobody(&[("HOME", home.path())], &["true"]);
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        let refused = format!("{} belongs to user {ATTACKER}", planted.display());
        assert!(ended.stderr.contains(&refused), "{}", ended.stderr);
        fs::remove_dir_all(&cache).unwrap();
    }
    directory(&cache, NOBODY, 0o700);
    symlink(scene.folder.path(), cache.join("klock")).unwrap();
    let ended = scene.as_nobody(&[("HOME", home.path())], &["true"]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("others can write to"), "{}", ended.stderr);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn without_a_home_the_runtime_directory_is_used_or_the_error_says_what_to_set() {
    let Some(scene) = Scene::new() else { return };
    let ended = scene.as_nobody(&[], &["true"]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    for words in ["HOME or XDG_CACHE_HOME is not set", "XDG_RUNTIME_DIR is not set", "set XDG_CACHE_HOME"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    let runtime = of_nobody().unwrap().unwrap();
    set_mode(runtime.path(), 0o700);
    let variables = [("XDG_RUNTIME_DIR", runtime.path())];
    let ended = scene.as_nobody(&variables, &["sh", "-c", "echo \"$LD_PRELOAD\""]);
    assert!(ended.status.success(), "{}", ended.stderr);
    let expected = runtime.path().join("klock/libklock_preload-");
    assert!(ended.stdout.starts_with(&expected.display().to_string()), "{}", ended.stdout);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn root_uses_no_directory_that_others_can_change() {
    let Some(scene) = Scene::new() else { return };
    let fresh = "mount -t tmpfs -o mode=755 none /var/lib; mount -t tmpfs -o mode=755 none /run";
    for (planted, prefix) in [
        ("true", "/var/lib/klock/libklock_preload-"),
        ("mkdir -m 777 /var/lib/klock", "/run/klock/libklock_preload-"),
        ("mkdir -m 1777 /var/lib/klock", "/run/klock/libklock_preload-"),
        ("mkdir /var/lib/klock; chown 64201 /var/lib/klock", "/run/klock/libklock_preload-"),
        ("chmod 777 /var/lib", "/run/klock/libklock_preload-"),
        ("ln -s /tmp /var/lib/klock", "/run/klock/libklock_preload-"),
        ("touch /var/lib/klock", "/run/klock/libklock_preload-"),
        ("mount -o remount,noexec /var/lib", "/run/klock/libklock_preload-"),
        ("mount -o remount,ro /var/lib", "/run/klock/libklock_preload-"),
    ] {
        let ended = scene.where_mounts_are(&format!("{fresh}; {planted}"));
        assert!(ended.status.success(), "{planted}: {}", ended.stderr);
        assert!(ended.stdout.starts_with(prefix), "{planted}: {}", ended.stdout);
        assert_eq!(ended.stderr, "", "{planted}");
    }
    let ended = scene.where_mounts_are(&format!(
        "{fresh}; mount -o remount,noexec /var/lib; mount -o remount,noexec /run"
    ));
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    for words in ["/var/lib/klock is mounted noexec", "/run/klock is mounted noexec", "--probes uprobe"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_file_in_the_library_s_place_is_replaced_before_use() {
    let Some(scene) = Scene::new() else { return };
    let evil = scene.evil_library();
    let home = of_nobody().unwrap().unwrap();
    let variables = [("HOME", home.path()), ("EVIL_MARK", &scene.path("mark"))];
    let print = ["sh", "-c", "echo \"$LD_PRELOAD\"; /bin/true"];
    let path = scene.as_nobody(&variables, &print).stdout.trim().to_owned();
    let library = Path::new(&path);
    let (genuine, name) = (fs::read(library).unwrap(), library.file_name().unwrap().to_owned());
    let plant: [&dyn Fn(); 4] = [
        &|| assert!(fs::copy(&evil, library).is_ok()),
        &|| symlink(&evil, library).unwrap(),
        // Its content changes after it was checked, unless its owner is checked.
        &|| {
            fs::write(library, &genuine).unwrap();
            chown(library, Some(ATTACKER), None).unwrap();
        },
        &|| {
            fs::write(library, &genuine).unwrap();
            chown(library, Some(NOBODY), None).unwrap();
            set_mode(library, 0o777);
        },
    ];
    for plant in plant {
        fs::remove_file(library).unwrap();
        plant();
        let ended = scene.as_nobody(&variables, &print);
        assert_eq!((ended.stdout.trim(), ended.stderr.as_str()), (path.as_str(), ""));
        let facts = fs::symlink_metadata(library).unwrap();
        assert!(facts.is_file() && facts.uid() == NOBODY && facts.mode() & 0o7777 == 0o755, "{facts:?}");
        assert_eq!(fs::read(library).unwrap(), genuine);
        assert!(!scene.path("mark").exists(), "the planted library was loaded");
    }
    fs::remove_file(library).unwrap();
    fs::create_dir(library).unwrap();
    let ended = scene.as_nobody(&variables, &print);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains(&*name.to_string_lossy()), "{}", ended.stderr);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn another_user_cannot_hold_a_recording_up_by_locking_its_files() {
    let Some(scene) = Scene::new() else { return };
    let ended = run(&mut scene.record(&[], &["sh", "-c", "echo \"$LD_PRELOAD\""]));
    let library = ended.stdout.trim().to_owned();
    let folder = Path::new(&library).parent().unwrap();
    let script = format!(
        "for f in {library} {folder}/.lock {folder}; do \
         flock -x $f sh -c \"echo locked $f; exec sleep 1000\" & done; wait",
        folder = folder.display()
    );
    let mut attacker = Command::new("sh");
    attacker.args(["-c", &script]).uid(ATTACKER).gid(ATTACKER).process_group(0);
    let mut attacker = support::Running::start(&mut attacker);
    attacker.line_after(&format!("locked {library}"));
    let ended = run(&mut scene.record(&[], &["true"]));
    // SAFETY: the call involves no memory; the group is that of the child above.
    unsafe { libc::kill(-attacker.child.id().cast_signed(), libc::SIGKILL) };
    attacker.child.wait().unwrap();
    assert!(ended.status.success(), "{}", ended.stderr);
}

/// Copies a program and the libraries that it needs to another root.
fn copy_into_root(root: &Path, program: &Path, name: &str) {
    let copy = |from: &Path, to: &Path| {
        let to = root.join(to.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, &to).unwrap();
    };
    copy(program, Path::new(name));
    let listed = Command::new("ldd").arg(program).output().unwrap();
    for word in
        String::from_utf8_lossy(&listed.stdout).split_whitespace().filter(|word| word.starts_with('/'))
    {
        copy(Path::new(word), Path::new(word));
    }
}

/// The functions by which `exec_every_way` starts a program.
const WAYS: [&str; 15] = [
    "execve",
    "execve_few",
    "execv",
    "execvp",
    "execvpe",
    "execl",
    "execlp",
    "execle",
    "fexecve",
    "execveat",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "vfork",
];

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_program_in_another_root_starts_as_without_klock() {
    let Some(scene) = Scene::new() else { return };
    let program = fixture("exec_every_way");
    let root = scene.path("root");
    copy_into_root(&root, &program, "/inner");
    copy_into_root(&root, Path::new("/bin/sh"), "/bin/sh");
    let every = every_way(&program, &root.display().to_string());
    let alone = run(Command::new("sh").args(["-c", &every]));
    assert_eq!((alone.stdout.matches("exit 7\n").count(), alone.stderr.as_str()), (WAYS.len(), ""));
    let recorded = run(&mut scene.record(&[], &["sh", "-c", &every]));
    assert_eq!((recorded.stdout, recorded.stderr), (alone.stdout, alone.stderr));
}

/// A script that starts the inner program in every way, and prints the exit codes.
fn every_way(program: &Path, root: &str) -> String {
    let program = program.display();
    WAYS.iter().map(|way| format!("echo {way}; {program} {root} {way}; echo exit $?\n")).collect()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_program_in_the_same_root_still_loads_the_library() {
    let Some(scene) = Scene::new() else { return };
    let program = fixture("exec_every_way");
    let inner = scene.path("inner.sh");
    fs::write(&inner, "#!/bin/sh\n/bin/grep -q libklock_preload /proc/$$/maps && exit 7\nexit 8\n").unwrap();
    set_mode(&inner, 0o755);
    let recorded = run(&mut scene.record(&[("INNER", &inner)], &["sh", "-c", &every_way(&program, "-")]));
    assert_eq!(
        (recorded.stdout.matches("exit 7\n").count(), recorded.stderr.as_str()),
        // A descriptor that closes at exec cannot start a script, with or without klock.
        (WAYS.len() - 1, "fexecve: No such file or directory\n"),
        "{}",
        recorded.stdout
    );
    let program = program.display().to_string();
    let alone = run(Command::new(&program).args(["-", "missing"]));
    let recorded = run(&mut scene.record(&[], &[&program, "-", "missing"]));
    assert_eq!((recorded.status.code(), &recorded.stdout), (alone.status.code(), &alone.stdout));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_program_in_another_mount_namespace_starts_without_errors() {
    let Some(scene) = Scene::new() else { return };
    let hide = "mount -t tmpfs none /var/lib && exec /bin/echo hidden";
    let inner = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide];
    let ended = run(&mut scene.record(&[], &inner));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("hidden\n", ""));
    // A user who cannot reach root's directory.
    let close = "mount -t tmpfs -o mode=700 none /var/lib && exec setpriv --reuid 64201 --regid 64201 --clear-groups \
                 sh -c '/bin/echo closed; exec /bin/echo closed'";
    let inner = ["unshare", "--mount", "--propagation", "private", "sh", "-c", close];
    let ended = run(&mut scene.record(&[], &inner));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("closed\nclosed\n", ""));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_user_that_the_command_becomes_loads_the_library() {
    let Some(scene) = Scene::new() else { return };
    let script = "grep -c -m 1 libklock_preload /proc/self/maps";
    let inner = ["setpriv", "--reuid", "64201", "--regid", "64201", "--clear-groups", "sh", "-c", script];
    let ended = run(&mut scene.record(&[], &inner));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("1\n", ""));
}
