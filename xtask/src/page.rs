//! `cargo xtask page`: bundles the sources of the page of `klock html` in `analyze/page/src/` into
//! `analyze/page/page.html`, with the npm packages of `analyze/page/package-lock.json`. The file is
//! committed, so that building klock needs no npm. The same packages make the same bytes in any directory,
//! which `--check` relies on.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::{
    process::{Run, find, root, scratch},
    setup,
};

/// Checks the types of the sources and bundles them. With `check`, compares the bundle with the committed
/// file instead of replacing it.
pub(crate) fn run(check: bool) -> Result<()> {
    if let Some(missing) = setup::page_packages()? {
        anyhow::bail!(missing);
    }
    let directory = root().join("analyze/page");
    let node = find("node").context("cannot build the page: no node here; run cargo xtask setup")?;
    Run::new(node.clone(), &["node_modules/typescript/bin/tsc", "-p", "."]).directory(&directory).must()?;
    let built = scratch("page")?.join("page.html");
    Run::new(node, &["build.mjs"]).arg(&built).directory(&directory).must()?;
    let (page, fresh) = (directory.join("page.html"), fs::read(&built)?);
    if !check {
        return fs::write(&page, fresh).with_context(|| page.display().to_string());
    }
    let committed = fs::read(&page).with_context(|| page.display().to_string())?;
    ensure!(committed == fresh, "analyze/page/page.html is not what its sources make; run cargo xtask page");
    Ok(())
}
