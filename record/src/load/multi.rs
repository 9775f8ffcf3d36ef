//! Probes on all functions of a library by two attachments, one for their entries and one for their returns. A process and
//! the functions' offsets enter; the attachments stay until [`Multi::detach`].
//!
//! Without it each probe is a perf event, and for the end of each the kernel waits for all CPUs, one event after the other:
//! 60 probes take it five seconds. `BPF_TRACE_UPROBE_MULTI` (6.6) waits once. aya does not know it: a program for it has to be
//! loaded as such, so that this is done by hand here, from the object that aya loaded, with the maps that aya made.

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

use crate::uprobes::Libc;

/// The program at every function's entry.
const ENTERED: &str = "function_entered";
/// The program at every function's return.
const RETURNED: &str = "function_returned";
/// Threads that take attachments out, side by side: each waits for the kernel.
const DETACHING: usize = 16;

/// The two programs, loaded, and what they are attached to.
#[derive(Debug)]
pub(super) struct Multi {
    entered: OwnedFd,
    returned: OwnedFd,
    links: Vec<OwnedFd>,
}

impl Multi {
    /// Loads the programs of the object of which `ebpf` was made. The maps must all be in `ebpf` still.
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

    /// Attaches them to all functions of a library in one process. Returns how many probes that makes.
    pub(super) fn attach(&mut self, pid: u32, libc: &Libc) -> io::Result<usize> {
        let path = CString::new(libc.path.as_os_str().as_bytes())?;
        let probes = |returns: bool| -> (Vec<u64>, Vec<u64>) {
            let functions = libc.functions.iter().filter(|(function, _)| !returns || function.exit.is_some());
            functions
                .flat_map(|(function, offsets)| offsets.iter().map(|&offset| (offset, function.cookie())))
                .unzip()
        };
        // The returns first: a call that is seen to begin must be seen to return.
        let (exits, exit_cookies) = probes(true);
        let (entries, entry_cookies) = probes(false);
        let exit = link(&self.returned, &path, (&exits, &exit_cookies), BPF_F_UPROBE_MULTI_RETURN, pid)?;
        let entry = link(&self.entered, &path, (&entries, &entry_cookies), 0, pid)?;
        self.links.extend([exit, entry]);
        Ok(exits.len() + entries.len())
    }

    /// Takes all attachments out.
    pub(super) fn detach(&mut self) {
        let mut links = std::mem::take(&mut self.links);
        let share = links.len().div_ceil(DETACHING).max(1);
        thread::scope(|scope| {
            while !links.is_empty() {
                let some = links.split_off(links.len().saturating_sub(share));
                // Without room for a thread they are dropped here, which is the same but later.
                let _thread = thread::Builder::new().spawn_scoped(scope, move || drop(some));
            }
        });
    }
}

/// Of the kinds that the programs use.
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
    // SAFETY: all fields are integers, for which 0 is a value and means "not given".
    let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: these are the fields of the command that follows.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
    load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    load.license = license.as_ptr() as u64;
    bpf(bpf_cmd::BPF_PROG_LOAD, &mut attributes)
}

/// Attaches a program at these offsets, each with its cookie.
fn link(
    program: &OwnedFd,
    path: &CStr,
    (offsets, cookies): (&[u64], &[u64]),
    flags: u32,
    pid: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: as above.
    let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
    attributes.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attributes.link_create.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: these are the fields of this type of attachment.
    let probes = unsafe { &mut attributes.link_create.__bindgen_anon_3.uprobe_multi };
    probes.path = path.as_ptr() as u64;
    probes.offsets = offsets.as_ptr() as u64;
    probes.cookies = cookies.as_ptr() as u64;
    probes.cnt = u32::try_from(offsets.len()).map_err(io::Error::other)?;
    probes.flags = flags;
    probes.pid = pid;
    bpf(bpf_cmd::BPF_LINK_CREATE, &mut attributes)
}

/// A command that gives a descriptor.
fn bpf(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the attributes, of the size that is told; what they point to is the callers' and lives
    // through the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            std::ptr::from_mut(attributes),
            size_of::<bpf_attr>() as libc::c_uint,
        )
    };
    let fd = i32::try_from(answer).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made it just now for us; it has O_CLOEXEC.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
