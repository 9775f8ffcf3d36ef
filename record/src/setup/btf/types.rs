//! Type information of a kernel: the offset of a member, and the member at an offset.
//!
//! Reads a BTF file. No kernel memory is read.

use std::{fmt, fs, path::Path};

use btf_rs::{Btf, BtfType, Struct, Type};
use trace_format::LockKind;

/// More levels than the kernel nests structures.
const MAX_DEPTH: u32 = 10;

/// The types of a kernel.
pub struct TypeInfo {
    btf: Btf,
}

/// The position of a member in a structure, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    start: u32,
    bits: u32,
}

/// A per-CPU variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    /// Offset in a CPU's per-CPU area.
    pub offset: u64,
    pub bytes: u64,
    type_id: u32,
}

impl fmt::Debug for TypeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypeInfo").finish_non_exhaustive()
    }
}

impl Field {
    #[cfg(test)]
    pub(crate) fn new(start: u32, bits: u32) -> Self {
        Self { start, bits }
    }

    /// Returns the member's value from the first bytes of a structure; `None` if they end before it.
    pub fn in_bytes(self, bytes: &[u8]) -> Option<u64> {
        if self.bits == 0 {
            return None;
        }
        let first = self.start as usize / 8;
        let shift = self.start % 8;
        let last = (self.start + self.bits).div_ceil(8) as usize;
        let value =
            bytes.get(first..last)?.iter().rev().fold(0_u128, |sum, &byte| sum << 8 | u128::from(byte));
        let mask = if self.bits >= 64 { u128::from(u64::MAX) } else { (1 << self.bits) - 1 };
        u64::try_from(value >> shift & mask).ok()
    }

    pub fn offset(self) -> u64 {
        u64::from(self.start / 8)
    }
}

impl TypeInfo {
    pub fn read(path: &Path) -> Result<Self, String> {
        // The library's reader of files makes a system call for each type.
        let bytes = fs::read(path).map_err(|e| e.to_string())?;
        Btf::from_bytes(&bytes).map(|btf| Self { btf }).map_err(|e| e.to_string())
    }

    pub fn size(&self, structure: &str) -> Option<u64> {
        Some(self.structure(structure)?.size() as u64)
    }

    /// Returns the position of a member, which may be in an anonymous structure inside.
    pub fn field(&self, structure: &str, member: &str) -> Option<Field> {
        self.field_in(&self.structure(structure)?, member, MAX_DEPTH)
    }

    pub fn offset(&self, structure: &str, member: &str) -> Option<u64> {
        self.field(structure, member).map(Field::offset)
    }

