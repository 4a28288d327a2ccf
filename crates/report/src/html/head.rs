//! What a reader sees first: what raced, the verdict, and how much the race can be trusted.

use record::Measure;
use stats::Percentile;

use super::marks;
use super::markup::Markup;
use super::text;
use crate::{Noise, Summary, carried, until_sentences};

/// Writes the head of the page.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("header", &[], |m| {
        m.leaf("h1", &[], &summary.experiment.name);
        m.leaf("p", &[("class", "where")], &where_and_when(summary));
        if let Some(workload) = carried::describe(&summary.experiment) {
            m.leaf("p", &[("class", "where")], &format!("Workload {workload}."));
        }
        m.leaf("p", &[("class", "verdict-sentence")], &summary.verdict);
        m.within("dl", &[("class", "facts")], |m| {
            for (name, figure, remark) in facts(summary) {
                m.within("div", &[], |m| {
                    m.leaf("dt", &[], name);
                    m.within("dd", &[], |m| {
                        m.leaf("b", &[], &figure);
                        if !remark.is_empty() {
                            m.leaf("span", &[], &remark);
                        }
                    });
                });
            }
        });
        ended(m, summary);
        warnings(m, summary);
        absent(m, summary);
    });
    contents(m, summary);
}

/// How a race that ends for what it sees came to its end.
fn ended(m: &mut Markup, summary: &Summary) {
    if let Some(of) = &summary.until {
        m.leaf("h2", &[("id", "until")], &until_sentences::heading(of));
        m.within("ul", &[], |m| {
            until_sentences::sentences(summary).iter().for_each(|line| m.leaf("li", &[], line));
        });
    }
}

/// Kernel, date and server in a line.
fn where_and_when(summary: &Summary) -> String {
    format!(
        "Linux {} · {} · {} · hostgap {}",
        summary.machine.kernel,
        text::date(summary.started_unix_s),
        summary.server,
        summary.hostgap
    )
}

/// Name, figure and remark of the key facts.
fn facts(summary: &Summary) -> Vec<(&'static str, String, String)> {
    let progress = &summary.progress;
    let (rounds, asked) = (u64::from(progress.rounds), u64::from(progress.rounds_asked));
    let rounds_remark = match rounds == asked {
        true => progress.wall_s.map(|wall| format!("in {}", text::duration(wall))).unwrap_or_default(),
        false => format!("of {} asked", text::grouped(asked)),
    };
    let requests: u64 =
        summary.candidates.iter().flat_map(|c| &c.rates).map(|rate| rate.response_ns.count).sum();
    let void_share = match progress.trials {
        0 => String::new(),
        trials => format!(
            "of {}, {}",
            text::grouped(trials),
            text::percent(progress.void_trials as f64 / trials as f64)
        ),
    };
    let mut facts = vec![
        ("rounds", text::grouped(rounds), rounds_remark),
        ("builds", text::grouped(u64::from(progress.builds)), "of every topology".to_owned()),
    ];
    if carried::measure(summary) == Measure::Latency {
        facts.push(("requests measured", text::grouped(requests), "in trials that count".to_owned()));
    }
    facts.push(("void trials", text::grouped(progress.void_trials), void_share));
    facts.extend(noise_facts(summary));
    facts
}

/// The noise of the race: the reference's difference from itself.
fn noise_facts(summary: &Summary) -> Vec<(&'static str, String, String)> {
    if let Some(counts) = summary.exact.first() {
        let name = marks::reference(summary);
        let found = counts.candidates.iter().find(|counted| counted.name == name);
        let spread = found.map_or_else(|| "not known".to_owned(), |found| text::percent(found.spread));
        return vec![("spread", spread, format!("repetitions of {name}"))];
    }
    let measure = carried::measure(summary);
    if measure != Measure::Latency {
        let remark = format!("of {}; smaller differences do not count", measure.unit());
        return vec![("noise floor", floors(summary, |noise| noise.rps_floor), remark)];
    }
    vec![
        ("noise floor p50", floors(summary, |noise| noise.p50_floor), "range over all loads".to_owned()),
        ("noise floor typical p99", floors(summary, |noise| noise.typical_p99_floor), typical(summary)),
        (
            "noise floor p99",
            floors(summary, |noise| noise.p99_floor),
            "smaller differences do not count".to_owned(),
        ),
    ]
}

/// What typical p99 is, or why no load has one.
fn typical(summary: &Summary) -> String {
    match summary.noise.iter().any(|noise| noise.typical_p99_floor.is_some()) {
        true => "p99 of a typical slice".to_owned(),
        false => format!("takes slices of {} requests", text::grouped(Percentile::P99.samples_needed())),
    }
}

