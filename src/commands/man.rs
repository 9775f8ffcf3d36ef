//! `klock completions` and `klock man`, made from the declaration of the command line.

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use trace_format::output::OutputOptions;

use crate::{
    args::{self, Args},
    exit::Exit,
    files, output,
};

pub(super) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "klock", &mut script);
    output::unpaged(|out| Ok(out.write_all(&script)?))?;
    Ok(Exit::Done)
}

pub(super) fn run(args: &args::Man) -> anyhow::Result<Exit> {
    let mut klock = Args::command();
    klock.build();
    if let Some(directory) = &args.output {
        for command in with_subcommands(&klock) {
            let path = directory.join(format!("{}.1", name_of(command)));
            let page = page(command)?;
            // The pages of an earlier version are not kept: `man -k` would find them.
            let rules = OutputOptions { replace: true, ..files::options(args.force.force) };
            files::write(&path, &rules, |out| Ok(out.write_all(&page)?))?;
        }
        return Ok(Exit::Done);
    }
    let mut command = &klock;
    for name in &args.command {
        let known = || -> Vec<&str> { shown(command).map(Command::get_name).collect() };
        let below = |command| shown(command).find(|sub| sub.get_name() == name);
        command = below(command)
            .ok_or_else(|| anyhow::anyhow!("invalid command '{name}': use one of {}", known().join(", ")))?;
    }
    let page = page(command)?;
    output::unpaged(|out| Ok(out.write_all(&page)?))?;
    Ok(Exit::Done)
}

fn page(command: &Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

/// Returns the command and all below it.
fn with_subcommands(command: &Command) -> Vec<&Command> {
    let mut all = vec![command];
    all.extend(shown(command).flat_map(with_subcommands));
    all
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// Returns the name of the page: klock-report.
fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}