    pub fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        let types = self.btf.resolve_types_by_name(enumeration).ok()?;
        types.iter().find_map(|found| match found {
            Type::Enum(found) => {
                let has_name = |member: &&btf_rs::EnumMember| {
                    self.btf.resolve_name(*member).is_ok_and(|found| found == name)
                };
                found.members.iter().find(has_name).map(btf_rs::EnumMember::val)
            }
            _ => None,
        })
    }

    /// Returns whether BTF describes a function and the type of one of its arguments. fentry and fexit
    /// programs can read no other argument (`btf_ctx_access`; 5.10 only declares the argument type of its
    /// system calls).
    pub fn describes_argument(&self, function: &str, argument: usize) -> bool {
        let types = self.btf.resolve_types_by_name(function).unwrap_or_default();
        let Some(Type::Func(function)) = types.iter().find(|found| matches!(found, Type::Func(_))) else {
            return false;
        };
        let Ok(Type::FuncProto(prototype)) = self.btf.resolve_chained_type(function) else { return false };
        let Some(parameter) = prototype.parameters.get(argument) else { return false };
        !matches!(self.btf.chained_type_iter(parameter).last(), Some(Type::Fwd(_)) | None)
    }

    /// Returns the path to the lock of this kind at an offset of a structure: `mm_struct.mmap_lock`. If a
    /// lock contains another lock at the same offset, the outer lock's path counts.
    pub fn lock_at(&self, structure: &str, offset: u64, kind: LockKind) -> Option<String> {
        let found = self.structure(structure)?;
        Some(format!("{structure}{}", self.lock_in_struct(&found, offset, kind, MAX_DEPTH)?))
    }

    pub fn lock_in_variable(&self, variable: &Variable, offset: u64, kind: LockKind) -> Option<String> {
        Some(format!("{}{}", variable.name, self.lock_in(variable.type_id, offset, kind, MAX_DEPTH)?))
    }

    /// Returns all per-CPU variables, sorted by offset.
    pub fn per_cpu(&self) -> Vec<Variable> {
        let mut variables = Vec::new();
        for section in self.btf.resolve_types_by_name(".data..percpu").unwrap_or_default() {
            let Type::Datasec(section) = section else { continue };
            for entry in &section.variables {
                let Ok(Type::Var(variable)) = self.btf.resolve_chained_type(entry) else { continue };
                let (Ok(name), Some(type_id)) = (self.btf.resolve_name(&variable), variable.get_type_id())
                else {
                    continue;
                };
                let (offset, bytes) = (u64::from(entry.offset()), entry.size() as u64);
                variables.push(Variable { name, offset, bytes, type_id });
            }
        }
        variables.sort_by_key(|variable| variable.offset);
        variables
    }

    fn structure(&self, name: &str) -> Option<Struct> {
        self.btf.resolve_types_by_name(name).ok()?.into_iter().find_map(|found| match found {
            Type::Struct(found) => Some(found),
            _ => None,
        })
    }

    fn field_in(&self, structure: &Struct, name: &str, depth: u32) -> Option<Field> {
        let depth = depth.checked_sub(1)?;
        structure.members.iter().find_map(|member| {
            let found = self.btf.resolve_name(member).unwrap_or_default();
            let kind = member.get_type_id()?;
            if found == name {
                let bits = member.bitfield_size().filter(|&bits| bits > 0);
                // A member without a size, such as a flexible array, still has a position.
                let whole = || u32::try_from(self.bytes(kind)?.checked_mul(8)?).ok();
                let bits = bits.or_else(whole).unwrap_or(0);
                return Some(Field { start: member.bit_offset(), bits });
            }
            if !found.is_empty() {
                return None;
            }
            let (Type::Struct(inner) | Type::Union(inner)) = self.resolve(kind)?.0 else { return None };
            let field = self.field_in(&inner, name, depth)?;
            Some(Field { start: field.start + member.bit_offset(), ..field })
        })
    }

    fn lock_in(&self, kind: u32, offset: u64, lock: LockKind, depth: u32) -> Option<String> {
        let (found, names) = self.resolve(kind)?;
        if offset == 0 && names.iter().any(|name| is_lock(name, lock)) {
            return Some(String::new());
        }
        match found {
            Type::Struct(found) | Type::Union(found) => self.lock_in_struct(&found, offset, lock, depth),
            Type::Array(array) => {
                let element = array.get_type_id()?;
                let bytes = self.bytes(element).filter(|&bytes| bytes > 0)?;
                let rest = self.lock_in(element, offset % bytes, lock, depth.checked_sub(1)?)?;
                Some(format!("[{}]{rest}", offset / bytes))
            }
            _ => None,
        }
    }

    fn lock_in_struct(&self, structure: &Struct, offset: u64, lock: LockKind, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        structure.members.iter().find_map(|member| {
            let inside = offset.checked_sub(u64::from(member.bit_offset() / 8))?;
            let kind = member.get_type_id()?;
            if inside >= self.bytes(kind)? {
                return None;
            }
            let rest = self.lock_in(kind, inside, lock, depth)?;
            match self.btf.resolve_name(member).unwrap_or_default().as_str() {
                "" => Some(rest),
                name => Some(format!(".{name}{rest}")),
            }
        })
    }

    /// Returns a type without its qualifiers, and the names of all typedefs on the way.
    fn resolve(&self, id: u32) -> Option<(Type, Vec<String>)> {
        let mut found = self.btf.resolve_type_by_id(id).ok()?;
        let mut names = Vec::new();
        for _ in 0..MAX_DEPTH {
            if let Some(named) = found.as_btf_type()
                && let Ok(name) = self.btf.resolve_name(named)
            {
                names.push(name);
            }
            found = match &found {
                Type::Typedef(inner) => self.btf.resolve_chained_type(inner).ok()?,
                Type::Const(inner) | Type::Volatile(inner) | Type::Restrict(inner) => {
                    self.btf.resolve_chained_type(inner).ok()?
                }
                Type::TypeTag(inner) => self.btf.resolve_chained_type(inner).ok()?,
                _ => return Some((found, names)),
            };
        }
        None
    }

    /// Returns the size of a type. A flexible array extends to the end of its structure.
    fn bytes(&self, id: u32) -> Option<u64> {
        match self.resolve(id)?.0 {
            Type::Struct(found) | Type::Union(found) => Some(found.size() as u64),
            Type::Int(found) => Some(found.size() as u64),
            Type::Enum(found) => Some(found.size() as u64),
            Type::Enum64(found) => Some(found.size() as u64),
            Type::Float(found) => Some(found.size() as u64),
            Type::Ptr(_) => Some(8),
            Type::Array(array) if array.len() == 0 => Some(u64::MAX),
            Type::Array(array) => self.bytes(array.get_type_id()?)?.checked_mul(array.len() as u64),
            _ => None,
        }
    }
}

