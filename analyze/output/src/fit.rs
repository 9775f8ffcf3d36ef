//! Fits a table to a terminal: which columns stay beside the names, and names as short as that takes.
//!
//! The least important columns go first. A line counts the columns that are left out.

use rustc_hash::FxHashSet;
use unicode_width::UnicodeWidthStr;

use super::{
    cell,
    layout::{GAP, STACK_SEPARATOR, TextStyle},
};

/// The least width for which names are cut to stay beside their numbers.
const LEAST_NAME: usize = 36;

/// The rows whose names are cut only if there is no other way.
const FIRST: usize = 3;

/// The least number of columns.
const LEAST_COLUMNS: usize = 3;

/// The columns and names of a table that may be too wide.
pub struct Fit<'a> {
    pub headings: &'a [String],
    /// The cells of each row.
    pub cells: &'a [Vec<String>],
    /// The columns in the order in which they may be left out; the others stay.
    pub order: &'a [usize],
    /// The heading of the names.
    pub about: &'a str,
    pub names: &'a [String],
}

/// The columns and names that fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The columns that stay, ascending.
    pub columns: Vec<usize>,
    pub names: Vec<String>,
}

impl Fit<'_> {
    /// Leaves out columns, and the directories and middles of names, until rows fit into one line of the
    /// terminal. Without a terminal, or with `full`, everything stays.
    pub fn to(&self, style: TextStyle) -> Fitted {
        let all: Vec<usize> = (0..self.headings.len()).collect();
        let names = style.names(self.names.iter().map(String::as_str));
        let (true, false, Some(width)) = (style.is_terminal, style.full, style.width) else {
            return Fitted { columns: all, names: self.names.to_vec() };
        };
        if self.width(&all, &names) <= width {
            return Fitted { columns: all, names };
        }
        let names = distinct(&names, |name| without_explanation(&without_directories(name)));
        let kindless = distinct(&names, without_kind);
        let fitted = |names: &[String]| {
            let least = least_room(names).max(self.about.width());
            let columns = self.columns(|columns| self.numbers(columns) + least <= width);
            (width.saturating_sub(self.numbers(&columns)), columns)
        };
        let (names, (room, columns)) = match fitted(&names) {
            (room, columns) if room >= least_room(&names) => (names, (room, columns)),
            _ => {
                let fitted = fitted(&kindless);
                (kindless, fitted)
            }
        };
        let is_cut_stack = |name: &String| name.contains(STACK_SEPARATOR) && name.width() > room;
        if room < least_room(&names).min(LEAST_NAME) || names.iter().any(is_cut_stack) {
            // Names go below their numbers.
            return Fitted { columns: self.columns(|columns| self.numbers(columns) <= width + GAP), names };
        }
        Fitted { columns, names: distinct(&names, |name| style.cut(name, room)) }
    }

    /// Leaves out columns until the others fit, those without values first.
    fn columns(&self, fits: impl Fn(&[usize]) -> bool) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..self.headings.len()).collect();
        let (empty, others): (Vec<usize>, Vec<usize>) =
            self.order.iter().partition(|column| self.cells.iter().all(|row| row[**column] == "-"));
        for column in empty.into_iter().chain(others) {
            if fits(&columns) || columns.len() <= LEAST_COLUMNS {
                break;
            }
            columns.retain(|other| *other != column);
        }
        columns
    }

    /// Returns the width of rows with these columns and names.
    fn width(&self, columns: &[usize], names: &[String]) -> usize {
        let names = names.iter().map(|name| name.width()).max().unwrap_or(0);
        self.numbers(columns) + names.max(self.about.width())
    }

    /// Returns the width of these columns, with a gap behind each.
    fn numbers(&self, columns: &[usize]) -> usize {
        let cells = |column: usize| self.cells.iter().map(move |row| row[column].width()).max().unwrap_or(0);
        columns.iter().map(|column| self.headings[*column].width().max(cells(*column)) + GAP).sum()
    }
}

/// Returns the room that names need: the names of the first rows matter most, and others may lose their
/// middle.
fn least_room(names: &[String]) -> usize {
    let longest = |names: &[String]| names.iter().map(|name| name.width()).max().unwrap_or(0);
    longest(&names[..names.len().min(FIRST)]).max(LEAST_NAME).min(longest(names))
}

/// Changes all names, unless two different ones would become equal.
fn distinct(names: &[String], change: impl Fn(&str) -> String) -> Vec<String> {
    let changed: Vec<String> = names.iter().map(|name| change(name)).collect();
    let count = |names: &[String]| names.iter().collect::<FxHashSet<_>>().len();
    if count(&changed) == count(names) { changed } else { names.to_vec() }
}

/// Removes the directories of all source files in a name.
fn without_directories(name: &str) -> String {
    name.split(' ').map(cell::without_directories).collect::<Vec<_>>().join(" ")
}

