//! Links the library to a stub of libdl, so that it starts with old C libraries: glibc 2.34 moved `dlsym`,
//! `dlvsym` and `dladdr` into libc with a new version, which older ones lack. The stub has them with their
//! first version, by which every glibc finds them: in libdl, or for older programs in libc.

use std::{env, fs, path::PathBuf, process::Command};

const STUB: &str = "void dlsym(void) {}\nvoid dlvsym(void) {}\nvoid dladdr(void) {}\n";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    let version = if variable("CARGO_CFG_TARGET_ARCH") == "x86_64" { "GLIBC_2.2.5" } else { "GLIBC_2.17" };
    let out = PathBuf::from(variable("OUT_DIR"));
    let (source, map) = (out.join("libdl.c"), out.join("libdl.map"));
    fs::write(&source, STUB).expect("cargo's output directory is writable");
    fs::write(&map, format!("{version} {{ dlsym; dlvsym; dladdr; }};\n"))
        .expect("cargo's output directory is writable");
    let script = format!("-Wl,--version-script={}", map.display());
    // The linker of Rust programs for this target is a C compiler.
    let status = Command::new(env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into()))
        .args(["-shared", "-nostdlib", "-Wl,-soname,libdl.so.2", &script, "-o"])
        .args([&out.join("libdl.so"), &source])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the C compiler could not build the stub of libdl");
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=dylib=dl");
}
