//! The parts of the test suite, in the order in which they run: what fails fast comes first.

use std::{collections::BTreeSet, sync::OnceLock};

use anyhow::{Context as _, Result, ensure};

use super::{
    build::{Build, Cases, TestProgram},
    files::{self, TestFile},
    fuzz,
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
    /// Recordings of the full size, beside which nothing runs.
    Measuring,
}

/// A lane of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// One part after the other. In the second stage, recordings of the whole machine.
    Main,
    /// What needs processors.
    Side,
    /// Recordings of single programs by an ordinary user.
    User,
    /// Recordings of single programs by root: once the main lane has ended, every lane takes the next of
    /// these.
    Shared,
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
    /// What it needs of the machine, as the head of a test file states it.
    pub(super) needs: Vec<String>,
    /// Names of the tests, if it runs the ignored tests of a file.
    pub(super) tests: Vec<String>,
    pub(super) run: RunPart,
}

impl Part {
    /// A part of the main lane of the second stage, which needs nothing.
    fn new(name: &str, size: Size, run: impl Fn(&Context) -> Result<Tally> + Sync + 'static) -> Self {
        let (needs, tests) = (Vec::new(), Vec::new());
        let (name, run) = (name.to_owned(), Box::new(run));
        Self { name, stage: Stage::Testing, lane: Lane::Main, size, uses_build: false, needs, tests, run }
    }

    /// A check by a cargo command, beside others.
    fn cargo(name: &str, size: Size, words: &'static [&'static str]) -> Self {
        Self::new(name, size, move |_| Ok(Tally::of_check(&Run::cargo(words).stream()?, words[0]))).beside()
    }

    /// The test programs that are selected, with arguments of their harness, beside others.
    fn tests(
        name: &str,
        size: Size,
        selects: fn(&TestProgram) -> bool,
        (arguments, cases): (&'static [&'static str], Cases),
    ) -> Self {
        let run = move |context: &Context| {
            let mut tally = Tally::default();
            for test in context.build()?.tests.iter().filter(|test| selects(test)) {
                tally = tally.merge(&Tally::of_tests(&test.run(arguments, cases)?));
            }
            Ok(tally)
        };
        Self::new(name, size, run).beside().uses_build()
    }

    /// A run of the matrix of kernels. Guests run beside others at a lower priority.
    fn vm(name: &str, arguments: &'static [&'static str], needs: &[&str]) -> Self {
        Self::new(name, Size::Full, |context| vm(context, arguments)).uses_build().needs(needs)
    }

    fn building(self) -> Self {
        Self { stage: Stage::Building, ..self }
    }

    fn uses_build(self) -> Self {
        Self { uses_build: true, ..self }
    }

    fn beside(self) -> Self {
        Self { lane: Lane::Side, ..self }
    }

    fn needs(self, words: &[&str]) -> Self {
        Self { needs: words.iter().map(|&word| word.to_owned()).collect(), ..self }
    }

    /// Returns the parts of a file: one for its tests of the small size, one for its tests of the full size.
    fn of_file(file: &TestFile) -> impl Iterator<Item = Self> {
        let name = &file.name;
        let sizes = [
            (name.clone(), Size::Small, &file.needs, &file.small),
            (format!("{name} in full"), Size::Full, &file.full_needs, &file.full),
        ];
        sizes.into_iter().filter(|(.., tests)| !tests.is_empty()).map(|(name, size, needs, tests)| {
            let (of, selected) = (file.clone(), tests.clone());
            let run = move |context: &Context| live(context, &of, &selected);
            let part = Self::new(&name, size, run).uses_build();
            let lane = match () {
                // These compare with other tools, or count what a recording costs.
                () if size == Size::Full || file.is_of_machine => Lane::Main,
                () if needs.iter().any(|need| need == "root") => Lane::Shared,
                () => Lane::User,
            };
            let stage =
                if size == Size::Full && !file.is_full_beside { Stage::Measuring } else { Stage::Testing };
            Self { stage, lane, needs: needs.clone(), tests: tests.clone(), ..part }
        })
    }
}

/// State that the parts share.
#[derive(Default)]
pub(super) struct Context {
    build: OnceLock<Build>,
    /// Whether a part of the full size runs. Some of them record more than a recorder without optimization
    /// can take.
    is_full: bool,
}