/// Removes the explanation of a row that no task pays for: `(hand-off: free, the next waiter ...) (mutex:m)`
/// is `(hand-off) (mutex:m)`.
fn without_explanation(name: &str) -> String {
    match name.strip_prefix("(hand-off: ").and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => format!("(hand-off){rest}"),
        None => name.to_owned(),
    }
}

/// Removes the kind of a lock that has a name: `a.c:1 (run) (pthread_mutex:cache)` is `a.c:1 (run) (cache)`.
fn without_kind(name: &str) -> String {
    let is_kind = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let class = name.rmatch_indices(" (").find_map(|(at, _)| {
        let (kind, rest) = name[at + 2..].split_once(':')?;
        (is_kind(kind) && !rest.starts_with(':')).then(|| format!("{} ({rest}", &name[..at]))
    });
    class.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(width: usize, cells: &[&[&str]], names: &[&str]) -> (Vec<usize>, Vec<String>) {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        let (headings, names) = (texts(&["wait_total", "pct", "count", "avg", "max"]), texts(names));
        let cells: Vec<Vec<String>> = cells.iter().map(|row| texts(row)).collect();
        let fit = Fit { headings: &headings, cells: &cells, order: &[3, 2, 4], about: "lock", names: &names };
        let fitted = fit.to(TextStyle { width: Some(width), is_terminal: true, ..TextStyle::default() });
        (fitted.columns, fitted.names)
    }

    #[test]
    fn columns_without_values_are_left_out_first_and_only_as_many_as_must() {
        let rows: &[&[&str]] = &[&["1.00 ms", "90.0 %", "10", "1.00 µs", "-"]];
        let all = |width| fitted(width, rows, &["a_lock (mutex)"]).0;
        assert_eq!(all(80), [0, 1, 2, 3, 4]);
        assert_eq!(all(55), [0, 1, 2, 3, 4]);
        assert_eq!(all(54), [0, 1, 2, 3]);
        assert_eq!(all(49), [0, 1, 2]);
        assert_eq!(all(10), [0, 1, 2], "some columns stay at any width");
    }

    #[test]
    fn names_lose_their_directories_before_columns_go_and_their_middle_at_last() {
        let rows: &[&[&str]] = &[&["1.00 ms", "90.0 %", "10", "1.00 µs", "-"]];
        let site = "/home/me/server/src/store.c:10 (write) (mutex:m)";
        assert_eq!(fitted(200, rows, &[site]).1, [site]);
        assert_eq!(
            fitted(79, rows, &[site]),
            (vec![0, 1, 2, 3, 4], vec!["store.c:10 (write) (mutex:m)".into()])
        );
        let long = "a".repeat(60);
        let (columns, names) = fitted(70, rows, &[&long]);
        assert_eq!((columns, names[0].width()), (vec![0, 1, 2], 43));
    }

    #[test]
    fn a_hand_off_loses_its_explanation_before_columns_go() {
        let rows: &[&[&str]] = &[&["1.00 ms", "90.0 %", "10", "1.00 µs", "-"]];
        let gap = "(hand-off: free, the next waiter is not running yet) (pthread_mutex:log_lock)";
        assert_eq!(
            fitted(79, rows, &[gap]),
            (vec![0, 1, 2, 3, 4], vec!["(hand-off) (pthread_mutex:log_lock)".into()])
        );
        assert_eq!(fitted(200, rows, &[gap]).1, [gap]);
    }

    #[test]
    fn the_kind_of_a_named_lock_goes_before_its_name_is_cut() {
        assert_eq!(without_kind("a.c:1 (run) (pthread_mutex:cache)"), "a.c:1 (run) (cache)");
        assert_eq!(without_kind("#1 cache (pthread_mutex)"), "#1 cache (pthread_mutex)");
        assert_eq!(without_kind("f(std::x) (mutex:a (cpu 0))"), "f(std::x) (a (cpu 0))");
        assert_eq!(without_kind("(anonymous namespace)::f (a::b)"), "(anonymous namespace)::f (a::b)");
        let rows: &[&[&str]] = &[&["1.00 ms", "90.0 %", "10", "1.00 µs", "-"]];
        let (columns, names) = fitted(70, rows, &["first_problem.c:35 (write_log) (pthread_mutex:log_lock)"]);
        assert_eq!((columns, &*names[0]), (vec![0, 1, 2], "first_problem.c:35 (write_log) (log_lock)"));
    }

    #[test]
    fn the_longest_name_of_later_rows_is_cut_to_keep_columns() {
        let rows: &[&[&str]] = &[&["1", "2", "3", "4", "5"][..]; 4];
        let long = "b".repeat(60);
        let (columns, names) = fitted(80, rows, &["first", "second", "third", &long]);
        assert_eq!((columns.len(), names[3].width()), (5, 46));
    }

    #[test]
    fn different_names_stay_different() {
        let rows: &[&[&str]] = &[&["1", "2", "3", "4", "5"], &["1", "2", "3", "4", "5"]];
        let same_file = ["/one/deep/directory/a.c:1 (f)", "/another/deep/directory/a.c:1 (f)"];
        assert_eq!(fitted(40, rows, &same_file).1, same_file);
    }
}
