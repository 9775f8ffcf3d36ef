//! Locates addresses in the running kernel: variables, modules and the kernel's image.
//!
//! blazesym names functions, but not variables, and static kernel locks are variables.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    thread::{self, JoinHandle},
};

use blazesym::{
    MaybeDefault,
    symbolize::source::{Elf, Kernel as KernelSource, Source},
};
use object::{
    Endianness, Object as _, ObjectSymbol as _, elf,
    read::{ReadCache, elf::NoteIterator},
};

use crate::{setup::host::read_symbols, system::hex};

/// The kernel's memory according to `/proc` and `/sys`. Parts that cannot be read are empty.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// Address of the first byte of the text.
    text: u64,
    /// Size in bytes from the start of the text to the end of the data; 0 if unknown.
    image: u64,
    build_id: Option<String>,
    modules: Vec<KernelModule>,
    variables: Vec<(u64, String)>,
}

#[derive(Debug)]
struct KernelModule {
    start: u64,
    bytes: u64,
    name: String,
    build_id: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Location<'a> {
    /// `[kernel]`, or a module's name in brackets.
    pub(super) module: String,
    /// The build id of the kernel or the module.
    pub(super) build_id: Option<&'a str>,
    /// Offset from the start of the kernel's text, or of the module.
    pub(super) offset: u64,
}

/// Where distributions install the kernel's image with debug information (`*` is the release): Debian,
/// Ubuntu, Fedora.
const IMAGES: [&str; 3] =
    ["/boot/vmlinux-*", "/usr/lib/debug/boot/vmlinux-*", "/usr/lib/debug/lib/modules/*/vmlinux"];

/// The image of the running kernel, from which functions have file and line.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) source: Source<'static>,
    /// The kernel's addresses minus those in the image.
    pub(super) shift: u64,
}

/// A [`Kernel`] that a thread of its own reads.
#[derive(Debug)]
pub(crate) struct ReadingKernel(JoinHandle<Kernel>);

impl ReadingKernel {
    pub(crate) fn start(symbols: String) -> io::Result<Self> {
        let thread = thread::Builder::new().name("klock-kernel".to_owned());
        thread.spawn(move || Kernel::read_with(&symbols)).map(Self)
    }

    /// Waits for the thread. Returns `None` if it has panicked.
    pub(super) fn finish(self) -> Option<Kernel> {
        self.0.join().ok()
    }
}

impl Kernel {
    /// Reads everything, in some tens of milliseconds.
    pub(super) fn read() -> Self {
        Self::read_with(&read_symbols())
    }

    /// Reads everything but the symbols, which are given.
    fn read_with(symbols: &str) -> Self {
        let mut kernel = parse(symbols, &text_of("/proc/modules"));
        kernel.build_id = build_id_in("/sys/kernel/notes");
        kernel.image = image(&text_of("/proc/iomem")).unwrap_or(0);
        for module in &mut kernel.modules {
            module.build_id = build_id_in(&format!("/sys/module/{}/notes/.note.gnu.build-id", module.name));
        }
        kernel
    }

