//! The summary on a terminal: a table for each load, what could not run, the noise, and the verdict.

mod by_cpu;
mod card_counts;
mod columns;
mod exact;
mod grid;
mod late;
mod map;
mod profile;
mod published;

use std::collections::BTreeSet;
use std::fmt::Write;

use record::{Handshakes, Measure, Placement};
use verdict::TYPICAL_SLICES_MIN;

use crate::carried;
use crate::figures::{self, counted, span_s};
use crate::past;
use crate::quantities::Load;
use crate::stalls::Stalls;
use crate::summary::{Candidate, Noise, Precision, RateSummary, Role, Summary};
use crate::{terminal, until_sentences};
use columns::Column;
pub use exact::kernels;
use grid::{Ink, Row};
pub use map::map_table;

/// The width and colours of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Colours by ANSI escape codes.
    pub colour: bool,
    /// Characters of a line; columns that matter less are left out to keep to it.
    pub width: usize,
}

/// A summary as text for a terminal. Text from the record is escaped, whatever characters it has
/// ([`terminal`](crate::terminal)).
pub fn table(summary: &Summary, style: Style) -> String {
    finished(&drawn(&named(summary), style), style)
}

/// The text without control characters, except our colours.
fn finished(text: &str, style: Style) -> String {
    if style.colour { terminal::painted(text) } else { terminal::safe(text).into_owned() }
}

/// The summary with names of one line each.
fn named(summary: &Summary) -> Summary {
    let mut summary = summary.clone();
    let late = summary.late.iter_mut().flat_map(|load| &mut load.candidates);
    let profiled = summary.profiles.iter_mut().flat_map(|load| &mut load.candidates);
    let (experiment, machine) = (&mut summary.experiment, &mut summary.machine);
    let names = [&mut experiment.name, &mut machine.kernel, &mut summary.server, &mut summary.verdict]
        .into_iter()
        .chain(summary.candidates.iter_mut().map(|candidate| &mut candidate.name))
        .chain(profiled.map(|candidate| &mut candidate.name))
        .chain(late.map(|candidate| &mut candidate.name));
    for name in names {
        *name = terminal::line(name).into_owned();
    }
    published::name(&mut summary);
    summary
}

fn drawn(summary: &Summary, style: Style) -> String {
    let mut text = head(summary);
    for (index, load) in summary.loads.iter().enumerate() {
        text.push('\n');
        match summary.exact.get(index) {
            Some(counts) => text.push_str(&exact::block(counts, carried::measure(summary), style)),
            None => text.push_str(&block(summary, index, load, style)),
        }
        text.push_str(&card_counts::block(summary, index, style));
    }
    summary.late.iter().for_each(|load| text.push_str(&late::block(load, style)));
    summary.profiles.iter().for_each(|profiled| text.push_str(&profile::block(profiled, style)));
    if let Some(of) = &summary.until {
        text.push_str(&list(&until_sentences::heading(of), &until_sentences::sentences(summary)));
    }
    text.push_str(&cannot_run(summary));
    text.push_str(&published::blocks(summary, style));
    text.push_str(&list("Note", &summary.notes));
    let _infallible = writeln!(text, "\n{}", grid::ink(&sentence(&summary.verdict), Ink::Bold, style.colour));
    text
}

fn head(summary: &Summary) -> String {
    let progress = &summary.progress;
    let mut text = format!("{}: {} of {}", summary.experiment.name, progress.rounds, progress.rounds_asked);
    let _infallible = write!(text, " rounds on {}", counted(progress.builds.into(), "build"));
    if let Some(wall_s) = progress.wall_s {
        let _infallible = write!(text, " in {}", span_s(wall_s));
    }
    let machine = &summary.machine;
    let _infallible = writeln!(
        text,
        "; {}; Linux {}, {}",
        summary.server,
        machine.kernel,
        counted(machine.cpus.into(), "CPU")
    );
    if summary.experiment.placement == Placement::SameNode {
        text.push_str("Both pods are on one node; with host, client and server use the node's loopback.\n");
    }
    if let Some(flood) = summary.experiment.flood {
        let _infallible = writeln!(text, "Candidates with a filter get a flood of {flood}; host gets none.");
    }
    if let Some(workload) = carried::describe(&summary.experiment) {
        let _infallible = writeln!(text, "Workload {workload}.");
    }
    if let Some(stopped) = &progress.stopped {
        let _infallible = writeln!(text, "Stopped early: {}", indented(stopped));
    }
    if progress.void_trials > 0 {
        let (void, trials) = (progress.void_trials, progress.trials);
        let _infallible = writeln!(
            text,
            "{void} of {} are void and do not count; the page has each candidate's reasons.",
            counted(trials, "trial")
        );
        for reason in &progress.void_reasons {
            let _infallible = writeln!(text, "  {} × {}", reason.trials, indented(&reason.reason));
        }
    }
    text
}

