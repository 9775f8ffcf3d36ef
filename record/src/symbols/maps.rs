//! The text of `/proc/PID/maps` in, mappings out. A pure parser: names may hold anything that a file name may hold.

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First address.
    pub(super) start: u64,
    /// First address behind it.
    pub(super) end: u64,
    /// Where in the file it begins.
    pub(super) offset: u64,
    /// The file's inode; 0 if there is no file.
    pub(super) inode: u64,
    /// The file's path as the process saw it, or a name like `[vdso]`; empty if there is none.
    pub(super) path: String,
    /// The file was removed or replaced since.
    pub(super) deleted: bool,
}

impl Mapping {
    pub(super) fn covers(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Reads all lines; a line that makes no sense is left out.
pub(super) fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

/// `7f00-7f10 r-xp 00001000 fe:00 1234   /usr/lib/libc.so.6`
fn line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let _permissions = fields.next()?;
    let offset = fields.next()?;
    let _device = fields.next()?;
    let inode = fields.next()?;
    let path = fields.next().unwrap_or("").trim_start_matches(' ');
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let whole = path.strip_suffix(" (deleted)");
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        // The kernel writes a newline in a name as \012; nothing else is escaped.
        path: whole.unwrap_or(path).replace("\\012", "\n"),
        deleted: whole.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_whatever_stands_in_the_name() {
        let text = "\
7f5a10000000-7f5a10002000 r-xp 00003000 fe:01 42                         /opt/my app/lib x.so (deleted)
7f5a20000000-7f5a20021000 rw-p 00000000 00:00 0
7ffc0000-7ffc1000 r-xp 00000000 00:00 0                                  [vdso]
nonsense
";
        let maps = parse(text);
        assert_eq!(maps.len(), 3);
        assert_eq!((maps[0].path.as_str(), maps[0].deleted), ("/opt/my app/lib x.so", true));
        assert_eq!((maps[0].offset, maps[0].inode), (0x3000, 42));
        assert!(maps[0].covers(0x7f5a_1000_1fff) && !maps[0].covers(0x7f5a_1000_2000));
        assert_eq!((maps[1].path.as_str(), maps[1].inode), ("", 0));
        assert_eq!(maps[2].path, "[vdso]");
    }
}
