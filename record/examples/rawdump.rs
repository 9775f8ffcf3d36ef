//! A tool for developers: loads every program for all tasks, or for one process, and prints raw records and counters.
//! `cargo run -p record --example rawdump -- [PID] [SECONDS]`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a developer's probe, not a tool")]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use record::{
    host::HostFacts,
    load::LoadedPrograms,
    plan::{Plan, Selection, TargetMode},
    ring::Item,
    run_helper,
    target_files::TargetFiles,
    uprobes::libc_of_process,
};

fn main() {
    if let Some(code) = run_helper() {
        std::process::exit(code);
    }
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u32>().unwrap());
    let pid = args.next().filter(|pid| *pid > 0);
    let seconds = args.next().unwrap_or(2);
    let facts = HostFacts::gather();
    let target = if pid.is_some() { TargetMode::Processes } else { TargetMode::All };
    let selection = Selection { pthread: pid.is_some(), target, ..Selection::everything() };
    let plan = Plan::new(&facts, &selection).unwrap();
    let mut loaded = LoadedPrograms::load(&plan).unwrap();
    let mut rings = loaded.take_rings().unwrap();
    loaded.attach_lifetimes().unwrap();
    if let Some(pid) = pid {
        loaded.add_target(pid).unwrap();
        let libc = libc_of_process(pid, &mut TargetFiles::default()).unwrap();
        println!("{} probes", loaded.attach_process(pid, &libc).unwrap());
    }
    loaded.attach().unwrap();
    loaded.resume().unwrap();
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut shown = 0;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        rings.drain(&mut |item| {
            let (word, record) = match item {
                Item::Event(bytes) => ("events", format!("{:?}", record::decode::event(bytes))),
                Item::Descriptor(bytes) => {
                    ("descriptors", format!("{:?}", record::decode::descriptor(bytes)))
                }
            };
            *counts.entry(word).or_default() += 1;
            if shown < 40 {
                println!("{record}");
                shown += 1;
            }
        });
    }
    println!("{counts:?}");
    for row in loaded.counters().unwrap() {
        if row.counters != Default::default() {
            println!("{row:?}");
        }
    }
    println!("misses {:?}", loaded.recursion_misses());
}
