//! `cargo xtask bpf`: builds the kernel side, `record-ebpf`, into one object for each architecture in
//! `record/bpf/`, with a note of the tools. The objects are committed, so that klock builds with stable Rust
//! alone.
//!
//! Any rustc with the source of its library will do, with RUSTC_BOOTSTRAP=1 instead of nightly: Debian's
//! rustc-web with rust-web-src, or a rustup nightly with rust-src. bpf-linker must be built against the LLVM
//! of rustc. The same compiler makes the same bytes in any directory, which `--check` relies on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    host,
    process::{Run, find, root, say, target},
};

/// An object to build.
#[derive(Clone, Copy, Debug)]
struct Build {
    /// The middle of its file name, between `klock.` and `.bpf.o`.
    name: &'static str,
    /// The uprobe programs read registers by name, so every architecture needs an object of its own.
    architecture: &'static str,
    /// The version of the instruction set. v3 has atomic operations that return a value, for kernels since
    /// 5.12.
    cpu: &'static str,
    /// The flag that selects it in the sources.
    flag: Option<&'static str>,
}

/// `aarch64` builds from the same sources; it is added once klock has been run on such a machine.
const BUILDS: &[Build] = &[
    Build { name: "x86_64", architecture: "x86_64", cpu: "v3", flag: None },
    Build { name: "x86_64.old", architecture: "x86_64", cpu: "v2", flag: Some("--cfg=bpf_without_fetch") },
];

/// Debian's compiler with the source of its library.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// Version of bpf-linker, as cargo writes it.
const LINKER: &str = "~0.13";

/// The tools that build an object.
#[derive(Debug)]
struct Tools {
    rustc: PathBuf,
    /// The source of its library.
    library: PathBuf,
    linker: PathBuf,
    objcopy: PathBuf,
    /// The versions that, besides the sources, decide the bytes of an object.
    note: String,
}

/// Rebuilds the objects. With `check`, compares them with the committed ones instead of replacing them.
pub(crate) fn run(check: bool) -> Result<()> {
    let tools = match tools() {
        Err(missing) if check => {
            say(&format!("skipped: {missing:#}"));
            return Ok(());
        }
        tools => tools?,
    };
    let one_line = |text: &str| text.trim().replace('\n', ", ");
    println!("{}", one_line(&tools.note));
    for what in BUILDS {
        let name = format!("record/bpf/klock.{}.bpf.o", what.name);
        let (object, note) = (root().join(&name), root().join(format!("record/bpf/klock.{}.txt", what.name)));
        let built_with = fs::read_to_string(&note).unwrap_or_default();
        if check && built_with != tools.note {
            println!(
                "skipped: {name} was built with {}, here is {}",
                one_line(&built_with),
                one_line(&tools.note)
            );
            continue;
        }
        let bytes = build(&tools, *what)?;
        if !check {
            fs::write(&object, &bytes).with_context(|| format!("cannot write {name}"))?;
            fs::write(&note, &tools.note).with_context(|| format!("cannot write {}", note.display()))?;
            println!("{name}: {} bytes", bytes.len());
        } else if fs::read(&object).with_context(|| format!("cannot read {name}"))? != bytes {
            bail!("{name} differs from a fresh build; run `cargo xtask bpf` and commit it");
        }
    }
    Ok(())
}

