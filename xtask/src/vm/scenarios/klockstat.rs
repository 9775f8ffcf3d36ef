//! klockstat of libbpf-tools and klock watch the same acquisitions at the same time: how often, and how long the lock was held
//! on average. The load holds one mutex for some time in each call, so that what the two cost each other is small beside it.

use anyhow::{Context as _, Result};
use trace_format::Trace;

use super::{
    Files, Finding, Place, Scenario, Setting,
    contended::last_line,
    counts::{by_lock, counts, lock_of},
    thousands, time,
};

pub(super) const SCENARIO: Scenario =
    Scenario { name: "klockstat", place: Place::Guests, seconds: |_| 240, script, check };

/// Waits until a recorder has attached everything: its file descriptors for it are some, and no more are added. A
/// shell's background programs ignore Ctrl-C until they ask for it, which both do.
pub(super) const SETTLED: &str = r#"
settled() {
    before=0; same=0
    while [ $same -lt 3 ] && [ -d /proc/$1 ]; do
        sleep 1
        now=$(ls -l /proc/$1/fd | grep -c -e bpf -e perf_event)
        if [ $now = $before ] && [ $now -gt 4 ]; then same=$((same + 1)); else same=0; fi
        before=$now
    done
}
"#;

const PART: &str = "klockstat";
const THREADS: u32 = 4;

fn script(setting: &Setting) -> String {
    let calls = if setting.short { 1000 } else { 5000 };
    format!(
        "{SETTLED}\n\
         mkfifo go\n\
         known_kernel --wait $WORK read {THREADS} {calls} < go > known &\n\
         load=$!\n\
         exec 3> go\n\
         until grep -q ready known; do sleep 0.1; done\n\
         pid=$(sed -n 's/^ready //p' known)\n\
         klockstat -p $pid -n 100 -s 1 > klockstat 2> klockstat.log &\n\
         theirs=$!\n\
         settled $theirs\n\
         klock record -p $pid --locks kernel -f -o t.parquet > record 2>&1 &\n\
         ours=$!\n\
         settled $ours\n\
         echo >&3\n\
         exec 3>&-\n\
         wait $load\n\
         sleep 1\n\
         kill -INT $ours; wait $ours; echo $? > record.status\n\
         kill -INT $theirs; wait $theirs; echo $? > klockstat.status\n"
    )
}

/// A line of klockstat: how often, and how long on average.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    count: u64,
    average_ns: f64,
    /// Half of the last digit that it prints.
    grain_ns: f64,
}

/// The line with the most counts of its table of holds.
fn most_held(printed: &str) -> Option<Line> {
    let table = printed.split("Avg Hold").nth(1)?;
    table
        .lines()
        .skip(1)
        .take_while(|line| !line.contains("Avg "))
        .filter_map(line)
        .max_by_key(|line| line.count)
}

/// `caller  1.2 us  8000  3.4 ms  5.6 s  ...`
fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| unit(word).is_some())?;
    let (number, unit) = (words.get(at.checked_sub(1)?)?, unit(words[at])?);
    let decimals = number.split_once('.').map_or(0, |(_, digits)| digits.len());
    let grain_ns = unit * 0.1_f64.powi(i32::try_from(decimals).ok()?) / 2.0;
    Some(Line {
        count: words.get(at + 1)?.parse().ok()?,
        average_ns: number.parse::<f64>().ok()? * unit,
        grain_ns,
    })
}

fn unit(word: &str) -> Option<f64> {
    match word {
        "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    }
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    let printed = files.text("klockstat");
    let Some(theirs) = most_held(&printed) else {
        let why = format!("klockstat reports nothing here: {}", last_line(&files.text("klockstat.log")));
        // Nothing to compare with on kernels that klockstat itself does not know.
        finding.figure(PART, "klockstat", &why);
        finding.must(setting.kernel.is_some_and(|kernel| !kernel.klockstat), || why);
        return Ok(());
    };
    let status = files.status("record.status")?;
    finding.must(status == 0, || {
        format!("klock record ended with {status}: {}", last_line(&files.text("record")))
    });
    if status != 0 {
        return Ok(());
    }
    let counts = counts(&files.text("known"))?;
    let counts: Vec<_> = counts.iter().collect();
    let calls: u64 = counts.iter().map(|count| count.calls).sum();
    let trace = Trace::open(&files.path("t.parquet"))?;
    let sums = by_lock(&trace)?;
    let lock = lock_of(&sums, &counts).context("no mutex in the trace")?;
    let own = sums.iter().filter(|((_, id, ..), _)| *id == lock);
    let (count, hold_ns) = own.fold((0, 0), |(n, ns), (_, done)| (n + done.acquired, ns + done.hold_ns));
    let average_ns = hold_ns as f64 / count.max(1) as f64;
    let apart = 100.0 * (count as f64 - theirs.count as f64) / theirs.count as f64;
    let longer_ns = average_ns - theirs.average_ns;
    finding.figure(PART, "calls", thousands(calls));
    finding.figure(PART, "klockstat", thousands(theirs.count));
    finding.figure(PART, "klock", thousands(count));
    finding.figure(PART, "apart", format!("{apart:+.2} %"));
    finding.figure(PART, "hold, klockstat", time(theirs.average_ns));
    finding.figure(PART, "hold, klock", time(average_ns));
    finding.figure(
        PART,
        "longer by",
        format!("{} ({:+.2} %)", time(longer_ns), 100.0 * longer_ns / theirs.average_ns),
    );
    finding.must(apart.abs() <= 1.0, || format!("klock counts {count}, klockstat {}", theirs.count));
    // Each measures some of the other's programs too, once per hold; emulated, they take tens of microseconds, and more
    // where the machine has other things to do.
    // In a short run two guests share what would be one's processors, and are off them in the middle of either program.
    let share = if setting.short { 0.25 } else { 0.05 };
    let grain_ns = theirs.grain_ns + (share * theirs.average_ns).max(50_000.0);
    finding.must(longer_ns.abs() <= grain_ns, || {
        format!("klock says a hold of {}, klockstat {}", time(average_ns), time(theirs.average_ns))
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\n               Caller  Avg Wait    Count   Max Wait   Total Wait\n\
                           __fdget_pos+0x4a     1.2 us     9000     3.0 ms      2.2 s\n\
                           \n               Caller  Avg Hold    Count   Max Hold   Total Hold\n\
                           __fdget_pos+0x4a    12.5 us     8000     3.0 ms      2.2 s\n\
                           pipe_write+0x4a      1.5 us        8     3.0 ms      2.2 s\n";

    #[test]
    fn the_lock_that_was_held_most_often_is_found_in_the_table_of_holds() {
        let line = most_held(PRINTED).unwrap();
        assert_eq!(line.count, 8000);
        assert!((line.average_ns - 12_500.0).abs() < 1e-6 && (line.grain_ns - 50.0).abs() < 1e-6);
    }
}
