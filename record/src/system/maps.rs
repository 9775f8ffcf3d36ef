//! Parses `/proc/PID/maps`. Paths may contain any byte that a file name may contain.
//!
//! By hand: the crate `procfs` (0.18) fails on paths that are not UTF-8, trims spaces, and panics on a file
//! named `/SYSV`.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    rc::Rc,
};

use super::procfs;

/// Maximum number of bytes that are read. A process can have 65,530 mappings by default, each of a path of 4
/// KiB.
const MAX_BYTES: u64 = 16 << 20;
/// The name of the memory in which a process records itself.
pub(crate) const OWN_MEMORY: &str = "klock-preload";
/// Maximum number of mappings that are found by a condition.
const MAX_FOUND: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: u64,
    /// First address behind the mapping.
    pub(crate) end: u64,
    pub(crate) offset: u64,
    /// Whether its bytes can be executed.
    pub(crate) executable: bool,
    /// Whether other processes that map the same object see what is written to it.
    pub(crate) shared: bool,
    /// Major and minor number of the file's device.
    pub(crate) device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub(crate) inode: u64,
    /// The file's path as the process sees it, or a name like `[vdso]`; empty if there is none.
    pub(crate) path: Rc<str>,
    /// Whether the file was removed or replaced since.
    pub(crate) deleted: bool,
}

impl Mapping {
    pub(crate) fn covers(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the place of an address in the object that processes share: `DEVICE:INODE+OFFSET`, with the
    /// device as the kernel prints it. Memory without a file has an inode of its own, too. In klock's memory
    /// there are no locks: a forked process drops the memory of its parent, and its own is there before its
    /// mappings are read again.
    pub(crate) fn shared_place(&self, address: u64) -> Option<String> {
        let (major, minor) = self.device;
        let offset = address - self.start + self.offset;
        let is_own = self.path.strip_prefix("/memfd:") == Some(OWN_MEMORY);
        (self.shared && !is_own).then(|| format!("{major:02x}:{minor:02x}:{}+{offset:#x}", self.inode))
    }

    /// Returns whether an address in it can be one of code: memory without a file contains code only where it
    /// can be executed. Stacks of code without frame pointers contain numbers that are addresses of data.
    pub(crate) fn is_code(&self) -> bool {
        self.inode != 0 || self.executable
    }
}

/// Reads the text of a process's mappings, up to a limit that only hostile processes reach.
pub(crate) fn read(pid: u32) -> io::Result<Vec<u8>> {
    read_at_most(MAX_BYTES, pid)
}

/// Reads the beginning of the text of a process's mappings.
pub(crate) fn read_at_most(bytes: u64, pid: u32) -> io::Result<Vec<u8>> {
    let read = |path: String| {
        let mut text = Vec::new();
        // The part before an error is useful.
        let _ = File::open(path)?.take(bytes).read_to_end(&mut text);
        io::Result::Ok(text)
    };
    let text = read(format!("/proc/{pid}/maps"))?;
    if !text.is_empty() {
        return Ok(text);
    }
    // A first thread that has ended has no mappings, while the others go on.
    let others = procfs::threads(pid).into_iter().filter(|tid| *tid != pid);
    let texts = others.filter_map(|tid| read(format!("/proc/{pid}/task/{tid}/maps")).ok());
    Ok(texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default())
}

/// Returns the mappings of a process that satisfy a condition, however many others there are.
pub(crate) fn find(pid: u32, mut wanted: impl FnMut(&Mapping) -> bool) -> io::Result<Vec<Mapping>> {
    let mut lines = BufReader::new(File::open(format!("/proc/{pid}/maps"))?);
    let (mut found, mut line) = (Vec::new(), Vec::new());
    while found.len() < MAX_FOUND && lines.read_until(b'\n', &mut line)? > 0 {
        found.extend(parse(&line).into_iter().filter(&mut wanted));
        line.clear();
    }
    Ok(found)
}

/// Parses all lines. Invalid lines are left out.
pub(crate) fn parse(text: &[u8]) -> Vec<Mapping> {
    let text = String::from_utf8_lossy(text);
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let last = mappings.last().map(|mapping| &mapping.path);
        if let Some(mapping) = parse_line(line, last) {
            mappings.push(mapping);
        }
    }
    mappings
}

/// Parses `7f00-7f10 r-xp 00001000 fe:00 1234 /usr/lib/libc.so.6`. Mappings of the same file mostly follow
/// each other and share their path.
fn parse_line(line: &str, last: Option<&Rc<str>>) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?;
    let path = fields.next().unwrap_or("").trim_start_matches(' ');
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    let original = path.strip_suffix(" (deleted)");
    // The kernel escapes only newlines.
    let name = original.unwrap_or(path);
    let name = if name.contains('\\') { name.replace("\\012", "\n").into() } else { Cow::Borrowed(name) };
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        executable: permissions.contains('x'),
        shared: permissions.contains('s'),
        device: (number(major)?, number(minor)?),
        inode: inode.parse().ok()?,
        path: last.filter(|last| ***last == *name).map_or_else(|| (*name).into(), Rc::clone),
        deleted: original.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_shared_memory_has_a_place_in_its_object() {
        let maps = parse(
            b"7000-9000 rw-s 00002000 00:01 77 /dev/zero (deleted)\n9000-a000 rw-p 0 fe:01 5 /x\n\
                    a000-b000 rw-s 0 00:01 78 /memfd:klock-preload (deleted)\n",
        );
        assert_eq!(maps[0].shared_place(0x7040).as_deref(), Some("00:01:77+0x2040"));
        assert_eq!(maps[1].shared_place(0x9040), None);
        assert_eq!(maps[2].shared_place(0xa040), None);
    }

    #[test]
    fn paths_may_contain_spaces() {
        let text = b"\
7f5a10000000-7f5a10002000 r-xp 00003000 fe:01 42                         /opt/my app/lib x.so (deleted)
7f5a20000000-7f5a20021000 rw-p 00000000 00:00 0
7ffc0000-7ffc1000 r-xp 00000000 00:00 0                                  [vdso]
nonsense
";
        let maps = parse(text);
        assert_eq!(maps.len(), 3);
        assert_eq!((&*maps[0].path, maps[0].deleted), ("/opt/my app/lib x.so", true));
        assert_eq!((maps[0].offset, maps[0].inode, maps[0].device), (0x3000, 42, (0xfe, 1)));
        assert!(maps[0].executable && !maps[1].executable);
        assert!(maps[0].covers(0x7f5a_1000_1fff) && !maps[0].covers(0x7f5a_1000_2000));
        assert_eq!((&*maps[1].path, maps[1].inode), ("", 0));
        assert_eq!(&*maps[2].path, "[vdso]");
    }
}
