//! Uprobes on all functions of a file in one process by two attachments, one for entries and one for returns.
//!
//! A single uprobe is a perf event, and the kernel waits for all CPUs when it closes one: 60 probes take five
//! seconds. `BPF_TRACE_UPROBE_MULTI` (6.6) waits once. aya does not support it, so its programs are loaded
//! here by hand, from the object that aya loaded and with the maps that aya created.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    thread,
};

use aya::{Ebpf, maps::Map};
use aya_obj::{
    Object,
    generated::{
        BPF_F_UPROBE_MULTI_RETURN, bpf_attach_type::BPF_TRACE_UPROBE_MULTI, bpf_attr, bpf_cmd, bpf_insn,
        bpf_prog_type::BPF_PROG_TYPE_KPROBE,
    },
};

use crate::{
    kernel::bpf::{bpf, empty_attributes},
    sources::pthread::ProbedFile,
};

/// The program at every function's entry.
const ENTERED: &str = "function_entered";
/// The program at every function's return.
const RETURNED: &str = "function_returned";
/// Number of threads that detach side by side: each waits for the kernel.
const DETACHING_THREADS: usize = 16;

/// The two programs and their attachments.
#[derive(Debug)]
pub(super) struct MultiUprobes {
    entered: OwnedFd,
    returned: OwnedFd,
    links: Vec<OwnedFd>,
}

impl MultiUprobes {
    /// Loads the programs of an object. `ebpf` was made from the same object, and still has all its maps.
    pub(super) fn load(object: &[u8], ebpf: &Ebpf) -> io::Result<Self> {
        let mut object = Object::parse(object).map_err(io::Error::other)?;
        let fds: HashMap<&str, RawFd> =
            ebpf.maps().filter_map(|(name, map)| Some((name, fd_of(map)?))).collect();
        let maps: Vec<(String, aya_obj::Map)> = object.maps.drain().collect();
        let with_fds =
            maps.iter().filter_map(|(name, map)| Some((name.as_str(), *fds.get(name.as_str())?, map)));
        let sections = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(with_fds, &sections).map_err(io::Error::other)?;
        object.relocate_calls(&sections).map_err(io::Error::other)?;
        let load = |name: &str| {
            let missing = || io::Error::other(format!("the object has no {name}"));
            let program = object.programs.get(name).ok_or_else(missing)?;
            let function = object.functions.get(&program.function_key()).ok_or_else(missing)?;
            load_program(&function.instructions, &program.license)
        };
        Ok(Self { entered: load(ENTERED)?, returned: load(RETURNED)?, links: Vec::new() })
    }

    /// Attaches the programs to all functions of a file in one process. Returns the number of probes.
    pub(super) fn attach(&mut self, pid: u32, file: &ProbedFile) -> io::Result<usize> {
        let path = CString::new(file.probe_path().as_os_str().as_bytes())?;
        let probes = |returns: bool| -> (Vec<u64>, Vec<u64>) {
            let functions = file.functions.iter().filter(|(function, _)| !returns || function.exit.is_some());
            functions
                .flat_map(|(function, offsets)| offsets.iter().map(|&offset| (offset, function.cookie())))
                .unzip()
        };
        // The returns first, so that every call whose entry is seen also has a return.
        let (exits, exit_cookies) = probes(true);
        let (entries, entry_cookies) = probes(false);
        let attachments = [
            (&self.returned, (&exits, &exit_cookies), BPF_F_UPROBE_MULTI_RETURN),
            (&self.entered, (&entries, &entry_cookies), 0),
        ];
        let mut links = Vec::new();
        for (program, (offsets, cookies), flags) in attachments {
            if !offsets.is_empty() {
                links.push(link(program, &path, (offsets, cookies), flags, pid)?);
            }
        }
        self.links.append(&mut links);
        Ok(exits.len() + entries.len())
    }

    pub(super) fn detach(&mut self) {
        let mut links = std::mem::take(&mut self.links);
        let share = links.len().div_ceil(DETACHING_THREADS).max(1);
        thread::scope(|scope| {
            while !links.is_empty() {
                let some = links.split_off(links.len().saturating_sub(share));
                // If no thread can be started, the links are dropped here, one after the other.
                let _thread = thread::Builder::new().spawn_scoped(scope, move || drop(some));
            }
        });
    }
}

/// Returns the descriptor of a map of a type that the programs use.
fn fd_of(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(map)
        | Map::ArrayOfMaps(map)
        | Map::HashMap(map)
        | Map::PerCpuArray(map)
        | Map::StackTraceMap(map) => Some(map.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}

fn load_program(instructions: &[bpf_insn], license: &CStr) -> io::Result<OwnedFd> {
    let mut attributes = empty_attributes();
    // SAFETY: these are the fields of BPF_PROG_LOAD.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
    load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    load.license = license.as_ptr() as u64;
    // SAFETY: the instructions and the license outlive the call.
    unsafe { bpf_fd(bpf_cmd::BPF_PROG_LOAD, &mut attributes) }
}

/// Attaches a program at these offsets, each with its cookie.
fn link(
    program: &OwnedFd,
    path: &CStr,
    (offsets, cookies): (&[u64], &[u64]),
    flags: u32,
    pid: u32,
) -> io::Result<OwnedFd> {
    let mut attributes = empty_attributes();
    attributes.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attributes.link_create.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: these are the fields of this attach type.
    let probes = unsafe { &mut attributes.link_create.__bindgen_anon_3.uprobe_multi };
    probes.path = path.as_ptr() as u64;
    probes.offsets = offsets.as_ptr() as u64;
    probes.cookies = cookies.as_ptr() as u64;
    probes.cnt = u32::try_from(offsets.len()).map_err(io::Error::other)?;
    probes.flags = flags;
    probes.pid = pid;
    // SAFETY: the path, the offsets and the cookies outlive the call; offsets and cookies have `cnt`
    // elements.
    unsafe { bpf_fd(bpf_cmd::BPF_LINK_CREATE, &mut attributes) }
}

/// Calls bpf(2) with a command that returns a new descriptor.
///
/// # Safety
///
/// As for [`bpf`].
unsafe fn bpf_fd(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the attributes. The descriptor is new, has O_CLOEXEC, and is ours alone.
    unsafe { bpf(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}