impl Context {
    pub(super) fn of(parts: &[Part]) -> Self {
        Self { is_full: parts.iter().any(|part| part.size == Size::Full), ..Self::default() }
    }

    pub(super) fn build(&self) -> Result<&Build> {
        self.build.get().context("the build failed")
    }
}

/// The name of the part without which most others cannot run.
pub(super) const BUILD: &str = "build";

/// The lints of all crates.
pub(super) const LINT: &str = "lints";

/// The kernel that one guest boots for a change of what runs in the kernel.
pub(super) const ONE_GUEST: &str = "one guest";

/// Programs that a guest needs.
const GUEST: [&str; 6] = ["root", "gcc", "stress-ng", "qemu-system-x86_64", "busybox", "cpio"];

/// Returns all parts but those that [`before`] adds.
pub(super) fn all() -> Result<Vec<Part>> {
    use Size::{Fast, Full, Small};
    let files = files::find()?;
    let docs = |context: &Context| {
        let klock = &context.build()?.klock;
        Ok(docs::run(true, Some(klock))
            .map_or_else(|e| Tally::failed(format!("{e:#}")), |()| Tally::passed()))
    };
    let mut parts = vec![
        Part { lane: Lane::Main, ..Part::cargo("format", Fast, &["fmt", "--check"]).building() },
        Part::new("docs are current", Fast, docs).building().uses_build(),
        Part::new("every ignored test has a part", Fast, every_ignored_test_has_a_part)
            .building()
            .uses_build(),
        Part::tests("unit tests", Fast, |test| test.is_unit && !test.is_preload, (&[], Cases::Few)),
        Part::tests(
            "tests of the program",
            Small,
            |test| !test.is_unit && !test.is_preload,
            (&[], Cases::Few),
        ),
        Part::tests("in-process recorder", Small, |test| test.is_preload, (&[], Cases::Few)).needs(&["gcc"]),
        Part::cargo(LINT, Full, LINTS),
        Part::tests("unit tests in full", Full, |test| test.is_unit, (&["--include-ignored"], Cases::All)),
        Part::new("doc tests", Full, |_| doc_tests()).beside(),
        Part::new("documentation", Full, |_| documentation()).beside(),
        Part::cargo("recorder alone", Full, RECORDER_ALONE),
        Part::cargo("analyzer alone", Full, ANALYZER_ALONE),
        Part::new("bpf object is current", Full, |_| chore(&["bpf", "--check"])).beside(),
        Part::vm("vm", &["5.10", "6.1", "6.12", "7.2", "--short"], &GUEST).beside(),
        Part::vm(ONE_GUEST, &["6.12", "--short", "--only", "facts,contended,refusals"], &GUEST).beside(),
        // The machine's own kernel is a part of the main lane: recordings of the whole machine do not run
        // beside each other.
        Part::vm("vm native", &["native", "--short"], &["root", "gcc", "stress-ng"]),
        Part::new("fuzz", Full, |_| fuzz::run()).beside().needs(&["g++"]),
        Part::new("page is current", Full, |_| chore(&["page", "--check"])).needs(&["npm"]),
    ];
    parts.extend(files.iter().flat_map(Part::of_file));
    parts.push(Part::new("demo", Small, demo).uses_build().needs(&["xmllint", "rsvg-convert"]));
    Ok(parts)
}

/// Returns the parts that must run before these: what they need is installed, and what they run is built.
pub(super) fn before(parts: &[Part]) -> Vec<Part> {
    let needs: BTreeSet<String> = parts.iter().flat_map(|part| part.needs.clone()).collect();
    let needs: Vec<String> = needs.into_iter().collect();
    let mut before = Vec::new();
    if parts.iter().any(|part| part.name == "format" || part.name == LINT) {
        let install = |_: &Context| Ok(Tally::unless_missing(setup::components()?));
        before.push(Part::new("rustfmt and clippy", Size::Fast, install).building());
    }
    if !needs.is_empty() {
        let install = move |_: &Context| {
            let missing = setup::provide(&needs)?;
            Ok(Tally::unless_missing((!missing.is_empty()).then(|| missing.join("; "))))
        };
        before.push(Part::new("what tests need", Size::Small, install).building().beside());
    }
    if parts.iter().any(|part| part.uses_build) {
        before.push(Part::new(BUILD, Size::Fast, build).building());
    }
    before
}

