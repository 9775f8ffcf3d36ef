//! The parts of the test suite, in the order in which they run: what fails fast comes first.

use std::{fs, sync::OnceLock};

use anyhow::{Context as _, Result, ensure};

use super::{
    build::{Build, Cases, TestProgram},
    files::{self, TestFile},
    needs::{self, Need},
    tally::Tally,
};
use crate::{
    docs,
    process::{Run, scratch},
    setup,
};

/// A size of the suite; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Fast,
    Small,
    Full,
}

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
    /// The least size that includes it.
    pub(super) size: Size,
    /// Whether it runs what the build makes.
    uses_build: bool,
    pub(super) needs: Vec<Need>,
    /// Names of the tests, if it runs the ignored tests of a file.
    pub(super) tests: Vec<String>,
    pub(super) run: RunPart,
}

impl Part {
    fn new(
        name: &str,
        size: Size,
        stage: Stage,
        run: impl Fn(&Context) -> Result<Tally> + Sync + 'static,
    ) -> Self {
        let run = Box::new(run);
        let (needs, tests) = (Vec::new(), Vec::new());
        Self { name: name.to_owned(), stage, lane: Lane::Main, size, uses_build: false, needs, tests, run }
    }

    fn uses_build(self) -> Self {
        Self { uses_build: true, ..self }
    }

    fn beside(self) -> Self {
        Self { lane: Lane::Side, ..self }
    }

    fn needs(self, words: &[&str]) -> Self {
        Self { needs: words.iter().map(|word| Need::parse(word)).collect(), ..self }
    }

    /// Returns the parts of a file: one for its tests of the small size, one for those of the full size.
    fn of_file(file: &TestFile) -> Vec<Self> {
        let name = file.target.replace('_', " ");
        let mut parts = Vec::new();
        for (name, size, needs, tests) in [
            (name.clone(), Size::Small, &file.needs, &file.small),
            (format!("{name} in full"), Size::Full, &file.full_needs, &file.full),
        ] {
            if tests.is_empty() {
                continue;
            }
            let (target, run) = (file.target.clone(), tests.clone());
            let run = move |context: &Context| live(context, &target, &run);
            let part = Self::new(&name, size, Stage::Testing, run).uses_build();
            parts.push(Self { needs: needs.clone(), tests: tests.clone(), ..part });
        }
        parts
    }
}

/// State that the parts share.
#[derive(Default)]
pub(super) struct Context {
    build: OnceLock<Build>,
}

impl Context {
    pub(super) fn build(&self) -> Result<&Build> {
        self.build.get().context("the build failed")
    }
}

/// The name of the part without which most others cannot run.
pub(super) const BUILD: &str = "build";

/// The kernel that one guest boots for a change of what runs in the kernel.
pub(super) const ONE_GUEST: &str = "one guest";

/// Programs that a guest needs.
const GUEST: [&str; 6] = ["root", "gcc", "stress-ng", "qemu-system-x86_64", "busybox", "cpio"];

