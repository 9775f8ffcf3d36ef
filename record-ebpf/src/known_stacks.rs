//! Recognizes by the registers of a task a user stack whose frames the recorder knows, and tells the number
//! of its frames. A copy of the stack would cost the recorder more than all the rest of an event.
//!
//! The recorder alone writes to these maps. Lookups take no lock, so that a program inside another one may do
//! them, too.

use aya_ebpf::{
    btf_maps::{Array, HashMap, PerCpuArray},
    helpers::{bpf_get_current_task, generated::bpf_probe_read_user},
    macros::btf_map,
};
use trace_format::{
    known_stack::{KnownStack, KnownStackKey, MAX_BYTES, VARIANTS},
    wire::Incarnation,
};

use crate::{
    config,
    guard::{Run, SLOTS},
    memory::task_field,
    registers::Registers,
};

/// Number of words of the top of a stack.
const WORDS: usize = MAX_BYTES / 8;

/// The place of each known stack.
#[btf_map]
static KNOWN_KEYS: HashMap<KnownStackKey, u32, 8192> = HashMap::new();

/// The known stacks. The loader shrinks both maps if no stack is unwound.
#[btf_map]
static KNOWN_STACKS: Array<KnownStack, 8192> = Array::new();

/// The top of the stack of the task that has each slot of the guard. Here, because a program has little
/// memory of its own.
#[btf_map]
static TOPS: PerCpuArray<Top, SLOTS> = PerCpuArray::new();

/// The registers of a task at its entry to the kernel, and the top of its user stack.
#[repr(C)]
pub(crate) struct Top {
    pub(crate) key: KnownStackKey,
    pub(crate) bp: u64,
    words: [u64; WORDS],
}

/// A stack that was recognized, or none. Not an `Option` of two fields: for none, the compiler would copy a
/// register that the verifier knows to be unset.
#[derive(Clone, Copy)]
pub(crate) struct Found(u64);

impl Found {
    const NONE: Self = Self(0);

    #[inline(always)]
    fn new(known: &KnownStack) -> Self {
        Self(u64::from(known.stack as u32) | u64::from(known.by_pointers as u32) << 32)
    }

    /// Whether a stack was recognized.
    #[inline(always)]
    pub(crate) fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Returns the value of the event's stack field.
    #[inline(always)]
    pub(crate) fn stack(self) -> i32 {
        self.0 as i32
    }

    /// Returns what the stack by frame pointers must be; [`NONE`](trace_format::wire::stack::NONE) if it does
    /// not matter.
    #[inline(always)]
    pub(crate) fn by_pointers(self) -> i32 {
        (self.0 >> 32) as i32
    }
}

impl Top {
    /// Returns the top of the stack of the current task, of process `tgid`, with these registers.
    #[inline(always)]
    pub(crate) fn of_current(
        run: &Run,
        tgid: u32,
        Registers { ip, sp, bp }: Registers,
    ) -> Option<&'static mut Self> {
        let top = Self::of_slot(run.slot)?;
        // SAFETY: the helper has no preconditions.
        let task = unsafe { bpf_get_current_task() };
        let started_ns = task_field(task, config::task_leader_offset())
            .and_then(|leader| task_field(leader, config::task_start_offset()));
        let execs = task_field(task, config::task_execs_offset());
        // Without one of them, programs are not told apart.
        let (started_ns, execs) = started_ns.zip(execs).unwrap_or((0, 0));
        top.key.incarnation = Incarnation { started_ns, execs, tgid, padding: 0 };
        (top.key.ip, top.key.sp, top.key.padding) = (ip, sp, 0);
        top.bp = bp;
        Some(top)
    }

    /// Returns the top in a slot, which the caller has.
    #[inline(always)]
    fn of_slot(slot: u32) -> Option<&'static mut Self> {
        // SAFETY: the pointer is from a checked map lookup, and no other program of this CPU has the slot.
        TOPS.get_ptr_mut(slot).map(|top| unsafe { &mut *top })
    }

    /// Looks for this stack, of the run's slot, among the known ones.
    #[inline(always)]
    pub(crate) fn find(&self, run: &Run) -> Found {
        if self.key.incarnation.started_ns == 0 { Found::NONE } else { Found(search_known_stacks(run.slot)) }
    }
}

/// Returns the value of [`Found`] for the [`Top`] of a slot. Exported, so that the verifier follows it once
/// for each program (5.6) and not for each way that leads here.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn search_known_stacks(slot: u32) -> u64 {
    let Some(top) = Top::of_slot(slot) else { return Found::NONE.0 };
    for variant in 0..VARIANTS {
        top.key.variant = variant;
        let Some(place) = KNOWN_KEYS.get_ptr(&top.key) else { break };
        // SAFETY: the pointer is from a checked map lookup, and the word is aligned.
        let Some(known) = KNOWN_STACKS.get_ptr(unsafe { place.read_volatile() }) else { break };
        // SAFETY: as above. The recorder does not write to a place that a key leads to, or did so recently.
        let known = unsafe { &*known };
        let bytes = known.bytes;
        if bytes > MAX_BYTES as u32 {
            break;
        }
        let words = (&raw mut top.words).cast();
        // SAFETY: there is room for the bytes, and the helper checks the address.
        if unsafe { bpf_probe_read_user(words, bytes, top.key.sp as *const _) } != 0 {
            continue;
        }
        if known.fits(&top.key, top.bp, |position| top.words[usize::from(position) % WORDS]) {
            return Found::new(known).0;
        }
    }
    Found::NONE.0
}
