//! The edges between the rooms, read from `cargo metadata`: an edge that is not in the tables below fails. What is compiled
//! only for tests does not count.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    process::Command,
};

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, PackageId};

/// Every edge between rooms that may exist.
const ROOM_EDGES: &[(&str, &str)] = &[
    ("klock", "trace-format"),
    ("klock", "record"),
    ("klock", "analyze"),
    ("record", "trace-format"),
    ("record-ebpf", "trace-format"),
    ("record-preload", "trace-format"),
    ("analyze", "trace-format"),
    ("xtask", "trace-format"),
];

/// Crates from outside that only these rooms may name.
const RESERVED: &[(&str, &[&str])] = &[
    ("aya", &["record"]),
    ("aya-obj", &["record"]),
    ("aya-ebpf", &["record-ebpf"]),
    ("blazesym", &["record"]),
    ("btf-rs", &["record"]),
    ("polars", &["analyze"]),
    ("plotters", &["analyze"]),
    ("clap", &["klock", "xtask"]),
    ("anyhow", &["klock", "xtask"]),
    ("indicatif", &["klock"]),
];

/// Crates that must not come in by any way, however long.
const OUT_OF_REACH: &[(&str, &[&str])] = &[
    ("trace-format", &["record", "analyze", "klock", "aya", "polars", "clap"]),
    ("record-ebpf", &["record", "analyze", "klock"]),
    ("record-preload", &["record", "analyze", "klock", "aya", "polars", "clap"]),
    ("record", &["analyze", "klock", "polars", "plotters", "clap"]),
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

fn rooms(metadata: &Metadata) -> BTreeSet<String> {
    metadata.workspace_packages().iter().map(|package| package.name.to_string()).collect()
}

/// The dependencies that each room's manifest names, tests aside.
fn named_edges(metadata: &Metadata) -> Vec<(String, String)> {
    let edges = metadata.workspace_packages().into_iter().flat_map(|package| {
        let counted = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        counted.map(|d| (package.name.to_string(), d.name.clone())).collect::<Vec<_>>()
    });
    edges.collect()
}

/// Names of everything that is linked into the package, tests and build scripts aside.
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
fn rooms_depend_on_each_other_only_along_the_edges_of_the_table() {
    let metadata = metadata(None);
    let rooms = rooms(&metadata);
    let found: BTreeSet<(String, String)> =
        named_edges(&metadata).into_iter().filter(|(_, to)| rooms.contains(to)).collect();
    let allowed: BTreeSet<(String, String)> =
        ROOM_EDGES.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    let unknown: Vec<_> = found.difference(&allowed).collect();
    assert!(unknown.is_empty(), "edges that the architecture does not have: {unknown:?}");
}

#[test]
fn a_crate_that_belongs_to_a_room_is_named_by_no_other() {
    for (from, to) in named_edges(&metadata(None)) {
        if let Some((_, owners)) = RESERVED.iter().find(|(name, _)| *name == to) {
            assert!(owners.contains(&from.as_str()), "{from} depends on {to}, which belongs to {owners:?}");
        }
    }
}

#[test]
fn no_room_reaches_what_is_not_its_own_by_a_detour() {
    let metadata = metadata(None);
    for (room, forbidden) in OUT_OF_REACH {
        let reached = reach(&metadata, room);
        for name in *forbidden {
            assert!(!reached.contains(*name), "{room} reaches {name}");
        }
    }
}

#[test]
fn the_library_that_goes_into_programs_names_the_records_layout_and_the_c_librarys_types_only() {
    let named: BTreeSet<String> = named_edges(&metadata(None))
        .into_iter()
        .filter(|(from, _)| from == "record-preload")
        .map(|(_, to)| to)
        .collect();
    assert_eq!(named, BTreeSet::from(["libc".to_owned(), "trace-format".to_owned()]));
}

#[test]
fn a_recorder_alone_links_no_analyzer_and_an_analyzer_alone_no_recorder() {
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
    let source = std::fs::read_to_string(root.join("trace-format/src/wire.rs")).expect("wire.rs is there");
    let imports: Vec<&str> = source.lines().filter(|l| l.trim_start().starts_with("use ")).collect();
    assert!(imports.is_empty(), "wire.rs is shared with the kernel side and imports {imports:?}");

    let metadata = metadata(None);
    let ground = metadata
        .workspace_packages()
        .into_iter()
        .find(|p| p.name.as_str() == "trace-format")
        .expect("it exists");
    let always: Vec<&str> = ground
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