/// Returns all parts but those that [`before`] adds.
pub(super) fn all() -> Result<Vec<Part>> {
    use Size::{Fast, Full, Small};
    use Stage::{Building, Testing};
    let guests = ["5.10", "6.1", "6.12", "7.2", "--short"];
    let one_guest = ["6.12", "--short", "--only", "facts,contended,refusals"];
    let files = files::find()?;
    let mut parts = vec![
        Part::new("format", Fast, Building, |_| cargo(&["fmt", "--check"])),
        Part::new("docs are current", Fast, Building, |context| {
            let klock = &context.build()?.klock;
            Ok(docs::run(true, Some(klock))
                .map_or_else(|e| Tally::failed(format!("{e:#}")), |()| Tally::passed()))
        })
        .uses_build(),
        Part::new("every ignored test has a part", Fast, Building, every_ignored_test_has_a_part)
            .uses_build(),
        Part::new("tests", Fast, Testing, |context| tests(context, |test| !test.is_preload, &[], Cases::Few))
            .beside()
            .uses_build(),
        Part::new("in-process recorder", Small, Testing, |context| {
            tests(context, |test| test.is_preload, &[], Cases::Few)
        })
        .beside()
        .uses_build()
        .needs(&["gcc"]),
        Part::new("lints", Small, Testing, |_| lints()).beside(),
        Part::new("tests in full", Full, Testing, |context| {
            tests(context, |test| test.is_unit, &["--include-ignored"], Cases::All)
        })
        .beside()
        .uses_build(),
        Part::new("doc tests", Full, Testing, |_| doc_tests()).beside(),
        Part::new("documentation", Full, Testing, |_| documentation()).beside(),
        Part::new("recorder alone", Full, Testing, |_| cargo(&alone("record"))).beside(),
        Part::new("analyzer alone", Full, Testing, |_| cargo(&alone("analyze"))).beside(),
        Part::new("bpf object is current", Full, Testing, |_| chore(&["bpf", "--check"])).beside(),
        Part::new("vm", Full, Testing, move |context| vm(context, &guests))
            .beside()
            .uses_build()
            .needs(&GUEST),
        Part::new(ONE_GUEST, Full, Testing, move |context| vm(context, &one_guest))
            .beside()
            .uses_build()
            .needs(&GUEST),
        Part::new("vm native", Full, Testing, |context| vm(context, &["native", "--short"]))
            .uses_build()
            .needs(&["root", "gcc", "stress-ng"]),
        Part::new("page is current", Full, Testing, |_| chore(&["page", "--check"])).needs(&["npm"]),
    ];
    parts.extend(files.iter().flat_map(Part::of_file));
    parts.push(Part::new("demo", Small, Testing, demo).uses_build().needs(&["xmllint", "rsvg-convert"]));
    Ok(parts)
}

/// Returns the parts that must run before these: what they need is installed, and what they run is built.
pub(super) fn before(parts: &[Part]) -> Vec<Part> {
    let mut needs: Vec<Need> = Vec::new();
    for need in parts.iter().flat_map(|part| &part.needs) {
        if !needs.contains(need) {
            needs.push(need.clone());
        }
    }
    let mut before = Vec::new();
    if parts.iter().any(|part| part.name == "format" || part.name == "lints") {
        before.push(Part::new("rustfmt and clippy", Size::Fast, Stage::Building, |_| {
            Ok(Tally::unless_missing(setup::components()?))
        }));
    }
    if !needs.is_empty() {
        let install = move |_: &Context| {
            let missing = needs::install(&needs)?;
            Ok(Tally::unless_missing((!missing.is_empty()).then(|| missing.join("; "))))
        };
        before.push(Part::new("what tests need", Size::Small, Stage::Building, install).beside());
    }
    if parts.iter().any(|part| part.uses_build) {
        before.push(Part::new(BUILD, Size::Fast, Stage::Building, build));
    }
    before
}

/// Runs a cargo command that is one check.
fn cargo(arguments: &[&str]) -> Result<Tally> {
    let outcome = Run::cargo(arguments).stream()?;
    Ok(Tally::of_check(&outcome, arguments.first().copied().unwrap_or_default()))
}

/// Checks klock with one of its two halves. It shares what is built for [`lints`].
const fn alone(feature: &'static str) -> [&'static str; 6] {
    ["check", "-p", "klock", "--no-default-features", "--features", feature]
}

fn lints() -> Result<Tally> {
    let packages = ["clippy", "--workspace", "--exclude", "record-ebpf", "--all-targets"];
    cargo(&[&packages[..], &["--", "-D", "warnings"]].concat())
}

/// Builds the documentation; a broken link is an error. It shares what is built for [`lints`].
fn documentation() -> Result<Tally> {
    let arguments = ["doc", "--no-deps", "--workspace", "--exclude", "record-ebpf"];
    let outcome = Run::cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings").stream()?;
    Ok(Tally::of_check(&outcome, "doc"))
}