/// A load: its name, its table and the remarks on it.
fn block(summary: &Summary, index: usize, load: &Load, style: Style) -> String {
    let racing: Vec<(&Candidate, &RateSummary)> = summary
        .candidates
        .iter()
        .filter_map(|candidate| Some((candidate, candidate.rates.get(index)?)))
        .collect();
    let measure = carried::measure(summary);
    let columns = Column::of(load, measure);
    let useful: Vec<Column> =
        columns.iter().copied().filter(|column| racing.iter().any(|(_, rate)| column.says(rate))).collect();
    let header = Row { cells: useful.iter().map(|column| column.title()).collect(), ink: Ink::Bold };
    let rows = racing.iter().map(|(candidate, rate)| Row {
        cells: useful.iter().map(|column| column.cell(candidate, rate)).collect(),
        ink: ink(candidate, rate),
    });
    let rows: Vec<Row> = std::iter::once(header).chain(rows).collect();
    let dispensable: Vec<usize> = useful.iter().map(|column| column.dispensable(&useful)).collect();
    let mut text = format!("{}\n", grid::ink(&figures::load(load), Ink::Bold, style.colour));
    text.push_str(&grid::draw(&rows, &dispensable, style));
    if let Some(noise) = summary.noise.get(index) {
        let over = if summary.until.is_some() { " over all builds" } else { "" };
        text.push_str(&noise_line(noise, measure, over, &levels(summary, index, &racing)));
    }
    text.push_str(&stalls(&racing));
    text.push_str(&remarks(&racing));
    text.push_str(&by_cpu::block(summary, index, style));
    text
}

fn ink(candidate: &Candidate, rate: &RateSummary) -> Ink {
    use verdict::Verdict;
    match (candidate.role, rate.verdict) {
        (Role::Reference | Role::Control, _) => Ink::Dim,
        (Role::Contender, Some(Verdict::Better)) => Ink::Green,
        (Role::Contender, Some(Verdict::Worse)) => Ink::Red,
        (Role::Contender, Some(Verdict::Indistinguishable | Verdict::Reference) | None) => Ink::Plain,
    }
}

/// What a difference must be more than (of a candidate that left a race before its end the noise is that of its own
/// builds, which the reason of its verdict has), and the level of the intervals that verdicts rest on, which are wider
/// than those of the table.
fn noise_line(noise: &Noise, measure: Measure, over: &str, levels: &str) -> String {
    let floors = match (measure, noise.requested_rps) {
        (Measure::Latency, Some(_)) => {
            vec![("p50", noise.p50_floor), ("typical p99", noise.typical_p99_floor), ("p99", noise.p99_floor)]
        }
        (Measure::Latency | Measure::Bandwidth | Measure::Packets | Measure::Frames, _) => {
            vec![(measure.unit(), noise.rps_floor)]
        }
    };
    let named = noise.named_floor.map(|named| (named.statistic, Some(named.floor)));
    let known: Vec<String> = named
        .into_iter()
        .chain(floors)
        .filter_map(|(label, floor)| Some(format!("{label} {}", figures::noise(floor?))))
        .collect();
    if known.is_empty() {
        return String::new();
    }
    format!(
        "  Noise, the host against itself{over}: {}. Less than that is indistinguishable{levels}.\n",
        known.join(", ")
    )
}

/// "; so is a ratio whose 99.3 % interval contains 1 (the table's are at 95 %)". Empty where the table has the
/// intervals of the tests, as of a single one.
fn levels(summary: &Summary, load: usize, racing: &[(&Candidate, &RateSummary)]) -> String {
    let contenders = racing.iter().filter(|(candidate, _)| candidate.role == Role::Contender);
    let Some(tested) = figures::level_range(contenders.filter_map(|(_, rate)| rate.level)) else {
        return String::new();
    };
    let shown = until_sentences::interval_levels(summary, Some(load));
    if shown == tested {
        return String::new();
    }
    let looks = if summary.until.is_some() { ", as the race was looked at" } else { "" };
    format!("; so is a ratio whose {tested} interval contains 1 (the table's are at {shown}{looks})")
}

