//! The details of each data path: its construction, its figures and its failures.

use super::marks;
use super::markup::Markup;
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Candidate, Need, RateSummary, Stalls, Summary, VoidReason, figures, past};

/// What is said of a data path whose requests were timed.
const TIMED: &str = "The commands that build it, the three times of its requests, and the counters of the network \
    stacks. Response is received − intended. Service is received − sent; closed-loop tools report it, and it hides the \
    wait before a request was sent. Lag is that wait, sent − intended, for the generator or for a free connection.";
/// The same where instructions were counted.
const COUNTED: &str = "The commands that build it, and the counters of the network stacks.";

/// Writes the section on details.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "paths")], |m| {
        m.leaf("h2", &[], "Each data path");
        m.leaf("p", &[("class", "lead")], if summary.exact.is_empty() { TIMED } else { COUNTED });
        for (index, candidate) in summary.candidates.iter().enumerate() {
            m.within("details", &[("class", "path"), ("data-c", &index.to_string())], |m| {
                m.within("summary", &[], |m| heading(m, candidate));
                body(m, summary, candidate);
            });
        }
    });
}

/// Name, meaning and the verdicts in the order of the loads.
fn heading(m: &mut Markup, candidate: &Candidate) {
    m.leaf("b", &[], &candidate.name);
    m.text(" ");
    m.leaf("span", &[("class", "aside")], &marks::stands_for(candidate));
    if !candidate.runnable {
        m.text(" ");
        m.leaf("span", &[("class", "v-none")], "could not run here");
    }
    if candidate.broke.is_some() {
        m.text(" ");
        m.leaf("span", &[("class", "v-none")], "broke during the race");
    }
    let void: u64 = candidate.rates.iter().map(|rate| rate.void_trials).sum();
    if void > 0 {
        m.text(" ");
        m.leaf("span", &[("class", "aside")], &format!("{} void trials", text::grouped(void)));
    }
}

fn body(m: &mut Markup, summary: &Summary, candidate: &Candidate) {
    if !candidate.runnable {
        m.leaf("p", &[], "It could not run here:");
        list(m, &candidate.reasons);
    } else if let Some(mtu) = candidate.mtu {
        m.leaf("p", &[], &format!("MTU: {} bytes.", text::grouped(u64::from(mtu))));
    }
    if let Some(broke) = &candidate.broke {
        let text = format!(
            "It broke in round {}, and the race continued without it. Its figures are from the rounds before, and are not \
            compared.",
            broke.round
        );
        m.leaf("p", &[], &text);
        list(m, std::slice::from_ref(&broke.why));
    }
    if !candidate.settings.is_empty() {
        m.leaf("h4", &[], "Settings");
        let setting = |one: &record::Setting| format!("{} = {}, {}", one.knob, one.value, one.side);
        list(m, &candidate.settings.iter().map(setting).collect::<Vec<_>>());
    }
    if let Some(wire) = own_wire(summary, candidate) {
        m.leaf("p", &[], &format!("A wire of its own: {wire}."));
    }
    if let Some(own) = asked(summary, candidate).and_then(|asked| asked.connections) {
        m.leaf("p", &[], &format!("Connections of its own: {}.", text::grouped(own.into())));
    }
    if candidate.runnable && !candidate.rates.is_empty() {
        // Where instructions were counted, verdicts are theirs and stand beside them, and times mean nothing.
        if summary.exact.is_empty() {
            verdicts(m, summary, candidate);
            times(m, summary, candidate);
        }
        counters(m, summary, candidate);
        trouble(m, summary, candidate);
    }
    if candidate.commands.is_empty() {
        m.leaf("p", &[("class", "aside")], "The record has no commands for it.");
    } else {
        m.leaf("h4", &[], "Commands that build the same");
        m.leaf("pre", &[("tabindex", "0")], &candidate.commands.join("\n"));
    }
}

/// A candidate as the experiment has it; `None` for the reference and its control.
fn asked<'s>(summary: &'s Summary, candidate: &Candidate) -> Option<&'s record::Candidate> {
    summary.experiment.candidates.iter().find(|one| one.title() == candidate.name)
}

/// What of the wire is otherwise for a candidate.
fn own_wire(summary: &Summary, candidate: &Candidate) -> Option<String> {
    let asked = asked(summary, candidate)?;
    let way = |(name, way)| match name {
        "to_server" => format!("to the server {way}"),
        _ => format!("to the client {way}"),
    };
    let ways: Vec<String> = asked.underlay.named().map(way).collect();
    (!ways.is_empty()).then(|| ways.join("; "))
}

fn list(m: &mut Markup, items: &[String]) {
    m.within("ul", &[], |m| items.iter().for_each(|item| m.leaf("li", &[], item)));
}

/// The candidate's rates with the names of their loads.
fn loads<'a>(
    summary: &'a Summary,
    candidate: &'a Candidate,
) -> impl Iterator<Item = (String, &'a RateSummary)> {
    summary.loads.iter().map(text::load_short).zip(&candidate.rates)
}

fn verdicts(m: &mut Markup, summary: &Summary, candidate: &Candidate) {
    m.within("ul", &[("class", "verdicts")], |m| {
        for (name, rate) in loads(summary, candidate) {
            m.within("li", &[], |m| {
                m.text(&format!("{name}: "));
                m.leaf("b", &[("class", marks::verdict_class(rate.verdict))], rate.verdict_word());
                if !rate.verdict_reason.is_empty() {
                    m.text(&format!(" – {}", rate.verdict_reason));
                }
                // A verdict of "past capacity" says the same in its reason.
                if let Some(short) = rate.shortfall.filter(|short| !short.queued) {
                    m.leaf("p", &[("class", "note")], &format!("Rate: {}", past::shortfall_text(&short)));
                }
                if let Some(tail) = &rate.tail {
                    m.leaf("p", &[("class", "note")], &format!("Tail: {tail}"));
                }
            });
        }
    });
}

