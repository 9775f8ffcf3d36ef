//! The parts of the test suite, in the order in which they run: what fails fast comes first.

use std::{fs, sync::OnceLock};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    build::Build,
    files::{self, TestFile},
    tally::Tally,
};
use crate::{
    docs, host,
    process::{Run, has, scratch},
    setup,
};

/// Time limit of a test program, in minutes. It ends a program that hangs: on a busy machine the slowest takes more than 10.
const TEST_MINUTES: u32 = 30;
/// Name of the part that other parts depend on.
pub(super) const BUILD: &str = "build";

/// A stage of the run; the parent module documents what runs beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Building,
    Testing,
}

/// A lane of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Main,
    Side,
}

type RunPart = Box<dyn Fn(&Context) -> Result<Tally> + Sync>;

/// A part of the test suite.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) stage: Stage,
    pub(super) lane: Lane,
    /// Whether `--fast` includes it.
    pub(super) fast: bool,
    /// Whether it runs what [`BUILD`] builds.
    pub(super) uses_build: bool,
    /// The test file that it runs.
    pub(super) file: Option<TestFile>,
    pub(super) run: RunPart,
}

impl Part {
    fn new(name: &str, stage: Stage, run: impl Fn(&Context) -> Result<Tally> + Sync + 'static) -> Self {
        let run = Box::new(run);
        Self {
            name: name.to_owned(),
            stage,
            lane: Lane::Main,
            fast: false,
            uses_build: false,
            file: None,
            run,
        }
    }

    fn fast(self) -> Self {
        Self { fast: true, ..self }
    }

    fn uses_build(self) -> Self {
        Self { uses_build: true, ..self }
    }

    fn beside(self) -> Self {
        Self { lane: Lane::Side, ..self }
    }

    fn of_file(file: TestFile) -> Self {
        let run = {
            let file = file.clone();
            move |context: &Context| live(context, &file)
        };
        let part = Self::new(&file.target.replace('_', " "), Stage::Testing, run).uses_build();
        Self { file: Some(file), ..part }
    }
}

/// State that the parts share.
pub(super) struct Context {
    pub(super) fast: bool,
    build: OnceLock<Build>,
}

impl Context {
    pub(super) fn new(fast: bool) -> Self {
        Self { fast, build: OnceLock::new() }
    }

    fn build(&self) -> Result<&Build> {
        self.build.get().context("the build failed")
    }
}

/// Returns all parts.
pub(super) fn all() -> Result<Vec<Part>> {
    use Stage::{Building, Testing};
    let missing =
        |install: fn() -> Result<Option<String>>| move |_: &Context| Ok(Tally::unless_missing(install()?));
    let mut parts = vec![
        Part::new("rustfmt and clippy", Building, missing(setup::components)),
        Part::new("debian packages", Building, missing(setup::packages)).beside(),
        Part::new("python packages", Building, missing(setup::engines)).beside(),
        Part::new("npm packages", Building, missing(setup::viewers)).beside(),
        Part::new("format", Building, |_| cargo(&["fmt", "--check"], 2)).fast(),
        Part::new(BUILD, Building, build).fast(),
        Part::new("docs are current", Building, |context| {
            let klock = &context.build()?.klock;
            Ok(docs::run(true, Some(klock))
                .map_or_else(|e| Tally::failed(format!("{e:#}")), |()| Tally::passed()))
        })
        .fast()
        .uses_build(),
        Part::new("every ignored test has a part", Building, every_ignored_test_has_a_part)
            .fast()
            .uses_build(),
        Part::new("tests", Building, tests).fast().uses_build(),
        Part::new("doc tests", Building, |_| doc_tests()),
        Part::new("bpf object is current", Building, |_| chore(&["bpf", "--check"], 30)),
        Part::new("lints", Testing, |_| lints()),
        Part::new("documentation", Testing, |_| documentation()),
        Part::new("recorder alone", Testing, |_| cargo(&alone("record"), 8)),
        Part::new("analyzer alone", Testing, |_| cargo(&alone("analyze"), 8)),
        Part::new("vm", Testing, |context| vm(context, &["5.10", "6.1", "6.12", "7.2"]))
            .beside()
            .uses_build(),
        Part::new("vm native", Testing, |context| vm(context, &["native"])).uses_build(),
        Part::new("page is current", Testing, |_| chore(&["page", "--check"], 5)),
    ];
    parts.extend(files::find()?.into_iter().map(Part::of_file));
    parts.push(Part::new("demo", Testing, demo).uses_build());
    Ok(parts)
}

/// Runs a cargo command that is one check.
fn cargo(arguments: &[&str], minutes: u32) -> Result<Tally> {
    let outcome = Run::cargo(arguments).minutes(minutes).stream()?;
    Ok(Tally::of_check(&outcome, arguments.first().copied().unwrap_or_default(), minutes))
}

/// Checks klock with one of its two halves. The release profile shares what is built for [`lints`].
const fn alone(feature: &'static str) -> [&'static str; 7] {
    ["check", "--release", "-p", "klock", "--no-default-features", "--features", feature]
}

