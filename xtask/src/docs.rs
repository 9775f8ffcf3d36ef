//! The generated parts of the documentation: the tables of columns and the SQL query in `docs/trace-format.md`, from
//! the schema in code and from the file that the tests run.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::{process::root, table};

/// Writes them, or compares.
pub(crate) fn run(check: bool) -> Result<()> {
    let path = root().join("docs/trace-format.md");
    let found = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let query = root().join("docs/sql/report_by_lock.sql");
    let query = fs::read_to_string(&query).with_context(|| query.display().to_string())?;
    let parts = [
        ("columns", trace_format::schema::markdown()),
        ("report_by_lock.sql", format!("```sql\n{}\n```", query.trim())),
    ];
    let mut wanted = found.clone();
    for (name, part) in &parts {
        wanted = table::with_part(&wanted, name, part).with_context(|| path.display().to_string())?;
    }
    if wanted == found {
        println!("docs/trace-format.md is up to date");
        return Ok(());
    }
    if check {
        bail!("docs/trace-format.md is not what the schema and the query make; run `cargo xtask docs`");
    }
    fs::write(&path, wanted).with_context(|| path.display().to_string())?;
    println!("docs/trace-format.md written");
    Ok(())
}
