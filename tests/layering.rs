//! Checks the dependencies between packages, read from `cargo metadata`, against the tables below, and the
//! imports between the files of each package for circles. Code that is compiled only for tests does not
//! count.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    process::Command,
};

#[path = "layering/modules.rs"]
mod modules;

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, PackageId};

/// All allowed dependencies between packages of the workspace.
const PACKAGE_EDGES: &[(&str, &str)] = &[
    ("klock", "trace-format"),
    ("klock", "record"),
    ("klock", "analyze"),
    ("record", "trace-format"),
    ("record-ebpf", "trace-format"),
    ("record-preload", "trace-format"),
    ("output", "trace-format"),
    ("intervals", "trace-format"),
    ("intervals", "output"),
    ("tables", "trace-format"),
    ("tables", "output"),
    ("tables", "intervals"),
    ("analyze", "trace-format"),
    ("analyze", "output"),
    ("analyze", "intervals"),
    ("analyze", "tables"),
    ("xtask", "trace-format"),
];

/// External crates that only these packages may depend on.
const RESERVED: &[(&str, &[&str])] = &[
    ("aya", &["record"]),
    ("aya-obj", &["record"]),
    ("aya-ebpf", &["record-ebpf"]),
    ("blazesym", &["record"]),
    ("btf-rs", &["record"]),
    ("seccompiler", &["record"]),
    ("polars", &["tables"]),
    ("plotters", &["analyze"]),
    ("resvg", &["analyze"]),
    ("inferno", &["analyze"]),
    ("clap", &["klock", "xtask"]),
    ("anyhow", &["klock", "xtask"]),
    ("indicatif", &["klock"]),
];

/// Crates that a package must not depend on, not even indirectly.
const OUT_OF_REACH: &[(&str, &[&str])] = &[
    ("trace-format", &["record", "analyze", "klock", "aya", "polars", "clap"]),
    ("record-ebpf", &["record", "analyze", "klock"]),
    ("record-preload", &["record", "analyze", "klock", "aya", "polars", "clap"]),
    ("record", &["analyze", "klock", "polars", "plotters", "clap"]),
    ("intervals", &["polars", "plotters"]),
    ("analyze", &["record", "klock", "aya", "blazesym", "clap"]),
];

fn metadata(options: Option<CargoOpt>) -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    if let Some(options) = options {
        command.features(CargoOpt::NoDefaultFeatures).features(options);
    }
    command.exec().expect("cargo metadata describes this workspace")
}

fn packages(metadata: &Metadata) -> BTreeSet<String> {
    metadata.workspace_packages().iter().map(|package| package.name.to_string()).collect()
}

/// Returns the dependencies in each package's manifest, without those of tests.
fn named_edges(metadata: &Metadata) -> Vec<(String, String)> {
    let edges = metadata.workspace_packages().into_iter().flat_map(|package| {
        let counted = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        counted.map(|d| (package.name.to_string(), d.name.clone())).collect::<Vec<_>>()
    });
    edges.collect()
}

/// Returns the names of all crates that are linked into the package, without those of tests and build
/// scripts.
fn reach(metadata: &Metadata, package: &str) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolved the dependencies");
    let names: HashMap<&PackageId, String> =
        metadata.packages.iter().map(|package| (&package.id, package.name.to_string())).collect();
    let nodes: HashMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let start =
        names.iter().find(|(_, name)| *name == package).map(|(id, _)| *id).expect("the package exists");
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        for dependency in &nodes[id].deps {
            let linked = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if linked && seen.insert(names[&dependency.pkg].clone()) {
                open.push(&dependency.pkg);
            }
        }
    }
    seen
}

#[test]
fn packages_depend_on_each_other_only_as_in_the_table() {
    let metadata = metadata(None);
    let packages = packages(&metadata);
    let found: BTreeSet<(String, String)> =
        named_edges(&metadata).into_iter().filter(|(_, to)| packages.contains(to)).collect();
    let allowed: BTreeSet<(String, String)> =
        PACKAGE_EDGES.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    let unknown: Vec<_> = found.difference(&allowed).collect();
    assert!(unknown.is_empty(), "the table does not allow {unknown:?}");
}

