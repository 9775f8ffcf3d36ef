//! The maps as programs read them, and whatever is added and forgotten.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use proptest::prelude::*;
use trace_format::{known_stack::MAX_BYTES, wire::Incarnation};

use super::*;

/// The maps of programs, with room for some keys and places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    keys: HashMap<KnownStackKey, u32>,
    stacks: HashMap<u32, KnownStack>,
    room: usize,
    written: Vec<u32>,
}

impl Model {
    /// Starts with room for this many keys.
    pub(crate) fn new(room: usize) -> Self {
        Self(Rc::new(RefCell::new(State { room, ..State::default() })))
    }

    /// Returns the stack that a program recognizes, and the stack by frame pointers that it needs for that.
    /// Like the program, but `bytes` are those of a copy.
    pub(crate) fn recognize(&self, mut key: KnownStackKey, bp: u64, bytes: &[u8]) -> Option<(i32, i32)> {
        let state = self.0.borrow();
        for variant in 0..VARIANTS {
            key.variant = variant;
            let known = &state.stacks[state.keys.get(&key)?];
            let needed = known.bytes as usize;
            assert!(needed <= MAX_BYTES);
            let word = |position: u16| {
                let at = 8 * usize::from(position);
                assert!(at + 8 <= needed, "the program read too little");
                u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
            };
            if needed <= bytes.len() && known.fits(&key, bp, word) {
                return Some((known.stack, known.by_pointers));
            }
        }
        None
    }
}

impl Maps for Model {
    fn change(&mut self, changes: &[Change]) -> usize {
        let mut state = self.0.borrow_mut();
        for (made, change) in changes.iter().enumerate() {
            match change {
                Change::Add(place, stack) => {
                    if state.keys.len() == state.room && !state.keys.contains_key(&stack.key) {
                        return made;
                    }
                    assert!(!state.keys.values().any(|used| used == place), "a program may read it");
                    state.stacks.insert(*place, **stack);
                    state.keys.insert(stack.key, *place);
                    state.written.push(*place);
                }
                Change::Remove(key) => {
                    state.keys.remove(key);
                }
            }
        }
        changes.len()
    }
}

fn stack(tgid: u32, ip: u64, number: u32) -> Box<KnownStack> {
    let incarnation = Incarnation { started_ns: 1, tgid, ..Incarnation::default() };
    let key = KnownStackKey { incarnation, ip, ..KnownStackKey::default() };
    let mut stack =
        KnownStack { key, stack: stack::unwound(number), bytes: 8, count: 1, ..KnownStack::EMPTY };
    stack.words[0] = u64::from(number);
    Box::new(stack)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u32, u64, u32),
    Forget(u32),
    Flush,
    Rest,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3_u32, 0..4_u64, 0..6_u32).prop_map(|(tgid, ip, number)| Step::Add(tgid, ip, number)),
        1 => (0..3_u32).prop_map(Step::Forget),
        4 => Just(Step::Flush),
        1 => Just(Step::Rest),
    ]
}

proptest! {
    /// Programs recognize what was added since its process was forgotten, and nothing else, and no place is
    /// written to within the time in which a program may read it.
    #[test]
    fn what_programs_recognize_was_added_and_not_forgotten(
        steps in prop::collection::vec(any_step(), 0..200),
        places in 0..20_u32,
        room in 0..20_usize,
    ) {
        let model = Model::new(room);
        let mut known = KnownStacks::new(Box::new(model.clone()), places, 2048);
        let mut added = Vec::new();
        let mut last_written = HashMap::new();
        let mut now_ns = 0;
        for step in steps {
            now_ns += 1;
            match step {
                Step::Add(tgid, ip, number) => {
                    known.add(now_ns, stack(tgid, ip, number));
                    added.push((tgid, ip, number));
                }
                Step::Forget(tgid) => {
                    known.forget(tgid);
                    added.retain(|(of, ..)| *of != tgid);
                }
                Step::Flush => {
                    known.flush(now_ns);
                    for place in model.0.borrow_mut().written.drain(..) {
                        prop_assert!(place < places);
                        if let Some(before) = last_written.insert(place, now_ns) {
                            prop_assert!(before + REST_NS <= now_ns);
                        }
                    }
                }
                Step::Rest => now_ns += REST_NS,
            }
            for (tgid, ip, number) in (0..3).flat_map(|t| (0..4).flat_map(move |i| (0..6).map(move |n| (t, i, n)))) {
                let asked = stack(tgid, ip, number);
                if let Some(found) = model.recognize(asked.key, 0, &u64::from(number).to_le_bytes()) {
                    prop_assert_eq!(found, (asked.stack, stack::NONE));
                    prop_assert!(added.contains(&(tgid, ip, number)));
                }
            }
        }
    }
}

#[test]
fn a_stack_is_recognized_once_all_records_up_to_its_copy_are_drained() {
    let model = Model::new(8);
    let mut known = KnownStacks::new(Box::new(model.clone()), 8, 2048);
    let recognized =
        |number: u32| model.recognize(stack(1, 2, number).key, 0, &u64::from(number).to_le_bytes()).is_some();
    known.add(50, stack(1, 2, 7));
    known.flush(49);
    assert!(!recognized(7));
    known.flush(50);
    assert!(recognized(7) && !recognized(8));
    for number in 8..20 {
        known.add(60, stack(1, 2, number));
    }
    known.flush(60);
    assert_eq!((0..20).filter(|&number| recognized(number)).count(), VARIANTS as usize);
}