/// How much of the time is left out for stalls of the machine, and what p99 would be with it.
fn stalls(racing: &[(&Candidate, &RateSummary)]) -> String {
    let seen: Vec<&Stalls> = racing.iter().filter_map(|(_, rate)| rate.stalls.as_ref()).collect();
    let share = |stalls: &&&Stalls| stalls.left_out_share;
    let least = seen.iter().min_by(|a, b| share(a).total_cmp(&share(b)));
    let (Some(least), Some(most)) = (least, seen.iter().max_by(|a, b| share(a).total_cmp(&share(b)))) else {
        return String::new();
    };
    let [least, most] = [least, most].map(|stalls| figures::percent(stalls.left_out_share));
    let p99 = racing.first().and_then(|(candidate, rate)| {
        let with = rate.stalls.as_ref()?.response_ns.p99?;
        Some(format!("; with it the p99 of {} is {}", candidate.name, figures::duration_ns(with)))
    });
    let range = if least == most { least } else { format!("{least} to {most}") };
    format!("  Left out around stalls of the machine: {range} of the time{}.\n", p99.unwrap_or_default())
}

/// Remarks on single candidates, and the length of a race that would show more.
fn remarks(racing: &[(&Candidate, &RateSummary)]) -> String {
    let mut text = void(racing);
    for (candidate, rate) in racing {
        let name = &candidate.name;
        if let Some(handshakes) = rate.handshakes {
            let _infallible = writeln!(text, "  {name}: {}", resumed(handshakes));
        }
        if let Some(sent) = sent(rate).filter(|sent| *sent < SENT) {
            let share = figures::percent(sent);
            let _infallible =
                writeln!(text, "  {name}: {share} of the rate was sent; the sender was too slow for more");
        }
        if let Some(short) = &rate.shortfall {
            let _infallible = writeln!(text, "  {name}: {}", past::shortfall_text(short));
        }
        if rate.missed > 0 && rate.requested_rps.is_some() {
            let unanswered = counted(rate.missed, "request");
            let beside = if rate.stalls.is_some() { ", except beside stalls" } else { "" };
            let among = match rate.among_unanswered.as_slice() {
                [] => String::new(),
                those => format!(", and of {} there is no ratio", those.join(", ")),
            };
            let _infallible = writeln!(
                text,
                "  {name}: {unanswered} without an answer; they count as slower than all others{beside}{among}"
            );
        }
        if rate.connection_errors + rate.unexpected > 0 {
            let (broken, wrong) = (rate.connection_errors, rate.unexpected);
            let _infallible =
                writeln!(text, "  {name}: {broken} broken connections, {wrong} unexpected answers");
        }
        if let Some(tail) = &rate.tail {
            let _infallible = writeln!(text, "  {name}: {tail}");
        }
    }
    text.push_str(&needs(racing));
    text.push_str(&precision(racing));
    text
}

/// Less than this share of a stream's rate is worth a remark.
const SENT: f64 = 0.98;

/// The share of a stream's rate that was sent.
fn sent(rate: &RateSummary) -> Option<f64> {
    Some(rate.carried?.sent_packets_per_s? / rate.requested_rps?)
}

/// How connections in TLS began.
fn resumed(handshakes: Handshakes) -> String {
    let all = handshakes.full + handshakes.resumed;
    let share = if all == 0 { 0.0 } else { handshakes.resumed as f64 / all as f64 };
    format!("{} of {} resumed a session", figures::percent(share), counted(all, "TLS handshake"))
}

/// The candidates with void trials, and with slices of which no repeat counts either; the page has each reason, and the
/// notes those that are not the machine's.
fn void(racing: &[(&Candidate, &RateSummary)]) -> String {
    let counts = |of: fn(&RateSummary) -> u64, noun: &str| -> Vec<String> {
        let some = racing.iter().filter(|(_, rate)| of(rate) > 0);
        some.map(|(candidate, rate)| match noun {
            "" => format!("{} {}", candidate.name, of(rate)),
            noun => format!("{} {}", candidate.name, counted(of(rate), noun)),
        })
        .collect()
    };
    let (void, missing) = (counts(|rate| rate.void_trials, ""), counts(|rate| rate.missing_slices, "slice"));
    match (void.is_empty(), missing.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!("  Void trials, repeated: {}.\n", void.join(", ")),
        (false, false) => format!(
            "  Void trials, repeated: {}. Void each time, so missing: {}.\n",
            void.join(", "),
            missing.join(", ")
        ),
    }
}

