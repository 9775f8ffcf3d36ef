//! Names kernel locks that are not variables: by the addresses of locks that this process uses, and in a
//! recording of contention on them. Functions of the kernel have file and line if an image of the kernel with
//! debug information is installed.
//!
//! records the whole machine
//! needs: root, gcc, unshare

#![cfg(feature = "record")]
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use record::{
    HostFacts, KERNEL_BTF, KernelLockNames, LoadedPrograms, LockSources, Memory, Peek, Plan, Selection,
    TypeInfo,
};
use trace_format::{LockKind, Trace};

use crate::support::{SetOnDrop, cannot_record, klock, run, skip, until};

fn names() -> Option<KernelLockNames<Peek>> {
    if let Some(reason) = cannot_record() {
        skip(reason);
        return None;
    }
    let selection = Selection {
        locks: LockSources { futex: false, pthread: false, ..LockSources::OF_PROGRAMS },
        ring_bytes: Some(4096),
        ..Selection::everything()
    };
    let plan = Plan::new(&HostFacts::gather(), &selection).unwrap();
    let peek = LoadedPrograms::load(&plan).unwrap().take_peek().unwrap();
    let types = TypeInfo::read(path::Path::new(KERNEL_BTF)).unwrap();
    Some(KernelLockNames::find(peek, types, |_| None))
}

/// Structures and their members, each reached by the pointer of the one before.
type Path<'a> = &'a [(&'a str, &'a str)];

/// Follows pointers from the running task to the last member.
fn address(names: &mut KernelLockNames<Peek>, path: Path<'_>) -> u64 {
    let task = names.memory().task(None).unwrap();
    follow(names, task, path)
}

fn follow(names: &mut KernelLockNames<Peek>, from: u64, path: Path<'_>) -> u64 {
    let mut at = from;
    for (index, (structure, member)) in path.iter().enumerate() {
        if index > 0 {
            at = names.memory().word(at).unwrap();
        }
        at += names.offset(structure, member).unwrap_or_else(|| panic!("no {structure}.{member}"));
    }
    at
}

