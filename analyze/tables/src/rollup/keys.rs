//! The key of a row: the site of the acquisition with the class of its lock, and the name by which the same
//! lock is found in other traces.
//!
//! Ids and addresses mean nothing in another trace, and are in no key.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, btree_map::Entry},
};

use crate::{
    diff::{self, Align},
    key::{By, Key, RowKey, Single, Subject},
    key_columns,
};
use intervals::input::names::Names;
use output::Column;

/// The name of the row that has what `--keys` cuts off.
const OTHERS: &str = "(others)";

/// The names of locks that are found again by their own name or by where they were initialised, not by where
/// they are acquired.
pub(super) struct Aligns {
    by_lock: Vec<Option<u32>>,
    names: Vec<String>,
}

impl Aligns {
    pub(super) fn of(names: &Names) -> Self {
        let (mut numbers, mut distinct) = (HashMap::new(), Vec::new());
        let by_lock = names.locks().iter().map(|lock| {
            diff::goes_by_itself(Align::Lock, lock.id, names).then(|| {
                let name = diff::label(Align::Lock, Some(lock.id), Single::Lock(lock.id).into(), names);
                *numbers.entry(name).or_insert_with_key(|name: &String| {
                    distinct.push(name.clone());
                    // Ids of a trace are 31 bits wide.
                    (distinct.len() - 1) as u32
                })
            })
        });
        let by_lock = by_lock.collect();
        Self { by_lock, names: distinct }
    }

    /// Returns a key with names.
    pub(super) fn name(&self, key: LocalKey, names: &Names) -> FactKey {
        let align = match key.align {
            Some(number) => self.names[number as usize].clone(),
            None => diff::label(Align::Site, None, key.site, names),
        };
        FactKey { align, site: Some(Key::of(key.site, names)) }
    }
}

/// A key in the ids of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LocalKey {
    site: RowKey,
    /// The number of the lock's name; `None` if it goes by its site.
    align: Option<u32>,
}

impl LocalKey {
    pub(super) fn of(subject: impl Into<Subject>, names: &Names, aligns: &Aligns) -> Self {
        let subject = subject.into();
        let align = usize::try_from(subject.lock.0).ok().and_then(|at| *aligns.by_lock.get(at)?);
        Self { site: RowKey::of(subject, By::Site, names), align }
    }
}

/// A key with names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactKey {
    /// The name by which the lock is found in other traces, as in `klock diff`; safe to print.
    pub align: String,
    /// The site of the acquisition, and the class of the locks there; `None` for what `--keys` cuts off.
    pub site: Option<Key>,
}

impl FactKey {
    /// The key of what `--keys` cuts off.
    pub(super) fn others() -> Self {
        Self { align: OTHERS.to_owned(), site: None }
    }
}

/// Declares the columns of the key.
pub(super) fn columns<R: 'static>(
    key: impl for<'r> Fn(&'r R) -> &'r FactKey + Copy + 'static,
) -> impl Iterator<Item = Column<R>> {
    let doc = "The name by which the lock is found in other traces.";
    let align = Column::text("align", move |row| key(row).align.as_str().into(), doc);
    [align].into_iter().chain(key_columns(By::Site, "", move |row| key(row).site.as_ref()))
}

/// Merges the rows of each period and key. Keeps the `limit` rows of each period that weigh most, and merges
/// the others of the period into one row with the key `others`.
pub(super) fn cut<K: Ord + Clone, S, W: Ord>(
    rows: impl Iterator<Item = ((i64, K), S)>,
    merge: impl Fn(&mut S, S),
    weight: impl Fn(&S) -> W,
    limit: Option<usize>,
    others: K,
) -> BTreeMap<(i64, K), S> {
    let mut by_period: BTreeMap<i64, BTreeMap<K, S>> = BTreeMap::new();
    for ((period, key), sums) in rows {
        match by_period.entry(period).or_default().entry(key) {
            Entry::Occupied(mut all) => merge(all.get_mut(), sums),
            Entry::Vacant(first) => drop(first.insert(sums)),
        }
    }
    let mut kept = BTreeMap::new();
    for (period, rows) in by_period {
        let mut rows: Vec<(K, S)> = rows.into_iter().collect();
        if let Some(limit) = limit.filter(|limit| *limit < rows.len()) {
            // The sort is stable, so equal rows stay in the order of their keys.
            rows.sort_by_cached_key(|(_, sums)| Reverse(weight(sums)));
            let rest = rows.split_off(limit).into_iter().map(|(_, sums)| sums).reduce(|mut all, sums| {
                merge(&mut all, sums);
                all
            });
            rows.extend(rest.map(|sums| (others.clone(), sums)));
        }
        kept.extend(rows.into_iter().map(|(key, sums)| ((period, key), sums)));
    }
    kept
}
