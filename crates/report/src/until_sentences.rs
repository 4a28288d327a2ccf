//! The end of a race with `--until` in words, for table and page.

use record::{Leaving, Measure, Statistic};
use stats::{Level, Percentile};

use crate::figures::{self, counted, percent, span_s};
use crate::quantities::Ratios;
use crate::summary::{Candidate, RateSummary, Role, Summary};
use crate::until::{ComparisonExit, LookTaken, Pursued, StopReason};

/// More comparisons than these are counted.
const SHOWN_MAX: usize = 6;

/// The end of the race in sentences, for table and page; empty for other races.
pub(crate) fn sentences(summary: &Summary) -> Vec<String> {
    let Some(of) = &summary.until else { return vec![] };
    let those = |exit: Exit| of.comparisons.iter().filter(move |one| Exit::of(summary, one) == exit);
    let open: Vec<&ComparisonExit> = those(Exit::Left(Leaving::Ended)).collect();
    let mut lines = vec![end(of, open.len())];
    lines.extend(levels(of));
    let left = [Leaving::Different, Leaving::Precise, Leaving::NotAsked].map(Exit::Left);
    for exit in left.into_iter().chain([Exit::Past]) {
        lines.extend(settled(summary, of, exit, &those(exit).collect::<Vec<_>>()));
    }
    lines.extend(open.iter().take(SHOWN_MAX).map(|one| forecast(summary, of, one)));
    if open.len() > SHOWN_MAX {
        lines.push(format!("{} more are undecided", open.len() - SHOWN_MAX));
    }
    lines
}

/// How a comparison ended.
#[derive(Clone, Copy, PartialEq)]
enum Exit {
    Left(Leaving),
    /// The rate is past the capacity of the candidate or of the reference, whatever was seen of their queues.
    Past,
}

impl Exit {
    fn of(summary: &Summary, one: &ComparisonExit) -> Exit {
        let is_past = |candidate: &Candidate| {
            let is_compared = candidate.role == Role::Reference || candidate.name == one.candidate;
            is_compared && candidate.rates.get(one.load).is_some_and(RateSummary::is_past_capacity)
        };
        if summary.candidates.iter().any(is_past) { Exit::Past } else { Exit::Left(one.why) }
    }
}

/// A heading: "Until p99 is known to ±3 %".
pub(crate) fn heading(of: &Pursued) -> String {
    format!("Until {} to ±{}", of.statistic.unwrap_or("known"), percent(of.half_width))
}

fn end(of: &Pursued, open: usize) -> String {
    let comparisons = counted(open as u64, "comparison");
    let budget = span_s(f64::from(of.budget_s));
    match of.ended {
        StopReason::Settled => "every comparison was settled".to_owned(),
        StopReason::Budget if of.comparisons.is_empty() => "no candidate is left".to_owned(),
        StopReason::Budget => {
            format!("the budget of {budget} was used up with {comparisons} undecided; --budget gives more")
        }
        StopReason::Unfinished => format!("it did not come to its end; {comparisons} undecided"),
    }
}

/// When it was looked at, and at which levels.
fn levels(of: &Pursued) -> Option<String> {
    let builds: Vec<String> = of.looks.iter().map(|look| look.builds.to_string()).collect();
    let (first, last) = (of.looks.first()?, of.looks.last()?);
    let level = |look: &LookTaken| figures::level(look.level, 2);
    let early =
        if of.looks.len() == 1 { level(first) } else { format!("{} to {}", level(first), level(last)) };
    let end = of.comparisons.iter().find(|one| one.why != Leaving::Different);
    let end = end.map(|one| format!(", {} for all others", figures::level(one.level, 1))).unwrap_or_default();
    Some(format!(
        "looked at after {} builds; intervals allow for that and cover the true ratio in 95 % of races: {early} for \
         a difference found at a look{end}",
        builds.join(", ")
    ))
}

