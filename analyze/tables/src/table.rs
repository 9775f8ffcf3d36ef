//! The table that every `klock analyze` command computes: rows with declared columns, and the trust block.

use std::{
    borrow::Borrow,
    io::{self, Write},
};

use serde::Serialize;
use trace_format::LockKind;

use super::key::CUT_BY_LOSS;
use intervals::input::trust::{About, Trust};
use output::{
    Cell, Column, Format, Having, Kind, Order, Page, Role,
    column::select,
    error::AnalyzeError,
    fit::{Fit, Fitted},
    json,
    layout::{self, Name, Notes, TextStyle},
    units,
};

/// The sentence for conditions that no row satisfies.
pub(crate) const NONE_SATISFIES: &str = "nothing to show: no row satisfies the conditions of --having";

/// A kernel lock with a smaller part than this, of all waiting for locks of programs, takes no row by
/// default.
pub(crate) const NOISE: i64 = 1_000;

/// A finished table. As JSON it is one document with every column, the totals and the trust block.
pub trait Table: Serialize + Sized {
    /// A row, as its columns read it.
    type Row: 'static;

    /// Declares the columns.
    fn columns(&self) -> Vec<Column<Self::Row>>;

    /// Returns the default columns of text, if their order differs from the order of the declaration.
    fn text_columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the default columns on a terminal, where rows are sorted by this column.
    fn terminal_columns(&self, _sorted_by: &str) -> Vec<String> {
        self.text_columns()
    }

    /// Returns the headings of columns that a narrow terminal leaves out, the first one first. Others follow,
    /// from the right.
    fn dispensable(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the number of the last rows, before the limit, that are of kernel locks which hardly anybody
    /// waited for.
    fn noise(&self) -> usize {
        0
    }

    /// Whether the sort column of all rows after one of 0 is 0, too, which holds unless rows are sorted by
    /// more than that column.
    fn is_last(&self, _row: &Self::Row) -> bool {
        true
    }

    /// Returns the sum of the column that rows are sorted by, over all rows, if the table has no column of
    /// the share in it.
    fn sorted_sum(&self) -> Option<i64> {
        None
    }

    /// Returns the rows in their order.
    fn rows(&self) -> impl Iterator<Item = impl Borrow<Self::Row>>;

    /// Returns the name of a row in text, if it is not the name of the column.
    fn text_name(&self, _row: &Self::Row) -> Option<String> {
        None
    }

    /// Returns the lines of text below a row.
    fn below(&self, _row: &Self::Row) -> Vec<String> {
        Vec::new()
    }

    /// Keeps the rows that `keep` selects, at most `limit`. Tables with several rows of a key keep or drop
    /// the key, by the row of its sums.
    fn retain(&mut self, keep: &dyn Fn(&Self::Row) -> bool, limit: Option<usize>);

    /// Keeps the rows that satisfy all conditions, at most `limit`. The table must have been computed without
    /// a limit.
    ///
    /// # Errors
    ///
    /// A condition names no column of the table, or a value that its column cannot have.
    fn retain_having(&mut self, having: &[Having], limit: Option<usize>) -> Result<(), AnalyzeError> {
        if having.is_empty() {
            return Ok(());
        }
        let columns = self.columns();
        let tests = having.iter().map(|having| having.on(&columns)).collect::<Result<Vec<_>, _>>()?;
        self.retain(&|row| tests.iter().all(|test| test.holds(row)), limit);
        Ok(())
    }

    /// Returns the number of rows that the limit hides.
    fn hidden_rows(&self) -> usize;

    /// Returns what the numbers do not hold.
    fn trust(&self) -> &Trust;

    /// Returns which table the trust block is written below.
    fn about(&self) -> About;

    /// Returns whether nothing was found: exit code 1.
    fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// Returns the sentence that text has instead of a table without rows; `None` for headings alone.
    fn nothing(&self) -> Option<String> {
        None
    }

    /// Returns the warnings that are given before the numbers.
    fn warnings(&self, _page: &Page) -> Vec<String> {
        self.trust().deadlocks.iter().cloned().chain(self.trust().warning()).collect()
    }

    /// Writes the lines between the rows and the trust block.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write_totals(&self, _style: TextStyle, _out: &mut (dyn Write + Send)) -> io::Result<()> {
        Ok(())
    }

    /// Writes what text has of the rows: aligned columns and the totals.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write_rows(
        &self,
        columns: &[Column<Self::Row>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        write_table(self, columns, page, out)?;
        self.write_totals(page.style, out)
    }

    /// Writes the table as text: warnings, the rows, the totals, the trust block. The style may leave out all
    /// but the rows.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write_text(
        &self,
        columns: &[Column<Self::Row>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        let style = page.style;
        for warning in self.warnings(page) {
            style.warning(&warning, out)?;
        }
        match self.nothing() {
            _ if page.has_conditions && self.is_empty() => style.wrapped(NONE_SATISFIES, out)?,
            Some(nothing) => {
                let mut lines = nothing.lines();
                style.wrapped(&format!("nothing to show: {}", lines.next().unwrap_or_default()), out)?;
                lines.try_for_each(|line| style.labelled("   - ", line, out))?;
            }
            None => self.write_rows(columns, page, out)?,
        }
        if style.notes != Notes::None {
            writeln!(out)?;
        }
        self.write_trust(style, out)
    }