    /// Returns the location of an address; `None` for code generated at run time, such as BPF programs.
    pub(super) fn locate(&self, address: u64) -> Option<Location<'_>> {
        for module in &self.modules {
            if let Some(offset) = address.checked_sub(module.start).filter(|offset| *offset < module.bytes) {
                let build_id = module.build_id.as_deref();
                return Some(Location { module: format!("[{}]", module.name), build_id, offset });
            }
        }
        /// Upper bound of the size of the kernel's image.
        const MAX_IMAGE_BYTES: u64 = 1 << 29;
        /// Modules and BPF programs start here, independent of the address of the image (`MODULES_VADDR`,
        /// `arch/x86/include/asm/pgtable_64_types.h`).
        const MODULES: u64 = if cfg!(target_arch = "x86_64") { 0xffff_ffff_c000_0000 } else { u64::MAX };
        let offset = address.checked_sub(self.text).filter(|offset| *offset < MAX_IMAGE_BYTES)?;
        let inside = self.text != 0 && (self.text >= MODULES || address < MODULES);
        let build_id = self.build_id.as_deref();
        inside.then(|| Location { module: "[kernel]".to_owned(), build_id, offset })
    }

    /// Returns the installed image with the build id of this kernel.
    pub(super) fn installed_image(&self) -> Option<Image> {
        let release = text_of("/proc/sys/kernel/osrelease");
        IMAGES.iter().find_map(|place| self.image_at(place.replace('*', release.trim_end()).into()))
    }

    fn image_at(&self, path: PathBuf) -> Option<Image> {
        let bytes = ReadCache::new(File::open(&path).ok()?);
        let file = object::File::parse(&bytes).ok()?;
        if file.build_id().ok()?.map(hex) != self.build_id {
            return None;
        }
        let text = file.symbols().find(|symbol| symbol.name() == Ok("_stext"))?.address();
        Some(Image { source: Elf::new(path).into(), shift: self.text.wrapping_sub(text) })
    }

    /// Returns the variable at an address: `name` or `name+0x10`. Sizes are unknown, so an address far behind
    /// a variable, or outside the image and the modules, has no name.
    pub(super) fn variable(&self, address: u64) -> Option<String> {
        /// Larger static structures with a lock inside are rare.
        const MAX_BYTES: u64 = 64 * 1024;
        self.locate(address)?;
        let next = self.variables.partition_point(|(start, _)| *start <= address);
        let (start, name) = &self.variables[next.checked_sub(1)?];
        match address - start {
            0 => Some(name.clone()),
            into if self.all_variables() && into < MAX_BYTES => Some(format!("{name}+{into:#x}")),
            _ => None,
        }
    }

    /// Returns the location of static memory that kallsyms does not list: `[kernel]+0x2247f80`, or a module
    /// and an offset.
    pub(super) fn static_memory(&self, address: u64) -> Option<String> {
        let location = self.locate(address)?;
        let is_static = location.module != "[kernel]" || location.offset < self.image;
        is_static.then(|| format!("{}+{:#x}", location.module, location.offset))
    }

    pub(super) fn address(&self, name: &str) -> Option<u64> {
        self.variables.iter().find(|(_, found)| found == name).map(|(address, _)| *address)
    }

    /// Returns whether kallsyms lists all variables (CONFIG_KALLSYMS_ALL). Otherwise it lists a few exported
    /// ones, and memory behind one of them most likely belongs to another variable.
    fn all_variables(&self) -> bool {
        self.variables.len() >= MIN_VARIABLES
    }
}

/// Minimum number of variables in a complete list. A kernel has tens of thousands.
const MIN_VARIABLES: usize = if cfg!(test) { 3 } else { 1000 };

fn parse(kallsyms: &str, modules: &str) -> Kernel {
    let mut kernel = Kernel::default();
    for line in kallsyms.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        // With restricted kernel pointers, all addresses are 0.
        if address == 0 {
            continue;
        }
        if matches!(kind, "b" | "B" | "d" | "D" | "r" | "R") {
            kernel.variables.push((address, name.to_owned()));
        } else if name == "_stext" {
            kernel.text = address;
        }
    }
    kernel.variables.sort_by_key(|(address, _)| *address);
    kernel.modules = modules.lines().filter_map(module).collect();
    kernel
}