fn lints() -> Result<Tally> {
    let packages = ["clippy", "--release", "--workspace", "--exclude", "record-ebpf", "--all-targets"];
    cargo(&[&packages[..], &["--", "-D", "warnings"]].concat(), 15)
}

/// Builds the documentation; a broken link is an error. It shares what is built for [`lints`].
fn documentation() -> Result<Tally> {
    let arguments = ["doc", "--release", "--no-deps", "--workspace", "--exclude", "record-ebpf"];
    let outcome = Run::cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings").minutes(10).stream()?;
    Ok(Tally::of_check(&outcome, "doc", 10))
}

fn build(context: &Context) -> Result<Tally> {
    let made = Build::make(context.fast)?;
    ensure!(context.build.set(made).is_ok(), "built twice");
    Ok(Tally::passed())
}

/// Unit tests and the tests that need nothing. The ignored unit tests write pictures, which costs little.
fn tests(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for test in &context.build()?.tests {
        let ignored: &[&str] = if test.is_unit { &["--include-ignored"] } else { &[] };
        tally = tally.merge(&Tally::of_tests(&test.run(ignored, TEST_MINUTES)?, TEST_MINUTES));
    }
    Ok(tally)
}

fn doc_tests() -> Result<Tally> {
    let outcome = Run::cargo(&["test", "--release", "--doc", "--no-fail-fast"]).stream()?;
    Ok(Tally::of_tests(&outcome, 10))
}

/// Tests that no part runs would rot unnoticed.
fn every_ignored_test_has_a_part(context: &Context) -> Result<Tally> {
    let files = files::find()?;
    for test in context.build()?.tests.iter().filter(|test| !test.is_unit) {
        let ignored = test.ignored()?;
        let known = files.iter().any(|file| file.target == test.target);
        if let Some(name) = ignored.first().filter(|_| !known) {
            bail!(
                "no part runs {name} of {}; add a line `//! needs: ...` to the head of its file",
                test.target
            );
        }
    }
    Ok(Tally::passed())
}

/// Runs the ignored tests of a file, one at a time.
fn live(context: &Context, file: &TestFile) -> Result<Tally> {
    if let Some(missing) = file.missing() {
        return Ok(Tally::skipped(missing));
    }
    let mut programs = context.build()?.tests.iter().filter(|test| !test.is_unit);
    let program = programs.find(|test| test.target == file.target);
    let program = program.with_context(|| format!("cargo built no test program {}", file.target))?;
    let outcome = program.run(&["--ignored", "--nocapture", "--test-threads=1"], TEST_MINUTES)?;
    Ok(Tally::of_tests(&outcome, TEST_MINUTES))
}

/// Runs a chore in a process of its own.
fn chore(arguments: &[&str], minutes: u32) -> Result<Tally> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let outcome = Run::new(this, arguments).minutes(minutes).stream()?;
    Ok(Tally::of_chore(&outcome, &arguments.join(" "), minutes))
}

/// Maximum time of the guests: a third of it on a machine with two processors and nothing else to do.
const VM_MINUTES: u32 = 60;

/// Runs the matrix on these kernels for the shortest useful time, at a lower priority than the main lane. The machine's
/// own kernel is a part of the main lane: recordings of the whole machine do not run beside each other.
fn vm(context: &Context, kernels: &[&str]) -> Result<Tally> {
    if !host::is_root() {
        return Ok(Tally::skipped("needs root"));
    }
    let this = std::env::current_exe().context("cannot find this program")?;
    let klock = &context.build()?.klock;
    let matrix = Run::new("nice", &["-n", "10"])
        .arg(this)
        .arg("vm")
        .args(kernels)
        .args(["--short", "--klock"])
        .arg(klock);
    Ok(Tally::of_chore(&matrix.minutes(VM_MINUTES).stream()?, "vm --short", VM_MINUTES))
}

/// Runs the README's first command in an empty directory. Its picture must be XML, and drawable where librsvg is.
fn demo(context: &Context) -> Result<Tally> {
    let directory = scratch("demo")?;
    let outcome = Run::new(&context.build()?.klock, &["demo", "-o"]).arg(&directory).minutes(5).stream()?;
    if !outcome.ok {
        return Ok(Tally::of_check(&outcome, "demo", 5));
    }
    let names = fs::read_dir(&directory)?.filter_map(|entry| entry.ok().map(|e| e.path()));
    let pictures: Vec<_> = names.filter(|path| path.extension().is_some_and(|e| e == "svg")).collect();
    if pictures.is_empty() {
        return Ok(Tally::failed(format!("the demo left no picture in {}", directory.display())));
    }
    for picture in &pictures {
        if has("xmllint") {
            Run::new("xmllint", &["--noout"]).arg(picture).must()?;
        }
        if has("rsvg-convert") {
            Run::new("rsvg-convert", &["-o"]).arg(picture.with_extension("png")).arg(picture).must()?;
        }
    }
    Ok(Tally::passed())
}