/// Returns whether a type of this name is a lock of this kind. On PREEMPT_RT kernels most locks contain an
/// rtmutex.
fn is_lock(name: &str, kind: LockKind) -> bool {
    use LockKind as K;
    let kinds: &[K] = match name {
        "mutex" | "ww_mutex" => &[K::Mutex, K::RtMutex],
        "rw_semaphore" => &[K::RwSem, K::RtMutex],
        "semaphore" => &[K::Semaphore],
        "percpu_rw_semaphore" => &[K::PercpuRwSem],
        "rt_mutex" | "rt_mutex_base" => &[K::RtMutex],
        "spinlock" | "raw_spinlock" | "qspinlock" => &[K::SpinLock, K::RtMutex],
        "rwlock_t" | "qrwlock" => &[K::RwLock, K::RtMutex],
        _ => &[],
    };
    kinds.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::btf::KERNEL_BTF;

    fuzz_target!(btf, |bytes: &[u8]| {
        let Ok(btf) = Btf::from_bytes(bytes) else { return };
        let types = TypeInfo { btf };
        let _ = crate::setup::btf::KernelTypes::of(&types);
        for name in ["mutex", "task_struct", "rw_semaphore", "s"] {
            let _ = (types.size(name), types.offset(name, "owner"), types.describes_argument(name, 0));
        }
    });

    /// Returns `None` on a machine without BTF, where there is nothing to test.
    fn types() -> Option<TypeInfo> {
        Path::new(KERNEL_BTF).exists().then(|| TypeInfo::read(Path::new(KERNEL_BTF)).unwrap())
    }

    #[test]
    fn known_locks_are_found_by_their_offsets() {
        let Some(types) = types() else { return };
        for (structure, member, kind) in [
            ("mm_struct", "mmap_lock", LockKind::RwSem),
            ("mm_struct", "page_table_lock", LockKind::SpinLock),
            ("file", "f_pos_lock", LockKind::Mutex),
            ("inode", "i_rwsem", LockKind::RwSem),
            ("inode", "i_lock", LockKind::SpinLock),
            ("sighand_struct", "siglock", LockKind::SpinLock),
            ("task_struct", "pi_lock", LockKind::SpinLock),
            ("files_struct", "file_lock", LockKind::SpinLock),
            ("pipe_inode_info", "mutex", LockKind::Mutex),
        ] {
            let offset = types.offset(structure, member).unwrap();
            assert_eq!(types.lock_at(structure, offset, kind), Some(format!("{structure}.{member}")));
        }
    }

    #[test]
    fn a_lock_inside_a_lock_has_its_own_path() {
        let Some(types) = types() else { return };
        let outer = types.offset("mm_struct", "mmap_lock").unwrap();
        let inner = outer + types.offset("rw_semaphore", "wait_lock").unwrap();
        let name = types.lock_at("mm_struct", inner, LockKind::SpinLock);
        assert_eq!(name.as_deref(), Some("mm_struct.mmap_lock.wait_lock"));
    }

    #[test]
    fn a_lock_in_an_array_of_structures_has_an_index() {
        let Some(types) = types() else { return };
        let zone = types.size("zone").unwrap();
        let lock = types.offset("zone", "lock").unwrap();
        let zones = types.offset("pglist_data", "node_zones").unwrap();
        let name = types.lock_at("pglist_data", zones + zone + lock, LockKind::SpinLock);
        assert_eq!(name.as_deref(), Some("pglist_data.node_zones[1].lock"));
    }

    #[test]
    fn a_lock_of_another_kind_has_no_path() {
        let Some(types) = types() else { return };
        let offset = types.offset("mm_struct", "mmap_lock").unwrap();
        assert_eq!(types.lock_at("mm_struct", offset, LockKind::Mutex), None);
        assert_eq!(types.lock_at("mm_struct", offset + 1, LockKind::RwSem), None);
        assert_eq!(types.lock_at("mm_struct", 1 << 40, LockKind::RwSem), None);
        assert_eq!(types.lock_at("no_such_struct", 0, LockKind::RwSem), None);
        assert_eq!((types.offset("mm_struct", "no_such"), types.size("no_such_struct")), (None, None));
    }

    #[test]
    fn a_per_cpu_variable_has_a_type() {
        let Some(types) = types() else { return };
        let variables = types.per_cpu();
        let Some(runqueues) = variables.iter().find(|variable| variable.name == "runqueues") else { return };
        let lock = types.offset("rq", "__lock").or_else(|| types.offset("rq", "lock")).unwrap();
        let name = types.lock_in_variable(runqueues, lock, LockKind::SpinLock).unwrap();
        assert!(["runqueues.__lock", "runqueues.lock"].contains(&name.as_str()), "{name}");
    }

    #[test]
    fn a_bit_field_is_extracted_from_its_bytes() {
        let bytes = [0, 0, 0x34, 0x92, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Field { start: 16, bits: 15 }.in_bytes(&bytes), Some(0x1234));
        assert_eq!(Field { start: 31, bits: 1 }.in_bytes(&bytes), Some(1));
        assert_eq!(Field { start: 8, bits: 64 }.in_bytes(&bytes), Some(0xffff_ffff_ff92_3400));
        assert_eq!(Field { start: 16, bits: 64 }.in_bytes(&bytes), None);
        assert_eq!(Field { start: 16, bits: 0 }.in_bytes(&bytes), None, "a flexible array");
    }
}