fn file(names: &mut KernelLockNames<Peek>, file: &impl AsRawFd) -> u64 {
    let path = [("task_struct", "files"), ("files_struct", "fdt"), ("fdtable", "fd")];
    let open = address(names, &path);
    let open = names.memory().word(open).unwrap();
    names.memory().word(open + 8 * u64::try_from(file.as_raw_fd()).unwrap()).unwrap()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn locks_of_this_process_have_the_names_of_their_members() {
    let Some(mut names) = names() else { return };
    let paths: [(Path, LockKind, &str); 5] = [
        (&[("task_struct", "mm"), ("mm_struct", "mmap_lock")], LockKind::RwSem, "mm_struct.mmap_lock"),
        (
            &[("task_struct", "sighand"), ("sighand_struct", "siglock")],
            LockKind::SpinLock,
            "sighand_struct.siglock",
        ),
        (&[("task_struct", "pi_lock")], LockKind::SpinLock, "task_struct.pi_lock"),
        (
            &[("task_struct", "files"), ("files_struct", "file_lock")],
            LockKind::SpinLock,
            "files_struct.file_lock",
        ),
        (
            &[("task_struct", "signal"), ("signal_struct", "cred_guard_mutex")],
            LockKind::Mutex,
            "signal_struct.cred_guard_mutex",
        ),
    ];
    for (path, kind, expected) in paths {
        let at = address(&mut names, path);
        assert_eq!(names.name(at, kind).as_deref(), Some(expected));
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn locks_of_files_have_the_names_of_their_members_and_of_the_file_system() {
    let Some(mut names) = names() else { return };
    let status = File::open("/proc/self/status").unwrap();
    let at = file(&mut names, &status);
    let position = follow(&mut names, at, &[("file", "f_pos_lock")]);
    assert_eq!(names.name(position, LockKind::Mutex).as_deref(), Some("file.f_pos_lock"));
    let content = follow(&mut names, at, &[("file", "f_inode"), ("inode", "i_rwsem")]);
    let name = names.name(content, LockKind::RwSem);
    assert_eq!(name.as_deref(), Some("proc_inode.vfs_inode.i_rwsem"));
    let system =
        follow(&mut names, at, &[("file", "f_inode"), ("inode", "i_sb"), ("super_block", "s_umount")]);
    assert_eq!(names.name(system, LockKind::RwSem).as_deref(), Some("super_block.s_umount"));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_object_of_a_general_cache_is_named_by_its_owner_or_its_size() {
    let Some(mut names) = names() else { return };
    // SAFETY: the call takes no pointers, and what it gives is ours.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(0)) };
    let at = file(&mut names, &epoll);
    let events = follow(&mut names, at, &[("file", "private_data"), ("eventpoll", "mtx")]);
    assert_eq!(names.name(events, LockKind::Mutex).as_deref(), Some("eventpoll.mtx"));
    let (reader, _writer) = io::pipe().unwrap();
    let at = file(&mut names, &reader);
    let pipe = follow(&mut names, at, &[("file", "private_data"), ("pipe_inode_info", "mutex")]);
    let name = names.name(pipe, LockKind::Mutex).unwrap();
    let offset = names.offset("pipe_inode_info", "mutex").unwrap();
    assert!(name.starts_with("kmalloc-") && name.ends_with(&format!("+{offset:#x}")), "{name}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_run_queue_is_named_with_its_cpu() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // The area of a CPU is found by the task that runs there, unless that moves to another CPU meanwhile.
    let (name, member) = until("the areas of all CPUs are found", || {
        let mut names = names()?;
        let queue = [("task_struct", "se"), ("sched_entity", "cfs_rq")];
        let task = names.memory().task(None).unwrap();
        let entity = task + names.offset(queue[0].0, queue[0].1).unwrap();
        let member = if names.offset("rq", "__lock").is_some() { "__lock" } else { "lock" };
        let lock = follow(&mut names, entity, &[queue[1], ("cfs_rq", "rq"), ("rq", member)]);
        Some((names.name(lock, LockKind::SpinLock)?, member))
    });
    assert!(name.starts_with(&format!("runqueues.{member} (cpu ")), "{name}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn unknown_memory_has_no_name() {
    let Some(mut names) = names() else { return };
    let mut byte = 0_u8;
    let own = (&raw mut byte) as u64;
    for address in [0, own, u64::MAX, 0x8000_0000_0000_0000] {
        assert_eq!(names.name(address, LockKind::Mutex), None, "{address:#x}");
        assert_eq!(names.memory().word(address), None, "{address:#x}");
    }
}

/// Memory that is mapped and touched.
struct Region {
    begin: *mut libc::c_void,
    bytes: usize,
}

impl Region {
    fn new(bytes: usize) -> Self {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses an unused address.
        let begin =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags | libc::MAP_POPULATE, -1, 0) };
        assert_ne!(begin, libc::MAP_FAILED);
        Self { begin, bytes }
    }

    /// Changes the protection of every page and back, for which the kernel holds the lock of the address
    /// space.
    fn protect_and_release(&self) {
        for access in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
            // SAFETY: the mapping is ours, and nothing reads it.
            unsafe { libc::mprotect(self.begin, self.bytes, access) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more.
        unsafe { libc::munmap(self.begin, self.bytes) };
    }
}

/// Runs threads that contend for the locks of their address space, a file, a pipe and a directory.
fn contend(done: &AtomicBool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let shared = File::open(&path).unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let going = || !done.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for number in 0..2 {
            let (mut shared, mut reader, mut writer) =
                (shared.try_clone().unwrap(), reader.try_clone().unwrap(), writer.try_clone().unwrap());
            let mine = directory.path().join(number.to_string());
            scope.spawn(move || {
                let mut bytes = vec![0; 1 << 20];
                while going() {
                    let _ = shared.rewind();
                    let _ = shared.read(&mut bytes);
                }
            });
            scope.spawn(move || {
                let memory = Region::new(32 << 20);
                while going() {
                    memory.protect_and_release();
                    let _ = fs::write(&mine, b"x");
                    let _ = fs::remove_file(&mine);
                }
            });
            scope.spawn(move || {
                let mut bytes = [0; 32 << 10];
                while going() {
                    let _ = writer.write(&bytes);
                    let _ = reader.read(&mut bytes);
                }
            });
        }
    });
}

/// Records two seconds in which threads of this process contend, and reads the trace.
fn record_contention<T>(klock: &mut Command, target: &[&str], read: impl FnOnce(&Trace) -> T) -> T {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let done = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        let _end = SetOnDrop(&done);
        scope.spawn(|| contend(&done));
        klock.args(["record", "--locks", "kernel", "--contended-only", "-d", "2s"]).args(target);
        run(klock.arg("-o").arg(&path))
    });
    assert!(ended.status.success(), "{}", ended.stderr);
    read(&Trace::open(&path).unwrap())
}

#[test]
#[ignore = "full: whether threads wait for kernel locks is a matter of chance"]
fn a_recording_of_contention_names_the_locks() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // These two are held for long.
    let expected = ["mm_struct.mmap_lock", "file.f_pos_lock"];
    let mut names = BTreeSet::new();
    until("threads wait for both locks", || {
        let locks = record_contention(&mut klock(), &["-p", &std::process::id().to_string()], |trace| {
            trace.locks().unwrap()
        });
        names.extend(locks.into_iter().filter_map(|lock| lock.name));
        println!("{names:?}");
        expected.iter().all(|name| names.contains(*name)).then_some(())
    });
}