/// Builds one object.
fn build(tools: &Tools, what: Build) -> Result<Vec<u8>> {
    let made = target().join("bpf").join(what.name);
    let mut flags = vec![
        format!("-Clinker={}", tools.linker.display()),
        format!("-Ctarget-cpu={}", what.cpu),
        "-Clink-arg=--btf".to_owned(),
        format!("--cfg=bpf_target_arch=\"{}\"", what.architecture),
    ];
    flags.extend(what.flag.map(str::to_owned));
    // BTF has source lines: no path of this machine may be among them. The last match wins.
    let mut remap =
        |from: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    remap(&tools.library, "rust/library");
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    for home in [home, std::env::var_os("CARGO_HOME").map(PathBuf::from)].into_iter().flatten() {
        for registry in fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten() {
            remap(&registry.path(), "registry");
        }
    }
    remap(&root(), "klock");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The cargo around this program sets these for its own compiler, not for another one.
    let unset =
        ["LD_LIBRARY_PATH", "RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "AYA_BPF_TARGET_ARCH"];
    Run::new("env", &[])
        .args(unset.into_iter().flat_map(|variable| ["-u", variable]))
        .arg(cargo)
        .args(["build", "--profile", "bpf", "--package", "record-ebpf", "--target", "bpfel-unknown-none"])
        .arg("-Zbuild-std=core")
        .env("RUSTC", &tools.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &made)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_INCREMENTAL", "0")
        .must()?;
    let linked = made.join("bpfel-unknown-none/bpf/klock-bpf");
    let object = made.join("klock.bpf.o");
    Run::new(&tools.objcopy, &["--strip-debug"]).arg(&linked).arg(&object).must()?;
    fs::read(&object).with_context(|| format!("cannot read {}", object.display()))
}

/// Returns the tools, installed if need be. The error says what is missing and how to get it.
fn tools() -> Result<Tools> {
    if compiler().is_none() && host::is_root() {
        host::install(&["rustc-web", "rust-web-src"])?;
    }
    let (rustc, version, llvm, library) = compiler().context(
        "no rustc with the source of its library; install rustc-web and rust-web-src (Debian), or run rustup toolchain \
         install nightly --component rust-src",
    )?;
    let prefix = PathBuf::from(format!("/usr/lib/llvm-{llvm}"));
    let objcopy = prefix.join("bin/llvm-objcopy");
    if !objcopy.is_file() && host::is_root() {
        host::install(&[&format!("llvm-{llvm}-dev"), &format!("llvm-{llvm}")])?;
    }
    ensure!(
        objcopy.is_file(),
        "no LLVM {llvm}, which {version} uses; install llvm-{llvm}-dev and llvm-{llvm}"
    );
    let installed = target().join("tools/bin/bpf-linker");
    let linker = match find("bpf-linker").filter(|_| !installed.is_file()) {
        Some(found) => found,
        None if installed.is_file() => installed,
        None => {
            let install =
                Run::cargo(&["install", "bpf-linker", "--no-default-features", "--version", LINKER])
                    .args(["--features", &format!("llvm-{llvm}"), "--root"])
                    .arg(target().join("tools"))
                    .env("LLVM_PREFIX", &prefix)
                    .env("RUSTFLAGS", format!("-L {}", prefix.join("lib").display()));
            ensure!(install.stream()?.ok, "cargo could not install bpf-linker (offline?)");
            installed
        }
    };
    let said = Run::new(&linker, &["--version"]).read()?;
    let wanted = LINKER.trim_start_matches('~');
    ensure!(
        said.split_whitespace().any(|word| word.trim_start_matches('v').starts_with(wanted)),
        "{} is {}, not {wanted}; remove it or put another first on the path",
        linker.display(),
        said.trim()
    );
    let note = format!("{version}\n{}\n", said.trim());
    Ok(Tools { rustc, library, linker, objcopy, note })
}

/// Finds a compiler that has the source of its library. Returns its path, version, LLVM and that source.
fn compiler() -> Option<(PathBuf, String, u32, PathBuf)> {
    let nightly = Run::new("rustup", &["which", "rustc", "--toolchain", "nightly"]).read().ok();
    let candidates = [Some(PathBuf::from(DEBIAN_RUSTC)), nightly.map(|path| PathBuf::from(path.trim()))];
    candidates.into_iter().flatten().find_map(|rustc| {
        let words = Run::new(&rustc, &["-vV"]).read().ok()?;
        let sysroot = Run::new(&rustc, &["--print", "sysroot"]).read().ok()?;
        let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
        let (version, llvm) = version(&words)?;
        library.join("core/src/lib.rs").is_file().then_some((rustc, version, llvm, library))
    })
}

/// Reads the first line and the major version of LLVM from `rustc -vV`.
fn version(words: &str) -> Option<(String, u32)> {
    let llvm = words.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    let major = llvm.split('.').next()?.trim().parse().ok()?;
    Some((words.lines().next()?.to_owned(), major))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_for_the_linker_is_read_from_the_compilers_version() {
        let words = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nLLVM version: 22.1.8\n";
        assert_eq!(version(words), Some(("rustc 1.96.0 (ac68faa20 2026-05-25)".to_owned(), 22)));
        assert_eq!(version("rustc 1.96.0\n"), None);
    }
}