/// Checks of klock with one of its two halves. They share what is built for [`LINTS`].
const RECORDER_ALONE: &[&str] = &["check", "-p", "klock", "--no-default-features", "--features", "record"];
const ANALYZER_ALONE: &[&str] = &["check", "-p", "klock", "--no-default-features", "--features", "analyze"];
const LINTS: &[&str] =
    &["clippy", "--workspace", "--exclude", "record-ebpf", "--all-targets", "--", "-D", "warnings"];

/// Builds the documentation; a broken link is an error. It shares what is built for [`LINTS`].
fn documentation() -> Result<Tally> {
    let arguments = ["doc", "--no-deps", "--workspace", "--exclude", "record-ebpf"];
    let outcome = Run::cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings").stream()?;
    Ok(Tally::of_check(&outcome, "doc"))
}

fn build(context: &Context) -> Result<Tally> {
    ensure!(context.build.set(Build::make(context.is_full)?).is_ok(), "built twice");
    Ok(Tally::passed())
}

fn doc_tests() -> Result<Tally> {
    Ok(Tally::of_tests(&Run::cargo(&["test", "--doc", "--no-fail-fast"]).stream()?))
}

/// Tests that no part runs would rot unnoticed.
fn every_ignored_test_has_a_part(context: &Context) -> Result<Tally> {
    let files = files::find()?;
    for test in context.build()?.tests.iter().filter(|test| !test.is_unit) {
        let files: Vec<&TestFile> = files.iter().filter(|file| file.target == test.target).collect();
        for name in test.ignored()? {
            ensure!(
                files.iter().any(|file| file.has(&name)),
                "no part runs {name} of {}; add a line `//! needs: ...` to the head of its file",
                test.target
            );
        }
    }
    Ok(Tally::passed())
}

/// Runs these ignored tests of a file, one at a time.
fn live(context: &Context, file: &TestFile, tests: &[String]) -> Result<Tally> {
    let mut programs = context.build()?.tests.iter().filter(|test| !test.is_unit);
    let program = programs.find(|test| test.target == file.target);
    let program = program.with_context(|| format!("cargo built no test program {}", file.target))?;
    let paths = program.ignored()?;
    let names = paths.iter().filter(|path| file.is_one_of(tests, path));
    let mut arguments = vec!["--ignored", "--nocapture", "--test-threads=1", "--exact"];
    arguments.extend(names.map(String::as_str));
    Ok(Tally::of_tests(&program.run(&arguments, Cases::Few)?))
}

/// Returns this program, whose file the build of the tests may have replaced.
fn this() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// Runs a chore in a process of its own.
fn chore(arguments: &[&str]) -> Result<Tally> {
    Ok(Tally::of_chore(&Run::new(this(), arguments).stream()?, &arguments.join(" ")))
}

/// Runs the matrix of kernels, at a lower priority than the main lane.
fn vm(context: &Context, arguments: &[&str]) -> Result<Tally> {
    let matrix = Run::new("nice", &["-n", "10"]).arg(this()).arg("vm").args(arguments);
    Ok(Tally::of_chore(&matrix.arg("--klock").arg(&context.build()?.klock).stream()?, "vm"))
}

/// Runs the README's first command in an empty directory. The picture of its trace must be XML, and drawable
/// by librsvg.
fn demo(context: &Context) -> Result<Tally> {
    let directory = scratch("demo")?;
    let klock = &context.build()?.klock;
    let outcome = Run::new(klock, &["demo", "-o"]).arg(&directory).stream()?;
    if !outcome.ok {
        return Ok(Tally::of_check(&outcome, "demo"));
    }
    let picture = directory.join("demo.svg");
    Run::new(klock, &["plot"]).arg(directory.join("demo.parquet")).arg("-o").arg(&picture).must()?;
    Run::new("xmllint", &["--noout"]).arg(&picture).must()?;
    Run::new("rsvg-convert", &["-o"]).arg(picture.with_extension("png")).arg(&picture).must()?;
    Ok(Tally::passed())
}