/// The percentiles that are not shown, from the one that needs least, for the candidate that lacks most; and typical
/// p99, where only some have it.
fn needs(racing: &[(&Candidate, &RateSummary)]) -> String {
    let all = || racing.iter().flat_map(|(_, rate)| &rate.needs);
    let labels: BTreeSet<(u64, &str)> = all().map(|need| (need.samples, need.percentile)).collect();
    let lacking = labels.iter().filter_map(|(_, label)| {
        let of = all().filter(|need| need.percentile == *label);
        let worst = of.max_by_key(|need| need.rounds)?;
        let measured = worst.measured_s.map(|s| format!(" ({} measured)", span_s(s))).unwrap_or_default();
        Some(format!("{label} needs {}{measured}", counted(worst.rounds?, "round")))
    });
    let mut lacking: Vec<String> = lacking.collect();
    let is_short =
        |rate: &RateSummary| rate.typical_p99_ns.is_none() && (1..TYPICAL_SLICES_MIN).contains(&rate.trials);
    let has_column = racing.iter().any(|(_, rate)| rate.typical_p99_ns.is_some());
    if has_column && racing.iter().any(|(_, rate)| is_short(rate)) {
        let slices = counted(TYPICAL_SLICES_MIN, "slice");
        lacking.push(format!("typical p99 needs {slices} of a candidate"));
    }
    if lacking.is_empty() {
        String::new()
    } else {
        format!("  Not enough samples: {}.\n", lacking.join(", "))
    }
}

/// How long the race would have to be for ±3 %, for the candidate that needs longest, and of which candidates
/// that is not known.
fn precision(racing: &[(&Candidate, &RateSummary)]) -> String {
    let contenders: Vec<(&str, &[Precision])> = racing
        .iter()
        .filter(|(candidate, _)| candidate.role == Role::Contender)
        .map(|(candidate, rate)| (candidate.name.as_str(), rate.precision.as_slice()))
        .collect();
    let all = || contenders.iter().flat_map(|(_, precision)| *precision);
    let labels = Precision::labels(all());
    if labels.is_empty() {
        return String::new();
    }
    let without = |lacks: &dyn Fn(&[Precision]) -> bool| -> Vec<&str> {
        contenders.iter().filter(|(_, precision)| lacks(precision)).map(|(name, _)| *name).collect()
    };
    let rounds = |label: &&str| {
        let is = |entry: &&Precision| entry.percentile == *label;
        let some = without(&|precision| !precision.is_empty() && !precision.iter().any(|entry| is(&entry)));
        Some(format!("{label} {}{}", longest(all().filter(is))?, but(" without ", &some)))
    };
    let rounds: Vec<String> = labels.iter().filter_map(rounds).collect();
    let none = without(&|precision| precision.is_empty());
    format!("  For ±3 % at every candidate{}: {}.\n", but(" but ", &none), rounds.join(", "))
}

/// The rounds of the one that needs most: "120 rounds (8 min)".
fn longest<'a>(of: impl Iterator<Item = &'a Precision>) -> Option<String> {
    let worst = of.max_by(|a, b| a.half_width.total_cmp(&b.half_width))?;
    Some(match (worst.rounds, worst.wall_s) {
        (Some(rounds), Some(wall_s)) => format!("{} ({})", counted(rounds, "round"), span_s(wall_s)),
        (Some(rounds), None) => counted(rounds, "round"),
        (None, _) => "impractically many".to_owned(),
    })
}

/// Names that are left out, if any: " but docker and macvlan".
fn but(word: &str, names: &[&str]) -> String {
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => format!("{word}{last}"),
        Some((last, others)) => format!("{word}{} and {last}", others.join(", ")),
    }
}

fn cannot_run(summary: &Summary) -> String {
    let unable = summary.candidates.iter().filter(|candidate| !candidate.runnable);
    let lines: Vec<String> =
        unable.map(|candidate| format!("{}: {}", candidate.name, candidate.reasons.join("; "))).collect();
    list("Cannot run here", &lines)
}

/// A heading with lines under it; empty without lines.
fn list(heading: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("\n{heading}\n{}", lines.iter().map(|line| format!("  {}\n", indented(line))).collect::<String>())
}

/// Further lines of a text stand under its first, so that none passes for a line of ours.
fn indented(text: &str) -> String {
    terminal::safe(text).replace('\n', "\n  ")
}

/// The verdict as the last line. It may begin with a name, and names keep their spelling.
fn sentence(verdict: &str) -> String {
    format!("Verdict: {verdict}.")
}