/// The noise floors over all loads: `±1.2–2.1 %`, `±2.1 % to ×1.38`.
fn floors(summary: &Summary, floor: impl Fn(&Noise) -> Option<f64>) -> String {
    let floors = || summary.noise.iter().filter_map(&floor).filter(|floor| floor.is_finite());
    if floors().next().is_none() {
        return "not known".to_owned();
    }
    let least = text::noise(floors().fold(f64::INFINITY, f64::min));
    let most = text::noise(floors().fold(0.0, f64::max));
    match (least.strip_suffix("\u{202f}%"), most.strip_prefix('±')) {
        _ if least == most => most,
        (Some(least), Some(most)) => format!("{least}–{most}"),
        _ => format!("{least} to {most}"),
    }
}

/// What a reader must know before the figures.
fn warnings(m: &mut Markup, summary: &Summary) {
    let progress = &summary.progress;
    let stopped = progress.stopped.as_ref().map(|why| format!("The race ended early: {why}"));
    let cut = (progress.wall_s.is_none() && progress.stopped.is_none()).then(|| {
        "The record has no end: the race was interrupted. This page shows the rounds saved until then."
            .to_owned()
    });
    let judged = summary.noise.iter().filter(|_| summary.exact.is_empty());
    let unlike = judged.zip(&summary.loads).filter_map(|(noise, load)| {
        use crate::Verdict::{Better, Worse};
        matches!(noise.verdict, Some(Better | Worse)).then(|| {
            format!(
                "{}: {} differs from itself. The race did not treat all alike at this load; its verdicts are less reliable.",
                text::load(load),
                marks::reference(summary)
            )
        })
    });
    let all: Vec<String> =
        stopped.into_iter().chain(cut).chain(unlike).chain(summary.notes.iter().cloned()).collect();
    if !all.is_empty() {
        m.within("ul", &[("class", "warnings")], |m| all.iter().for_each(|text| m.leaf("li", &[], text)));
    }
}

/// The candidates that could not run, in a line that leads to the reasons.
fn absent(m: &mut Markup, summary: &Summary) {
    let names: Vec<&str> =
        summary.candidates.iter().filter(|c| !c.runnable).map(|candidate| candidate.name.as_str()).collect();
    if !names.is_empty() {
        m.within("p", &[("class", "aside")], |m| {
            m.text(&format!("Could not run here: {} (", names.join(", ")));
            m.leaf("a", &[("href", "#absent")], "why");
            m.text(").");
        });
    }
}

fn contents(m: &mut Markup, summary: &Summary) {
    let over = summary.sweep.as_ref().map(|sweep| format!("Over {}", super::sweep::subject(sweep)));
    let swept = over.as_deref().map(|name| ("#sweep", name));
    let ratio = format!("Relative to {}", marks::reference(summary));
    let measured =
        [("#ratio", ratio.as_str()), ("#curves", "Percentiles"), ("#cpu", "CPU"), ("#capacity", "Capacity")];
    let counted = [("#exact", "Instructions")];
    let figures = if summary.exact.is_empty() { measured.as_slice() } else { counted.as_slice() };
    let has_published = !summary.published.is_empty() || !summary.experiment.reading.is_empty();
    let published = has_published.then_some(("#published", "Published figures"));
    let sampled: &[(&str, &str)] =
        if summary.profiles.is_empty() { &[] } else { &[("#profile", "Where it goes")] };
    let cards = summary.has_cards().then_some(("#cards", "Interrupts"));
    let late = (!summary.late.is_empty()).then_some(("#late", "Late answers"));
    let course = summary.timeline.is_some().then_some(("#timeline", "Course"));
    let parts = [
        ("#topology", "Topology"),
        ("#paths", "Each data path"),
        ("#machine", "Machine and settings"),
        ("#method", "Method"),
        ("#again", "Run it again"),
    ];
    m.within("nav", &[("aria-label", "Parts of this page")], |m| {
        let absent: &[&str] = match carried::measure(summary) {
            Measure::Latency => &[],
            Measure::Bandwidth | Measure::Packets => &["#curves", "#capacity"],
            Measure::Frames => &["#curves", "#capacity", "#cpu"],
        };
        let all = published
            .iter()
            .chain(&swept)
            .chain(figures)
            .chain(&cards)
            .chain(&late)
            .chain(sampled)
            .chain(&course)
            .chain(&parts);
        for (place, name) in all.filter(|(place, _)| !absent.contains(place)) {
            m.leaf("a", &[("href", place)], name);
            m.text(" ");
        }
    });
}
