//! How the race measured.

use super::marks::{self, Venue};
use super::markup::Markup;
use super::text;
use crate::until_sentences::interval_levels;
use crate::void::{Ruled, VoidKind};
use crate::{Role, Summary, carried, figures};
use record::{Arrivals, Experiment, Header, Measure, Witness, WorkloadKind};

/// Writes the section on the method.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "method")], |m| {
        m.leaf("h2", &[], "Method");
        m.within("ol", &[], |m| method(summary).iter().for_each(|line| m.leaf("li", &[], line)));
    });
}

fn method(summary: &Summary) -> Vec<String> {
    let mut lines = sending(summary);
    lines.push(format!(
        "A trial is {} ms of one data path at one load, after {} ms of warm-up; a round visits every data path once at \
         every load, in an order shuffled by the seed{}.",
        summary.experiment.slice_ms,
        summary.experiment.warmup_ms,
        hosts(summary)
    ));
    lines.extend([building(summary), steering(summary)]);
    if summary.exact.is_empty() {
        lines.extend(sampling(summary));
    } else {
        lines.push(counting(summary));
    }
    lines.push(voiding(summary));
    lines
}

/// How instructions are counted and compared: [`Experiment::exact`].
fn counting(summary: &Summary) -> String {
    let reference = marks::reference(summary);
    format!(
        "The clock of the emulated CPU advances by a nanosecond an instruction, and that CPU is never idle: the time of a \
         trial ÷ its {} is the number of instructions of one. A repetition is the median of {} rounds, and the figure \
         the median of the repetitions. A candidate is better or worse if it differs from {reference} by more than its own \
         repetitions and those of {reference} are apart, and by more than {reference} differs from itself. Otherwise it is \
         indistinguishable.",
        if asks(summary) { "answers" } else { "packets" },
        Experiment::EXACT_ROUNDS
    )
}

/// What was left out, and how figures that scatter are compared.
fn sampling(summary: &Summary) -> Vec<String> {
    let reference = marks::reference(summary);
    let mut lines = vec![watching(summary)];
    if asks(summary) {
        let shown = "Percentiles are those of the merged histograms; one is shown if at least ten samples lie beyond it.";
        lines.push(shown.to_owned());
    }
    lines.push(format!(
        "Intervals are {}, from a bootstrap that draws whole {}, the same for all, so that effects on all cancel.{}",
        interval_levels(summary, None),
        if summary.progress.builds < 2 { "rounds" } else { "builds" },
        match summary.until {
            Some(_) => " The race was looked at while it ran, and they are wider for that.",
            None => "",
        }
    ));
    lines.push(format!(
        "A candidate is better or worse if its interval, widened for the number of tests, excludes 1 and the difference \
         exceeds that of {reference} from itself. {} Otherwise it is indistinguishable.",
        testing(summary)
    ));
    let mut rates = summary.candidates.iter().flat_map(|candidate| &candidate.rates);
    if rates.any(|rate| !rate.among_unanswered.is_empty()) {
        lines.push(
            "A percentile that lies among requests without an answer, or may, has no ratio: in its place the shares of requests \
             that have one are compared, and where too little is known of these nothing may contradict them."
                .to_owned(),
        );
    }
    lines
}

/// How often reference and control are visited: more often at a rate, the more are compared with them.
fn hosts(summary: &Summary) -> String {
    let control = summary.candidates.iter().find(|candidate| candidate.role == Role::Control);
    match control.filter(|_| has_rate(summary)) {
        Some(control) => format!(
            "; at a rate {} and {} each as often as the root of the number of contenders, rounded down",
            marks::reference(summary),
            control.name
        ),
        None => String::new(),
    }
}

/// Whether trials are read by response times.
fn asks(summary: &Summary) -> bool {
    carried::measure(summary) == Measure::Latency
}

fn has_rate(summary: &Summary) -> bool {
    summary.loads.iter().any(|load| load.requested_rps.is_some())
}

fn has_no_rate(summary: &Summary) -> bool {
    summary.loads.iter().any(|load| load.requested_rps.is_none())
}