    /// Writes the trust block.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write_trust(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        self.trust().write_about(self.about(), style, out)
    }

    /// Writes the table in the page's format.
    ///
    /// # Errors
    ///
    /// A word of the page is not a column, or [`AnalyzeError::Write`] with the error of `out`.
    fn write(&self, page: &Page, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
        let chosen = match page.columns.as_slice() {
            [] if page.format == Format::Text && page.style.is_terminal => {
                self.terminal_columns(&page.sorted_by)
            }
            [] if page.format == Format::Text => self.text_columns(),
            chosen => chosen.to_vec(),
        };
        let columns = select(self.columns(), &chosen)?;
        match page.format {
            Format::Text => self.write_text(&columns, page, out).map_err(AnalyzeError::Write),
            Format::Json => json::write_value(self, out),
            format => output::write_rows(format, &columns, self.rows(), out),
        }
    }
}

/// Writes aligned columns of what people see, the name of the row last, then the number of hidden rows. An
/// exclamation mark precedes the name of a row that lost something.
pub(crate) fn write_table<T: Table>(
    table: &T,
    columns: &[Column<T::Row>],
    page: &Page,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let style = page.style;
    let mut values: Vec<_> = columns
        .iter()
        .filter(|column| column.role == Role::Value && column.field.is_shown)
        .cloned()
        .collect();
    let is_chosen = !page.columns.is_empty();
    let sorted = values.iter().position(|column| column.is_called(&page.sorted_by));
    if let (Some(sorted), Some(sum)) =
        (sorted, table.sorted_sum().filter(|_| style.is_terminal && !is_chosen))
        && values[sorted].merge.is_some()
    {
        values.insert(sorted + 1, share_of(values[sorted].clone(), sum));
    }
    let order = |column: &Column<T::Row>| column.order.filter(|_| column.is_called(&page.sorted_by));
    let heading = |column: &Column<T::Row>| style.heading(&column.field.heading, order(column));
    let headings: Vec<String> = values.iter().map(heading).collect();
    let name = columns.iter().find(|column| column.role == Role::Name);
    let cut = columns.iter().find(|column| column.field.name == CUT_BY_LOSS);
    let (mut cells, mut names) = (Vec::new(), Vec::new());
    let rows: Vec<_> = table.rows().collect();
    if rows.is_empty() {
        return layout::hidden(table.hidden_rows(), "", style, out);
    }
    let (unshown, attribute) = unshown(table, &rows, page);
    for row in &rows[..rows.len() - unshown] {
        let row: &T::Row = row.borrow();
        cells.push(values.iter().map(|column| column.show(row)).collect::<Vec<String>>());
        let is_incomplete = cut.is_some_and(|cut| cut.cell(row) != Cell::Int(0));
        let name = table.text_name(row).or_else(|| Some(name?.show(row))).unwrap_or_default();
        names.push((layout::marked(&name, is_incomplete), table.below(row)));
    }
    let about = name.map_or(String::new(), heading);
    let (names, more): (Vec<String>, Vec<Vec<String>>) = names.into_iter().unzip();
    let order = if is_chosen { Vec::new() } else { dispensable(table.dispensable(), &values, sorted) };
    let fit = Fit { headings: &headings, cells: &cells, order: &order, about: &about, names: &names };
    let Fitted { columns, names } = fit.to(style);
    let left_out = headings.len() - columns.len();
    let headings: Vec<&str> = columns.iter().map(|at| headings[*at].as_str()).collect();
    let cells: Vec<Vec<String>> =
        cells.iter().map(|row| columns.iter().map(|at| row[*at].clone()).collect()).collect();
    let names: Vec<Name<'_>> = names.iter().zip(&more).map(|(name, more)| Name { name, more }).collect();
    layout::table(&headings, &cells, &about, &names, style, out)?;
    layout::hidden(table.hidden_rows() + unshown, &attribute, style, out)?;
    layout::hidden_columns(left_out, style, out)
}

/// Returns whether a row is of kernel locks that hardly anybody waited for. `of` returns the kind of the locks
/// of a row, and its waiting.
pub(crate) fn is_noise<R>(
    rows: &[R],
    of: impl Fn(&R) -> (Option<LockKind>, i64) + Copy,
) -> impl Fn(&R) -> bool {
    let is_kernel = move |row: &R| of(row).0.is_some_and(LockKind::is_kernel);
    let programs = rows.iter().filter(|row| !is_kernel(row));
    let of_programs = programs.map(|row| of(row).1).fold(0, i64::saturating_add);
    move |row| is_kernel(row) && of(row).1.saturating_mul(NOISE) < of_programs
}

