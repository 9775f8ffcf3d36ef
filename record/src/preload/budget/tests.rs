//! A process that exceeds a budget is recorded no further, and one line reports it.

use proptest::prelude::*;

use super::*;

const OTHER: u32 = 64201;

fn limits() -> Limits {
    Limits::NONE.with([
        (Resource::Processes, 2),
        (Resource::Slots, 10),
        (Resource::QueuedUnits, 100),
        (Resource::Bytes, 1 << 20),
        (Resource::ProcessBytes, 1 << 18),
        (Resource::Sessions, 5),
        (Resource::Stacks, 5),
        (Resource::Locks, 100),
        (Resource::InvalidUnits, 3),
        (Resource::LossWork, 50),
    ])
}

fn ledger() -> Arc<Ledger> {
    Arc::new(Ledger::new(0, Limits::NONE, limits()))
}

fn owner(pid: u32) -> Owner {
    Owner { pid, started: Some(5), comm: "a".to_owned() }
}

fn account(ledger: &Arc<Ledger>) -> Account {
    ledger.open(OTHER, owner(7)).unwrap()
}

#[test]
fn each_kind_of_item_has_a_budget_and_its_excess_is_reported_once() {
    for (item, allowed, excess) in [
        (Item::Session, 5, "more than 5 threads"),
        (Item::Stack(1), 5, "more than 5 stacks"),
        (Item::Locks(10), 10, "more than 100 locks"),
        (Item::InvalidUnit, 3, "more than 3 invalid records"),
        (Item::Loss(25), 2, "too many losses"),
    ] {
        let ledger = ledger();
        let account = account(&ledger);
        for _ in 0..allowed {
            assert_eq!(account.charge(item), Ok(()), "{item:?}");
        }
        assert!(account.charge(item).is_err() && account.charge(item).is_err() && account.has_ended());
        assert_eq!(ledger.notes(), [format!("process 7 (a): recording ended: {excess}")]);
        assert_eq!(ledger.ended(), 1);
        assert!(ledger.has_ended(7, Some(5)) && !ledger.has_ended(7, Some(6)));
    }
}

#[test]
fn deep_stacks_cost_more_than_shallow_ones() {
    let account = account(&ledger());
    let excess = (0..5).find_map(|_| account.charge(Item::Stack(127)).err());
    assert_eq!(excess, Some(Excess::Over(Resource::ProcessBytes, 1 << 18)));
}

#[test]
fn processes_of_klocks_user_have_other_limits() {
    let ledger = ledger();
    let own = ledger.open(0, owner(1)).unwrap();
    assert!((0..1000).all(|_| own.charge(Item::Session).is_ok()));
    assert!(own.room() > 1 << 60);
    let other = ledger.open(OTHER, owner(2)).unwrap();
    assert_eq!(other.charge(Item::Mappings(1 << 20)), Err(Excess::Over(Resource::ProcessBytes, 1 << 18)));
}

#[test]
fn too_many_processes_at_once_are_refused_and_counted() {
    let ledger = ledger();
    let (first, _second) = (account(&ledger), account(&ledger));
    assert!(ledger.open(OTHER, owner(2)).is_none());
    first.close();
    assert!(ledger.open(OTHER, owner(2)).is_some());
    assert_eq!(ledger.notes(), ["1 process was not recorded: too many processes, or too large ones"]);
}

#[test]
fn slots_are_credited_when_a_process_ends() {
    let ledger = ledger();
    let (first, second) = (account(&ledger), account(&ledger));
    assert_eq!(first.charge_slots(8), Ok(()));
    assert_eq!(second.charge_slots(3), Err(Excess::Over(Resource::Slots, 10)));
    second.close();
    first.close();
    assert_eq!(account(&ledger).charge_slots(10), Ok(()));
}

#[test]
fn a_long_list_of_processes_is_cut() {
    let ledger = Arc::new(Ledger::new(0, Limits::NONE, limits().with([(Resource::Processes, 100)])));
    for pid in 0..40 {
        ledger.open(OTHER, owner(pid)).unwrap().end(Excess::Chunks);
    }
    let notes = ledger.notes();
    assert_eq!(notes.len(), MAX_NOTES + 1);
    assert_eq!(notes[MAX_NOTES], "24 more processes: recording ended: they exceeded their budgets");
}

proptest! {
    /// Whichever processes drain whenever: the queue is bounded, and there is room for one that has queued
    /// nothing.
    #[test]
    fn a_process_that_records_without_end_leaves_room_for_others(
        steps in prop::collection::vec((0_usize..8, any::<bool>(), 0_u64..2000), 0..300),
    ) {
        const LIMIT: u64 = 1 << 16;
        let mut queued = [0_u64; 8];
        for (process, drains, units) in steps {
            let all: u64 = queued.iter().sum();
            let room = room(LIMIT, all, queued[process]);
            if drains {
                queued[process] += units.min(room);
            } else {
                queued[process] = queued[process].saturating_sub(units);
            }
            let all: u64 = queued.iter().sum();
            prop_assert!(all <= LIMIT + 8 * MIN_ROOM);
            prop_assert!(self::room(LIMIT, all, 0) >= MIN_ROOM);
        }
    }

    /// Whatever a process does: what it is charged before its recording ends stays below its limits.
    #[test]
    fn charges_stay_below_the_limits(items in prop::collection::vec((0_usize..3, 1_u64..200), 0..200)) {
        let ledger = ledger();
        let account = account(&ledger);
        let mut bytes = 0;
        for (kind, size) in items {
            let item = [Item::Session, Item::Stack(size), Item::Locks(size)][kind];
            if account.charge(item).is_err() {
                break;
            }
            bytes += item.bytes();
            prop_assert!(bytes <= limits().of(Resource::ProcessBytes));
        }
    }
}