#[test]
fn reserved_crates_are_used_by_their_packages_only() {
    for (from, to) in named_edges(&metadata(None)) {
        if let Some((_, owners)) = RESERVED.iter().find(|(name, _)| *name == to) {
            assert!(
                owners.contains(&from.as_str()),
                "{from} depends on {to}, which is reserved for {owners:?}"
            );
        }
    }
}

#[test]
fn no_package_depends_indirectly_on_a_forbidden_crate() {
    let metadata = metadata(None);
    for (package, forbidden) in OUT_OF_REACH {
        let reached = reach(&metadata, package);
        for name in *forbidden {
            assert!(!reached.contains(*name), "{package} depends on {name}");
        }
    }
}

#[test]
fn the_preload_library_depends_on_trace_format_and_libc_only() {
    let named: BTreeSet<String> = named_edges(&metadata(None))
        .into_iter()
        .filter(|(from, _)| from == "record-preload")
        .map(|(_, to)| to)
        .collect();
    assert_eq!(named, BTreeSet::from(["libc".to_owned(), "trace-format".to_owned()]));
}

#[test]
fn a_recorder_alone_links_no_analyzer_and_the_reverse() {
    let recorder = reach(&metadata(Some(CargoOpt::SomeFeatures(vec!["record".to_owned()]))), "klock");
    assert!(recorder.contains("record"));
    for name in ["analyze", "polars", "plotters"] {
        assert!(!recorder.contains(name), "the recorder alone links {name}");
    }
    let analyzer = reach(&metadata(Some(CargoOpt::SomeFeatures(vec!["analyze".to_owned()]))), "klock");
    assert!(analyzer.contains("analyze"));
    for name in ["record", "aya", "blazesym"] {
        assert!(!analyzer.contains(name), "the analyzer alone links {name}");
    }
}

#[test]
fn the_wire_record_has_no_dependency_and_compiles_without_std() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parts = ["", "/api", "/code", "/packed", "/program"];
    for file in parts.map(|part| format!("trace-format/src/wire{part}.rs")) {
        let source =
            std::fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let imports: Vec<&str> = source.lines().filter(|l| l.trim_start().starts_with("use ")).collect();
        assert!(imports.is_empty(), "{file} is shared with the kernel side and imports {imports:?}");
    }

    let metadata = metadata(None);
    let package = metadata
        .workspace_packages()
        .into_iter()
        .find(|p| p.name.as_str() == "trace-format")
        .expect("it exists");
    let always: Vec<&str> = package
        .dependencies
        .iter()
        .filter(|d| d.kind == DependencyKind::Normal && !d.optional)
        .map(|d| d.name.as_str())
        .collect();
    assert!(always.is_empty(), "trace-format without features depends on {always:?}");

    let output = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "-p", "trace-format", "--no-default-features", "--target-dir"])
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-std"))
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The root files of the packages.
const ROOTS: [&str; 10] = [
    "src/main.rs",
    "trace-format/src/lib.rs",
    "record/src/lib.rs",
    "record-ebpf/src/main.rs",
    "record-preload/src/lib.rs",
    "analyze/src/lib.rs",
    "analyze/intervals/src/lib.rs",
    "analyze/output/src/lib.rs",
    "analyze/tables/src/lib.rs",
    "xtask/src/lib.rs",
];

#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut wrong = String::new();
    for root in ROOTS {
        let edges = modules::Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(root)).edges();
        assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 3, "no imports were found in {root}");
        for circle in modules::circles(&edges) {
            wrong += &format!("\n{root}: a circle of {} files\n", circle.len());
            for from in &circle {
                let to: Vec<&str> = edges[from].intersection(&circle).map(String::as_str).collect();
                wrong += &format!("    {from} -> {}\n", to.join(", "));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