/// Where the linker puts the text of a kernel on x86-64.
const TEXT: u64 = 0xffff_ffff_8100_0000;

/// Makes an image with debug information that has the functions of a kernel with this build id at the places
/// of the running kernel's, each of one instruction. Returns their lines.
fn make_image(image: &path::Path, build_id: &str) -> BTreeMap<String, i32> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let function = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        let is_wanted = matches!(kind, "t" | "T") && words.next().is_none();
        Some((u64::from_str_radix(address, 16).ok()?, name.to_owned())).filter(|_| is_wanted)
    };
    let functions: Vec<(u64, String)> = symbols.lines().filter_map(function).collect();
    let text = functions.iter().find(|(_, name)| name == "_stext").expect("the kernel's text").0;
    let functions = BTreeMap::from_iter(functions);
    let (mut lines, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut source = ".globl _stext\n_stext: nop\n".to_owned();
    let later = || functions.range(text + 1..);
    for ((address, name), (next, _)) in later().zip(later().skip(1)) {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_plain && !seen.insert(name) {
            // Another function of this name is not in the image.
            lines.remove(name);
        } else if is_plain {
            source += &format!(
                ".org {}\n.type {name}, @function\n.size {name}, {}\n",
                address - text,
                next - address
            );
            source += &format!("{name}: nop\n");
            // Two lines for `_stext`, and four for each function.
            lines.insert(name.clone(), 2 + 4 * seen.len() as i32);
        }
    }
    let file = image.with_extension("s");
    fs::write(&file, source).unwrap();
    let place = format!("-Wl,-Ttext={TEXT:#x},-e,_stext,--build-id=0x{build_id}");
    let mut gcc = Command::new("gcc");
    let built = run(gcc.args(["-g", "-nostdlib", "-static", "-no-pie", &place, "-o"]).arg(image).arg(&file));
    assert!(built.status.success(), "{}", built.stderr);
    lines
}

#[test]
#[ignore = "full: whether threads wait for kernel locks is a matter of chance"]
fn functions_of_the_kernel_have_file_and_line_of_its_image() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let recorded = || {
        let mut klock = Command::new("unshare");
        let script = "mount -t tmpfs none /boot && cp \"$0\" /boot/vmlinux-$(uname -r) && exec \"$@\"";
        klock.args(["--mount", "--propagation", "private", "sh", "-euc", script]).arg(&image);
        klock.arg(env!("CARGO_BIN_EXE_klock"));
        until("threads wait for kernel locks", || {
            let mut again = Command::new(klock.get_program());
            let stacks =
                record_contention(again.args(klock.get_args()), &["-a"], |trace| trace.stacks().unwrap());
            let frames = stacks.into_iter().flat_map(|stack| stack.frames);
            let frames: Vec<_> = frames.filter(|frame| frame.kernel && frame.symbol.is_some()).collect();
            (!frames.is_empty()).then_some(frames)
        })
    };
    make_image(&image, &"0".repeat(40));
    let frames = recorded();
    assert!(frames.iter().all(|frame| frame.file.is_none()), "the image of another kernel: {frames:?}");

    let build_id = frames.into_iter().find_map(|frame| frame.build_id).expect("the kernel has a build id");
    let lines = make_image(&image, &build_id);
    let mut compared = 0;
    for frame in recorded() {
        if let Some(line) = lines.get(frame.symbol.as_deref().unwrap()) {
            assert!(frame.file.as_deref().is_some_and(|file| file.ends_with("image.s")), "{frame:?}");
            assert_eq!(frame.line, Some(*line), "{frame:?}");
            compared += 1;
        }
    }
    assert!(compared > 0, "no frame has a function of the image");
}