/// Returns the size of the kernel's image, from lines ` 01000000-02209987 : Kernel code`. The virtual layout
/// is the same.
fn image(iomem: &str) -> Option<u64> {
    let line = |name: &str| {
        let line = iomem.lines().find(|line| line.trim_end().ends_with(name))?;
        let (begin, end) = line.trim_start().split_once(" : ")?.0.split_once('-')?;
        Some((u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    };
    let (begin, _) = line(": Kernel code")?;
    let (_, end) = line(": Kernel bss")?;
    end.checked_sub(begin).filter(|&bytes| bytes > 0)
}

/// Parses `ext4 737280 1 - Live 0xffffffffc0200000`.
fn module(line: &str) -> Option<KernelModule> {
    let mut fields = line.split_ascii_whitespace();
    let (name, bytes) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
    let start = fields.nth(3)?.strip_prefix("0x")?;
    let start = u64::from_str_radix(start, 16).ok().filter(|&start| start != 0)?;
    Some(KernelModule { start, bytes, name, build_id: None })
}

/// The names of the kernel's functions, without lines. blazesym would look for an image, too, and have no
/// names at all if there is one and a kernel without modules.
pub(super) fn functions() -> Source<'static> {
    Source::Kernel(KernelSource { vmlinux: MaybeDefault::None, ..KernelSource::default() })
}

fn text_of(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn build_id_in(path: &str) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let endian = Endianness::default();
    let mut notes = NoteIterator::<elf::FileHeader64<Endianness>>::new(endian, 4, &bytes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return Some(hex(note.desc()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        parse(
            "ffffffff81000000 T _stext\nffffffff81000100 T schedule\nffffffff82000000 D cgroup_mutex\n\
             ffffffff82000040 b pool\n0000000000001000 A fixed_percpu_data\nffffffffc0200500 d lock\t[ext4]\n",
            "ext4 4096 1 - Live 0xffffffffc0200000\nhidden 4096 0 - Live 0x0000000000000000\n",
        )
    }

    // The lists of symbols and of modules, with a zero between them.
    fuzz_target!(kallsyms, |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let (symbols, modules) = text.split_once('\0').unwrap_or((&text, ""));
        let kernel = parse(symbols, modules);
        for address in [0, 0xffff_ffff_8200_0048, 0xffff_ffff_c020_0500, u64::MAX] {
            let _ = (kernel.locate(address), kernel.variable(address), kernel.static_memory(address));
        }
    });

    #[test]
    fn a_static_lock_has_the_name_of_its_variable() {
        let kernel = kernel();
        assert_eq!(kernel.variable(0xffff_ffff_8200_0000).as_deref(), Some("cgroup_mutex"));
        assert_eq!(kernel.variable(0xffff_ffff_8200_0048).as_deref(), Some("pool+0x8"));
        assert_eq!(kernel.variable(0xffff_ffff_c020_0500).as_deref(), Some("lock"));
    }

    #[test]
    fn a_kernel_that_lists_few_variables_names_only_those() {
        let kernel = parse("ffffffff81000000 T _stext\nffffffff82000000 D cgroup_mutex\n", "");
        assert_eq!(kernel.variable(0xffff_ffff_8200_0000).as_deref(), Some("cgroup_mutex"));
        assert_eq!(kernel.variable(0xffff_ffff_8200_0008), None);
    }

    #[test]
    fn allocated_memory_has_no_name() {
        let kernel = kernel();
        assert_eq!(kernel.variable(0xffff_8881_0000_0010), None);
        assert_eq!(kernel.variable(0xffff_ffff_8300_0000), None, "far behind the last variable");
    }

    #[test]
    fn static_memory_without_a_name_has_an_offset_in_the_image() {
        let iomem = "00001000-0009fbff : System RAM\n  01000000-01ffffff : Kernel code\n  03000000-03ffffff : Kernel bss\n";
        let mut kernel = parse("ffffffff81000000 T _stext\n", "ext4 4096 1 - Live 0xffffffffc0200000\n");
        assert_eq!(kernel.static_memory(0xffff_ffff_8200_0008), None, "the size of the image is unknown");
        kernel.image = image(iomem).unwrap();
        assert_eq!(kernel.static_memory(0xffff_ffff_8200_0008).as_deref(), Some("[kernel]+0x1000008"));
        assert_eq!(kernel.static_memory(0xffff_ffff_8500_0000), None);
        assert_eq!(kernel.static_memory(0xffff_ffff_c020_0010).as_deref(), Some("[ext4]+0x10"));
        assert_eq!(image("00000000-00000000 : Kernel code\n00000000-00000000 : Kernel bss\n"), None);
    }

    #[test]
    fn an_address_is_located_in_a_module_or_in_the_image() {
        let kernel = kernel();
        let locate = |address| kernel.locate(address).map(|location| (location.module, location.offset));
        assert_eq!(locate(0xffff_ffff_8100_0104), Some(("[kernel]".to_owned(), 0x104)));
        assert_eq!(locate(0xffff_ffff_c020_0010), Some(("[ext4]".to_owned(), 0x10)));
        assert_eq!(locate(0xffff_ffff_c030_0000), None);
    }

    #[test]
    fn code_generated_at_run_time_is_not_in_the_image() {
        let kernel = parse("ffffffffb5000000 T _stext\n", "");
        assert!(kernel.locate(0xffff_ffff_b600_0000).is_some());
        assert!(kernel.locate(0xffff_ffff_c001_0000).is_none());
    }

    #[test]
    fn restricted_kernel_pointers_name_nothing() {
        let kernel = parse("0000000000000000 T _stext\n0000000000000000 D cgroup_mutex\n", "");
        assert_eq!((kernel.locate(0x10), kernel.variable(0x10)), (None, None));
    }
}