fn build(context: &Context) -> Result<Tally> {
    ensure!(context.build.set(Build::make()?).is_ok(), "built twice");
    Ok(Tally::passed())
}

/// Runs the selected test programs with these arguments of the harness.
fn tests(
    context: &Context,
    selects: fn(&TestProgram) -> bool,
    arguments: &[&str],
    cases: Cases,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for test in context.build()?.tests.iter().filter(|test| selects(test)) {
        tally = tally.merge(&Tally::of_tests(&test.run(arguments, cases)?));
    }
    Ok(tally)
}

fn doc_tests() -> Result<Tally> {
    Ok(Tally::of_tests(&Run::cargo(&["test", "--doc", "--no-fail-fast"]).stream()?))
}

/// Tests that no part runs would rot unnoticed.
fn every_ignored_test_has_a_part(context: &Context) -> Result<Tally> {
    let files = files::find()?;
    for test in context.build()?.tests.iter().filter(|test| !test.is_unit) {
        let file = files.iter().find(|file| file.target == test.target);
        for name in test.ignored()? {
            let known = file.is_some_and(|file| file.has(&name));
            ensure!(
                known,
                "no part runs {name} of {}; add a line `//! needs: ...` to the head of its file",
                test.target
            );
        }
    }
    Ok(Tally::passed())
}

/// Runs these ignored tests of a test program, one at a time.
fn live(context: &Context, target: &str, tests: &[String]) -> Result<Tally> {
    let mut programs = context.build()?.tests.iter().filter(|test| !test.is_unit);
    let program = programs.find(|test| test.target == target);
    let program = program.with_context(|| format!("cargo built no test program {target}"))?;
    let paths = program.ignored()?;
    let names = paths.iter().filter(|path| tests.iter().any(|test| files::is_name_of(test, path)));
    let mut arguments = vec!["--ignored", "--nocapture", "--test-threads=1", "--exact"];
    arguments.extend(names.map(String::as_str));
    Ok(Tally::of_tests(&program.run(&arguments, Cases::Few)?))
}

/// Runs a chore in a process of its own.
fn chore(arguments: &[&str]) -> Result<Tally> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let outcome = Run::new(this, arguments).stream()?;
    Ok(Tally::of_chore(&outcome, &arguments.join(" ")))
}

/// Runs the matrix of kernels at a lower priority than the main lane. The machine's own kernel is a part of the main lane:
/// recordings of the whole machine do not run beside each other.
fn vm(context: &Context, arguments: &[&str]) -> Result<Tally> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let klock = &context.build()?.klock;
    let matrix =
        Run::new("nice", &["-n", "10"]).arg(this).arg("vm").args(arguments).arg("--klock").arg(klock);
    Ok(Tally::of_chore(&matrix.stream()?, "vm"))
}

/// Runs the README's first command in an empty directory. Its picture must be XML, and drawable by librsvg.
fn demo(context: &Context) -> Result<Tally> {
    let directory = scratch("demo")?;
    let outcome = Run::new(&context.build()?.klock, &["demo", "-o"]).arg(&directory).stream()?;
    if !outcome.ok {
        return Ok(Tally::of_check(&outcome, "demo"));
    }
    let names = fs::read_dir(&directory)?.filter_map(|entry| entry.ok().map(|e| e.path()));
    let pictures: Vec<_> = names.filter(|path| path.extension().is_some_and(|e| e == "svg")).collect();
    if pictures.is_empty() {
        return Ok(Tally::failed(format!("the demo left no picture in {}", directory.display())));
    }
    for picture in &pictures {
        Run::new("xmllint", &["--noout"]).arg(picture).must()?;
        Run::new("rsvg-convert", &["-o"]).arg(picture.with_extension("png")).arg(picture).must()?;
    }
    Ok(Tally::passed())
}