/// The levels of the intervals of ratios that are shown, those of the control too, of one load or of all: "95 %", and
/// more where the race was looked at while it ran.
pub(crate) fn interval_levels(summary: &Summary, load: Option<usize>) -> String {
    let is_asked = |of: usize| load.is_none_or(|load| load == of);
    let all = summary.until.iter().flat_map(|of| &of.comparisons);
    let of_load = all.filter(|one| is_asked(one.load)).map(|one| one.level);
    // The control leaves no race, and has the same level wherever it has an interval.
    let controls =
        summary.candidates.iter().filter(|one| one.role == Role::Control && summary.until.is_some());
    let of_control = controls
        .flat_map(|one| one.rates.iter().enumerate())
        .filter(|(of, rate)| is_asked(*of) && (rate.ratio != Ratios::default() || rate.rps_ratio.is_some()))
        .map(|_| 1.0 - 0.05 * Level::Last.share());
    figures::level_range(of_load.chain(of_control)).unwrap_or_else(|| "95 %".to_owned())
}

/// The comparisons that ended in one way.
fn settled(summary: &Summary, of: &Pursued, exit: Exit, those: &[&ComparisonExit]) -> Option<String> {
    let what = match exit {
        Exit::Left(Leaving::Different) => "found to differ".to_owned(),
        Exit::Left(Leaving::Precise) => format!("known to ±{}", percent(of.half_width)),
        Exit::Left(Leaving::NotAsked) => "not asked, left at the first look".to_owned(),
        Exit::Left(Leaving::Ended) => return None,
        Exit::Past => "past capacity, so not compared".to_owned(),
    };
    let named = |one: &&ComparisonExit| match exit {
        Exit::Left(Leaving::Different | Leaving::Precise) => {
            format!("{} after {} builds", place(summary, one), one.builds)
        }
        _ => place(summary, one),
    };
    let mut names: Vec<String> = those.iter().take(SHOWN_MAX).map(named).collect();
    if those.len() > SHOWN_MAX {
        names.push(format!("{} more", those.len() - SHOWN_MAX));
    }
    (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
}

/// What more time would bring for one that is undecided.
fn forecast(summary: &Summary, of: &Pursued, one: &ComparisonExit) -> String {
    let place = place(summary, one);
    let statistic = one.statistic.unwrap_or("its ratio");
    let Some(now) = one.half_width else {
        return format!("undecided: {place}: {}", unknown(summary, one, statistic));
    };
    let mut text = format!("undecided: {place}: {statistic} ±{}", percent(now));
    if let Some(then) = one.half_width_in_a_minute {
        text.push_str(&format!("; another minute would make it ±{}", percent(then)));
        text.push_str(&match one.needed_s {
            Some(needed_s) => {
                format!(", about {} would make it ±{}", span_s(needed_s), percent(of.half_width))
            }
            None => format!(", ±{} is out of reach", percent(of.half_width)),
        });
    }
    text
}

/// Why there is no interval, and what is known instead.
fn unknown(summary: &Summary, one: &ComparisonExit, statistic: &str) -> String {
    let candidate = summary.candidates.iter().find(|candidate| candidate.name == one.candidate);
    let Some(rate) = candidate.and_then(|candidate| candidate.rates.get(one.load)) else {
        return format!("{statistic} has no interval yet");
    };
    if rate.trials == 0 {
        return format!("{statistic} has no interval: no trial counts");
    }
    if rate.among_unanswered.contains(&statistic) {
        return format!("{statistic} has no interval: it lies, or may lie, among requests without an answer");
    }
    let needed = Percentile::P99.samples_needed();
    let a_slice = rate.response_ns.count / rate.trials;
    let why = match rate.needs.iter().find(|need| need.percentile == statistic) {
        Some(need) => {
            format!("{statistic} takes {} requests, and there are {}", need.samples, rate.response_ns.count)
        }
        // As those slices are left out of it.
        None if statistic == Statistic::TypicalP99.label(Measure::Latency) && a_slice < needed => format!(
            "{statistic} takes slices of {needed} requests, and these have {a_slice}: more slices do not help, longer ones \
             do (slice_ms)"
        ),
        None => return format!("{statistic} has no interval yet"),
    };
    let known = [("p99", rate.ratio.p99), ("p50", rate.ratio.p50)];
    let known = known.into_iter().find_map(|(name, ratio)| Some((name, ratio?)));
    known.map_or_else(
        || why.clone(),
        |(name, ratio)| format!("{why}; {name} × host {}", figures::ratio(&ratio)),
    )
}

/// "docker at 20.0k req/s".
fn place(summary: &Summary, one: &ComparisonExit) -> String {
    match summary.loads.get(one.load) {
        Some(load) => format!("{} ({})", one.candidate, figures::load(load)),
        None => one.candidate.clone(),
    }
}