/// What was sent when, and what counts.
fn sending(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    match summary.experiment.workload.kind {
        WorkloadKind::Download => lines.push(
            "Each client fetches one object after the other; the bytes that arrive in the measured part count.",
        ),
        WorkloadKind::TcpStream => lines.push(
            "Each flow sends as many bytes as the path takes; those that the receiver reads in the measured part count.",
        ),
        WorkloadKind::UdpStream => {
            lines.extend(has_rate(summary).then_some("At a rate, datagrams are sent at constant intervals."));
            lines.extend(has_no_rate(summary).then_some("Without a rate, each flow sends datagrams as fast as it can."));
            lines.push("Those that arrive count.");
        }
        WorkloadKind::Packets => lines.push(if summary.exact.is_empty() {
            "The kernel makes frames as fast as they are judged; what counts is the CPU time that a frame takes."
        } else {
            "The kernel makes frames as fast as they are judged; what counts is the instructions that a frame takes."
        }),
        WorkloadKind::Http
        | WorkloadKind::Connect
        | WorkloadKind::Grpc
        | WorkloadKind::TcpRr
        | WorkloadKind::UdpRr
        | WorkloadKind::Verbs => {
            if has_rate(summary) {
                lines.extend([
                    match summary.experiment.workload.arrivals {
                        Arrivals::Constant => "Requests are sent at a constant rate, each at its intended instant, whether or not earlier answers have arrived.",
                        Arrivals::Poisson => "Requests are sent at random instants (a Poisson process), each at its own, whether or not earlier answers have arrived. All candidates of a round get the same instants.",
                    },
                    "Response time is received − intended; it includes the wait to be sent. Service and lag are shown beside it.",
                ]);
            }
            let closed = if summary.exact.is_empty() {
                "In a closed loop each connection sends its next request when it has the answer; what counts is the number of answers."
            } else {
                "One connection sends its next request when it has the answer; what counts is the instructions that this takes."
            };
            lines.extend(has_no_rate(summary).then_some(closed));
        }
    }
    lines.into_iter().map(str::to_owned).collect()
}

fn building(summary: &Summary) -> String {
    let builds = text::grouped(u64::from(summary.progress.builds));
    match marks::venue(summary) {
        Venue::TwoMachines => {
            "Each data path was built on both machines for each of its visits and taken down after it, because what one of \
             them does to a machine would cost the others. In a visit the closed loop comes after the rates."
                .to_owned()
        }
        Venue::Cluster => format!(
            "All pods stand at the same time, so that drift of the nodes affects all alike. Connections were opened {builds} \
             times in the race, because each time settles at a value of its own. CPU time is that of all CPUs of both nodes."
        ),
        Venue::OneMachine => format!(
            "All data paths exist at the same time in namespaces of their own, so that drift of the machine affects all \
             alike. Every topology was built {builds} times in the race, because each build settles at a value of its own."
        ),
    }
}

fn steering(summary: &Summary) -> String {
    match summary.machine.facts.get("receive steering") {
        Some(steering) => format!("Receive steering, the same for all data paths: {steering}."),
        None if marks::venue(summary) != Venue::OneMachine => {
            "Each machine worked on what it received as it is set up, the same for all data paths.".to_owned()
        }
        None => "Receive steering is the same for all data paths.".to_owned(),
    }
}

/// What was left out for stalls of the machine: as the record has it, since an experiment only asks for it.
fn watching(summary: &Summary) -> String {
    let Some(witness) = watched(summary) else {
        return "Nothing watched the machine for stalls: what one of them did is in the figures.".to_owned();
    };
    let ms = |ns: u64| format!("{} ms", figures::trimmed(ns as f64 / 1e6, 3));
    let lengths = match witness.after_lengths {
        0 => String::new(),
        times => format!(" and {times} times its length"),
    };
    format!(
        "At a rate a witness watches the nodes' CPUs for stalls. What was due from {} before one until {}{lengths} after it \
         is left out, whatever became of it; the tables show the figures with it too. A CPU that the path keeps busy is no \
         stall.",
        ms(witness.before_ns),
        ms(witness.after_ns)
    )
}

/// The witness, unless it was left off because it cost too much.
fn watched(summary: &Summary) -> Option<&Witness> {
    summary.witness.as_ref().filter(|witness| !witness.left_off)
}

fn testing(summary: &Summary) -> String {
    if !asks(summary) {
        return format!("What is tested is {}.", carried::measure(summary).unit());
    }
    let at_rates = deciding_at_rates(summary);
    match (has_rate(summary), has_no_rate(summary)) {
        (true, true) => format!("{at_rates}; in a closed loop, answers per second."),
        (true, false) => format!("{at_rates}."),
        (false, _) => "What is tested is answers per second.".to_owned(),
    }
}

/// The statistics that decide at a rate, in their order: first the one that the race was to know.
fn deciding_at_rates(summary: &Summary) -> String {
    let throughput = carried::measure(summary).unit();
    let named = summary.until.as_ref().and_then(|of| of.statistic).filter(|of| *of != throughput);
    let (first, why) = named.map_or(("p99", ""), |named| (named, ", which the race was to know,"));
    let usual = [("p99", "p99"), ("typical p99", "that of a typical slice"), ("p50", "p50")];
    let others = usual.into_iter().filter(|(label, _)| *label != first);
    let then: String = others.map(|(_, words)| format!(", then {words}")).collect();
    format!("{first}{why} is tested first{then}")
}

fn voiding(summary: &Summary) -> String {
    let rules = VoidKind::rules(Ruled {
        measure: carried::measure(summary),
        at_rates: has_rate(summary),
        without_rate: has_no_rate(summary),
        watched: watched(summary).is_some(),
        flood: summary.experiment.flood.is_some(),
        several_clients: summary.machine.facts.contains_key(Header::CLIENTS),
    });
    let (last, others) = rules.split_last().expect("the machine may change in any race");
    format!(
        "A trial is void if {} or {last}. Void trials are counted and shown, and are in no figure.",
        others.join(", ")
    )
}
