//! The table as CSV: integers with the unit in the column's name, then the name, what identifies holder and waiter, and
//! their stacks, frames apart by semicolons. For programs; the trust block is not in it.

use std::io::Write;

use super::{Blame, By};
use crate::{
    error::AnalyzeError,
    report::{self, Key, csv::cause},
};

/// Writes the table.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(blame: &Blame, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    let mut csv = csv::Writer::from_writer(out);
    let holder_by = if blame.by == By::Task { report::By::Task } else { report::By::Site };
    let mut head: Vec<String> =
        ["charged_to", "wait_caused_ns", "shares", "longest_ns", "name"].map(str::to_owned).to_vec();
    let of = |who: &str, by| -> Vec<String> {
        Key::column_names(by).iter().map(|name| format!("{who}_{name}")).collect()
    };
    head.extend(of("holder", holder_by));
    if blame.by == By::Pair {
        head.extend(of("waiter", report::By::Site));
    }
    if blame.by != By::Task {
        head.push("holder_stack".to_owned());
    }
    if blame.by == By::Pair {
        head.push("waiter_stack".to_owned());
    }
    csv.write_record(&head).map_err(cause)?;
    for row in &blame.rows {
        let numbers = [row.wait_caused_ns, row.shares, row.longest_ns];
        let mut fields = vec![row.charged_to.to_string()];
        fields.extend(numbers.iter().map(i64::to_string));
        fields.push(row.name.clone());
        fields.extend(values(row.holder.as_ref(), holder_by));
        if blame.by == By::Pair {
            fields.extend(values(row.waiter.as_ref(), report::By::Site));
        }
        if blame.by != By::Task {
            fields.push(stack(&row.holder_stack));
        }
        if blame.by == By::Pair {
            fields.push(stack(&row.waiter_stack));
        }
        csv.write_record(&fields).map_err(cause)?;
    }
    csv.flush().map_err(AnalyzeError::Write)
}

/// The values of a key in the columns of another, wider one: empty where it has none.
fn values(key: Option<&Key>, by: report::By) -> Vec<String> {
    let columns = Key::column_names(by);
    let mut values = key.map_or_else(Vec::new, Key::column_values);
    let missing = columns.len() - values.len();
    // The last columns of a site are those of its class.
    values.splice(0..0, std::iter::repeat_n(String::new(), missing));
    values
}

/// A semicolon in a symbol would be another frame.
fn stack(frames: &[String]) -> String {
    frames.iter().map(|frame| frame.replace(';', ":")).collect::<Vec<_>>().join(";")
}