/// Response, service and lag side by side.
fn times(m: &mut Markup, summary: &Summary, candidate: &Candidate) {
    let mut head = vec!["load and time".to_owned()];
    head.extend(text::quantile_columns(&crate::Quantiles::default()).map(|(name, _)| name.to_owned()));
    let rows = loads(summary, candidate).flat_map(|(load, rate)| {
        let with_stalls = rate.stalls.as_ref().map(|stalls| ("response, with stalls", stalls.response_ns));
        let times = [("response", rate.response_ns), ("service", rate.service_ns), ("lag", rate.lag_ns)];
        times.into_iter().take(1).chain(with_stalls).chain(times.into_iter().skip(1)).map(
            move |(time, quantiles)| {
                let figures =
                    text::quantile_columns(&quantiles).map(|(_, ns)| Cell::figure(text::micros_or_none(ns)));
                Row { name: format!("{load}: {time}"), candidate: None, cells: figures.into() }
            },
        )
    });
    let caption = format!("{}: the three times in µs", candidate.name);
    Table { caption: &caption, head, rows: rows.collect() }.write(m);
}

/// What was counted at a load, in the order of the table.
fn counted(rate: &RateSummary) -> [(&'static str, String); 20] {
    let counters = &rate.counters;
    let stalls = |figure: fn(&Stalls) -> String| rate.stalls.as_ref().map_or("–".to_owned(), figure);
    [
        ("trials that count", text::grouped(rate.trials)),
        ("void trials", text::grouped(rate.void_trials)),
        ("slices missing, void each time", text::grouped(rate.missing_slices)),
        ("time measured", text::duration(rate.measured_s)),
        ("of this left out for stalls", stalls(|stalls| figures::percent(stalls.left_out_share))),
        ("stalls of the nodes' CPUs", stalls(|stalls| text::grouped(stalls.stalls))),
        ("the longest stall, at most", stalls(|stalls| figures::duration_ns(stalls.longest_ns))),
        ("retransmits", text::grouped(counters.retransmits)),
        ("of these, unnecessary", text::grouped(counters.needless_retransmits)),
        ("segments out of order", text::grouped(counters.out_of_order)),
        ("RTO expiries", text::grouped(counters.rto_expiries)),
        ("softnet drops", text::grouped(counters.softnet_drops)),
        ("UDP receive errors", text::grouped(counters.udp_errors)),
        ("drops and errors of the wires", text::grouped(counters.wire_drops)),
        ("requests without an expected answer", text::grouped(rate.missed)),
        ("broken connections", text::grouped(rate.connection_errors)),
        ("unexpected answers", text::grouped(rate.unexpected)),
        ("context switches of the generator", text::grouped(counters.client_switches)),
        ("of these involuntary", text::grouped(counters.client_involuntary_switches)),
        ("generator waited for a CPU", text::duration(counters.client_runqueue_ns as f64 / 1e9)),
    ]
}

/// A column a load: there are more counters than loads.
fn counters(m: &mut Markup, summary: &Summary, candidate: &Candidate) {
    let mut head = vec!["counter".to_owned()];
    head.extend(loads(summary, candidate).map(|(name, _)| name));
    let mut columns: Vec<_> = candidate.rates.iter().map(|rate| counted(rate).into_iter()).collect();
    let names = candidate.rates.first().map(|rate| counted(rate).map(|(name, _)| name));
    let rows = names.into_iter().flatten().map(|name| Row {
        name: name.to_owned(),
        candidate: None,
        cells: columns.iter_mut().filter_map(Iterator::next).map(|(_, count)| Cell::figure(count)).collect(),
    });
    let caption = format!("{}: counters over the trials that count", candidate.name);
    Table { caption: &caption, head, rows: rows.collect() }.write(m);
}

/// Void trials with their reasons, and percentiles that are not shown with what they would need.
fn trouble(m: &mut Markup, summary: &Summary, candidate: &Candidate) {
    let void: Vec<String> = loads(summary, candidate)
        .flat_map(|(load, rate)| rate.void_reasons.iter().map(move |reason| void_text(&load, reason)))
        .collect();
    if !void.is_empty() {
        m.leaf("h4", &[], "Void trials");
        list(m, &void);
    }
    let needs: Vec<String> = loads(summary, candidate)
        .flat_map(|(load, rate)| rate.needs.iter().map(move |need| need_text(&load, need)))
        .collect();
    if !needs.is_empty() {
        m.leaf("h4", &[], "Percentiles that are not shown");
        list(m, &needs);
    }
}

fn void_text(load: &str, reason: &VoidReason) -> String {
    format!("{load}: {} × {}", text::grouped(reason.trials), reason.reason)
}

fn need_text(load: &str, need: &Need) -> String {
    let time = need.measured_s.map(|seconds| format!(", {} measured", text::duration(seconds)));
    let rounds = need.rounds.map(|rounds| format!(", {} rounds of this race", text::grouped(rounds)));
    let samples = text::grouped(need.samples);
    format!(
        "{load}: {} needs {samples} samples{}{}",
        need.percentile,
        time.unwrap_or_default(),
        rounds.unwrap_or_default()
    )
}
