//! A slow model of the queries that klock has no table for: adds up the tables of single traces to the rows
//! that the queries give.
//!
//! Nothing here reads a rollup. Only columns that the model knows are in its rows.

use std::collections::{BTreeMap, BTreeSet};

use trace_format::Trace;

use super::invented::{BEGUN_NS, Fleet, HOSTS, Rows, table};

/// The length of a period of facts.
const PERIOD_NS: i64 = 1_000_000;

/// A machine, as klock's tables of its trace show it.
struct Machine {
    /// Its name, safe to print.
    host: String,
    version: &'static str,
    is_ranked: bool,
    trace: Trace,
    by_class: Rows,
    holds: Rows,
    waits: Rows,
    waiting_ns: i64,
}

impl Machine {
    fn all(fleet: &Fleet) -> Vec<Self> {
        let machine = |(at, (path, host)): (usize, (_, &str))| {
            let of_trace = |arguments: &[&str]| table([path], arguments);
            let waiting = of_trace(&["timeline", "--by", "kind", "--allow-loss"]);
            Self {
                host: host.replace('\u{7}', "\\u{7}"),
                version: if at < 4 { "1" } else { "2" },
                is_ranked: host != "lossy",
                trace: trace_format::open(path).expect("a trace"),
                by_class: of_trace(&["report", "--by", "class", "--allow-loss"]),
                holds: of_trace(&["holds"]),
                waits: of_trace(&["waits"]),
                waiting_ns: waiting.iter().map(|row| number(row, "wait_ns").unwrap_or(0)).sum(),
            }
        };
        fleet.traces.iter().zip(HOSTS).enumerate().map(machine).collect()
    }

    fn recorded_ns(&self) -> i64 {
        let info = self.trace.info();
        info.clocks_end.monotonic_ns - info.clocks_start.monotonic_ns
    }

    /// Returns the start of the first period in which anything is known of each lock.
    fn first_periods(&self) -> BTreeMap<String, i64> {
        let mut first: BTreeMap<String, i64> = BTreeMap::new();
        for row in self.holds.iter().chain(&self.waits) {
            let is_cut = ["state", "outcome"]
                .iter()
                .any(|column| row.get(*column).is_some_and(|word| word == "cut_by_loss"));
            // Of what lasted while events were lost, only the end counts.
            let ns = number(row, if is_cut { "end_ns" } else { "start_ns" }).expect("a time");
            let period_ns = (BEGUN_NS + ns).div_euclid(PERIOD_NS) * PERIOD_NS;
            let name = row["lock"].split(' ').nth(1).expect("a name");
            let of_lock = first.entry(format!("{}:{name}", row["lock_kind"])).or_insert(period_ns);
            *of_lock = period_ns.min(*of_lock);
        }
        first
    }
}

fn number(row: &BTreeMap<String, String>, column: &str) -> Option<i64> {
    row[column].parse().ok()
}

/// Makes a row. Null is empty.
fn row<const N: usize>(cells: [(&str, Option<String>); N]) -> BTreeMap<String, String> {
    cells.map(|(column, value)| (column.to_owned(), value.unwrap_or_default())).into()
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// Returns the rows of each query, in any order.
pub(crate) fn tables(fleet: &Fleet) -> BTreeMap<&'static str, Rows> {
    let machines = Machine::all(fleet);
    BTreeMap::from([
        ("worst_hosts", worst_hosts(&machines)),
        ("new_locks", new_locks(&machines)),
        ("cohorts", cohorts(&machines)),
        ("coverage", machines.iter().map(coverage).collect()),
        ("others", machines.iter().filter(|machine| machine.is_ranked).map(others).collect()),
    ])
}

fn worst_hosts(machines: &[Machine]) -> Rows {
    let mut by_lock: BTreeMap<&str, Vec<(i64, &str, i64)>> = BTreeMap::new();
    for machine in machines.iter().filter(|machine| machine.is_ranked) {
        for row in &machine.by_class {
            if let (Some(wait_ns), Some(count)) =
                (number(row, "wait_total_ns"), number(row, "count").filter(|count| *count > 0))
            {
                by_lock.entry(&row["name"]).or_default().push((-wait_ns, &machine.host, count));
            }
        }
    }
    let mut rows = Vec::new();
    for (align, mut hosts) in by_lock {
        hosts.sort_unstable();
        for (place, (wait_ns, host, count)) in (1..).zip(hosts.into_iter().take(3)) {
            rows.push(row([
                ("align", text(align)),
                ("place_of_host", text(place)),
                ("host", text(host)),
                ("wait_total_ns", text(-wait_ns)),
                ("acquisitions", text(count)),
            ]));
        }
    }
    rows
}

fn new_locks(machines: &[Machine]) -> Rows {
    let mut first: BTreeMap<String, (i64, BTreeSet<&str>)> = BTreeMap::new();
    for machine in machines {
        for (align, period_ns) in machine.first_periods() {
            let (all_ns, hosts) = first.entry(align).or_insert((period_ns, BTreeSet::new()));
            *all_ns = period_ns.min(*all_ns);
            hosts.insert(&machine.host);
        }
    }
    let new = |(align, (first_ns, hosts)): (String, (i64, BTreeSet<&str>))| {
        row([("align", Some(align)), ("first_ns", text(first_ns)), ("hosts", text(hosts.len()))])
    };
    first.into_iter().map(new).collect()
}

fn cohorts(machines: &[Machine]) -> Rows {
    let mut rows = Vec::new();
    for machine in machines.iter().filter(|machine| machine.is_ranked) {
        for class in machine.by_class.iter().filter(|class| class["count"] != "0") {
            let same = |column: &str| Some(class[column].clone());
            rows.push(row([
                ("label", text("version")),
                ("cohort", text(machine.version)),
                ("host", text(&machine.host)),
                ("align", same("name")),
                ("wait_total_ns", same("wait_total_ns")),
                ("total_ns", same("total_ns")),
                ("wait_caused_ns", same("wait_caused_ns")),
                ("acquisitions", same("count")),
                ("cnt_lock", same("cnt_lock")),
                ("recorded_ns", text(machine.recorded_ns())),
            ]));
        }
    }
    rows
}

fn coverage(machine: &Machine) -> BTreeMap<String, String> {
    let info = machine.trace.info();
    row([
        ("host", text(&machine.host)),
        ("traces", text(1)),
        ("first_ns", text(BEGUN_NS)),
        ("last_ns", text(BEGUN_NS + machine.recorded_ns())),
        ("recorded_ns", text(machine.recorded_ns())),
        ("lost_events", text(info.loss.ring_full)),
        ("ranked_traces", text(i64::from(machine.is_ranked))),
        ("complete_traces", text(1)),
    ])
}

fn others(machine: &Machine) -> BTreeMap<String, String> {
    row([
        ("host", text(&machine.host)),
        ("all_ns", text(machine.waiting_ns)),
        ("others_ns", text(0)),
        ("others_ppm", text(0)),
    ])
}