/// Returns the number of last rows that are of kernel locks which hardly anybody waited for, if no other row
/// follows them.
pub(crate) fn noise_of<T: Table>(
    table: &T,
    rows: &[T::Row],
    of: impl Fn(&T::Row) -> (Option<LockKind>, i64) + Copy,
) -> usize {
    if table.hidden_rows() > 0 {
        return 0;
    }
    let is_noise = is_noise(rows, of);
    rows.iter().rev().take_while(|row| is_noise(row)).count()
}

/// Returns what the rows of [`is_noise`] have in common.
pub(crate) fn noise_attribute() -> String {
    format!(" of kernel locks with less than {} % of the waiting", 100.0 / NOISE as f64)
}

/// Returns the number of last rows that the page leaves out, and words for all rows that are not shown:
/// kernel locks that hardly anybody waited for, and rows whose sort column is 0.
fn unshown<T: Table>(table: &T, rows: &[impl Borrow<T::Row>], page: &Page) -> (usize, String) {
    if !page.hides_zeros || !page.style.is_terminal {
        return (0, String::new());
    }
    let noise = table.noise();
    // The others are beyond the limit.
    let unshown_noise = noise.saturating_sub(table.hidden_rows());
    let rows = &rows[..rows.len() - unshown_noise];
    match zeros(table, rows, page) {
        Some((zeros, why)) if noise > 0 => (zeros + unshown_noise, format!("{why}, or{}", noise_attribute())),
        Some(zeros) => zeros,
        None if unshown_noise > 0 => (unshown_noise, noise_attribute()),
        None => (0, String::new()),
    }
}

/// Returns the number of last rows whose sort column is 0, and the words for that. If all rows are like that,
/// or fit on the page, none is left out.
fn zeros<T: Table>(table: &T, rows: &[impl Borrow<T::Row>], page: &Page) -> Option<(usize, String)> {
    if table.hidden_rows() == 0 {
        return None;
    }
    let columns = table.columns();
    let sorted = columns.iter().find(|column| column.is_called(&page.sorted_by))?;
    let is_zero = |row: &T::Row| matches!(sorted.cell(row), Cell::Int(0) | Cell::Null) && table.is_last(row);
    let kept = rows.iter().take_while(|row| !is_zero((*row).borrow())).count();
    let is_descending = sorted.order == Some(Order::Descending);
    (is_descending && kept > 0 && kept < rows.len())
        .then(|| (rows.len() - kept, format!(" with {} 0", sorted.field.heading)))
}

/// Declares the row of a table with the fields `rows`, `rows_total` and `trust`, whose rows are kept or
/// dropped each by itself.
macro_rules! rows_and_trust {
    ($row:ty) => {
        type Row = $row;

        fn rows(&self) -> impl Iterator<Item = impl ::std::borrow::Borrow<$row>> {
            self.rows.iter()
        }

        fn retain(&mut self, keep: &dyn Fn(&$row) -> bool, limit: Option<usize>) {
            $crate::table::retain_first(&mut self.rows, &mut self.rows_total, keep, limit);
        }

        fn hidden_rows(&self) -> usize {
            self.rows_total - self.rows.len()
        }

        fn trust(&self) -> &intervals::input::trust::Trust {
            &self.trust
        }
    };
}

pub(crate) use rows_and_trust;

/// Keeps the first `limit` of the rows that `keep` selects, and counts all of these.
pub(crate) fn retain_first<R>(
    rows: &mut Vec<R>,
    rows_total: &mut usize,
    keep: impl FnMut(&R) -> bool,
    limit: Option<usize>,
) {
    rows.retain(keep);
    *rows_total = rows.len();
    rows.truncate(limit.unwrap_or(usize::MAX));
}

/// Returns a column of the share of each row in the sum of a column.
fn share_of<R: 'static>(of: Column<R>, sum: i64) -> Column<R> {
    let share = move |row: &R| match of.cell(row) {
        Cell::Int(value) => units::ppm(value, sum),
        _ => None,
    };
    Column::ppm("pct", share, "The row's share of the sort column, of all rows.").not_sortable()
}

/// Returns the columns that may be left out, by index, the first one first: those with these headings, then
/// the others from the right. The column that rows are sorted by and the share behind it stay.
fn dispensable<R>(first: &[&str], columns: &[Column<R>], sorted: Option<usize>) -> Vec<usize> {
    let is_share = |at: usize| matches!(columns[at].field.kind, Kind::Ppm | Kind::Percent);
    let stays = |at: usize| sorted.is_some_and(|sorted| at == sorted || at == sorted + 1 && is_share(at));
    let at = |heading: &&str| columns.iter().position(|column| column.field.heading == *heading);
    let mut order: Vec<usize> = first.iter().filter_map(at).filter(|at| !stays(*at)).collect();
    order.extend(
        (0..columns.len())
            .rev()
            .filter(|at| !stays(*at) && !first.iter().any(|word| *word == columns[*at].field.heading)),
    );
    order
}
