//! How the race measured, and how to run it again: the experiment as the TOML file that would ask for the same.

use super::marks::{self, Venue};
use super::markup::Markup;
use super::text;
use crate::until_sentences::interval_levels;
use crate::void::{Ruled, VoidKind};
use crate::{Role, Summary, carried, figures};
use record::{Experiment, Header, Measure, Witness, WorkloadKind};

/// Writes the sections on the method.
pub(super) fn sections(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "method")], |m| {
        m.leaf("h2", &[], "Method");
        m.within("ol", &[], |m| method(summary).iter().for_each(|line| m.leaf("li", &[], line)));
    });
    m.within("section", &[("id", "again")], |m| {
        m.leaf("h2", &[], "Run it again");
        m.leaf(
            "p",
            &[],
            "Save the experiment as experiment.toml and race it; the seed gives the same order of trials.",
        );
        let (race, more) = again(summary);
        m.leaf("pre", &[("tabindex", "0")], race);
        if let Some(more) = more {
            m.leaf("p", &[("class", "aside")], more);
        }
        m.leaf("pre", &[("tabindex", "0")], &toml(&summary.experiment, summary.seed));
        m.leaf("p", &[], "This page again, from the record that the race left beside it, on any machine:");
        m.leaf("pre", &[("tabindex", "0")], "hostgap report race.jsonl");
    });
}

/// The command that races the experiment where it was raced, and what must be known of its options.
fn again(summary: &Summary) -> (&'static str, Option<&'static str>) {
    let several =
        "Several machines had clients: --client names each of them, unless that is where hostgap is called.";
    let one =
        "If the client was not on the machine where hostgap is called, --client ssh://… names its machine.";
    match marks::venue(summary) {
        Venue::OneMachine => ("hostgap race experiment.toml", None),
        Venue::TwoMachines if summary.machine.facts.contains_key(Header::CLIENTS) => {
            ("hostgap race experiment.toml --server ssh://… --client ssh://… --client ssh://…", Some(several))
        }
        Venue::TwoMachines => ("hostgap race experiment.toml --server ssh://…", Some(one)),
        Venue::Cluster if summary.pair.is_some() => {
            let all = "This page is of one pair of nodes; the command races all pairs.";
            ("hostgap race experiment.toml --kube --all-pairs", Some(all))
        }
        Venue::Cluster => ("hostgap race experiment.toml --kube", None),
    }
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
                    "Requests are sent at a constant rate, each at its intended instant, whether or not earlier answers have arrived.",
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

/// The experiment as a file that asks for the same race.
fn toml(experiment: &Experiment, seed: u64) -> String {
    Experiment { seed: Some(seed), ..experiment.clone() }.to_toml()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use record::{
        Candidate, Clock, Delay, Flood, HttpVersion, Machines, PacketFilter, Placement, Plant, Proxies,
        ProxyKind, RequestedRate, RequestedValue, ServerKind, Share, Side, Stack, StackKind, StackWait,
        Steering, Sweep, SweepValue, Tuning, Ways, Wire, Workload, WorkloadKind,
    };

    use super::super::fixture;
    use super::*;

    #[track_caller]
    fn check(asked: &Experiment) {
        let read = Experiment::from_toml(&toml(asked, 7)).expect("what the page shows is an experiment");
        assert_eq!(read, Experiment { seed: Some(7), quick: None, ..asked.clone() });
    }

    #[test]
    fn every_scenario_on_a_page_is_the_scenario() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let files = std::fs::read_dir(folder).expect("the project has scenarios").flatten();
        let files: Vec<_> = files.map(|file| file.path()).filter(|path| path.extension().is_some()).collect();
        for file in &files {
            let text = std::fs::read_to_string(file).expect("a scenario is readable");
            let asked = Experiment::from_toml(&text).expect("a scenario is an experiment");
            check(&asked);
            check(&asked.swept());
        }
        assert!(files.len() > 15, "{files:?}");
    }

    /// Workloads of every kind with keys that the kind may have or not.
    fn workloads() -> impl Strategy<Value = Workload> {
        let keys = (any::<[bool; 4]>(), prop::option::of(any::<bool>()), prop::option::of(1_u32..1000));
        let numbers = (1_u32..32, prop::option::of(1_u32..9), prop::option::of(1_u32..100));
        (prop::sample::select(&WorkloadKind::ALL[..]), keys, numbers).prop_map(|(kind, keys, numbers)| {
            let ([tls, files, ipv6, old], session_reuse, cpu_us) = keys;
            let (connections, connections_min, objects) = numbers;
            let is = |kinds: &[WorkloadKind]| kinds.contains(&kind);
            use WorkloadKind::{Connect, Download, Http};
            let (tls, files) = (tls && is(&[Http, Connect, Download]), files && is(&[Http, Connect]));
            let of_kind = Workload::of(kind);
            Workload {
                connections,
                connections_min: connections_min.filter(|fewest| *fewest <= connections),
                objects: objects.filter(|_| is(&[Download])).or(of_kind.objects),
                http: (old && is(&[Connect, Download])).then_some(HttpVersion::Http10),
                tls,
                session_reuse: session_reuse.filter(|_| tls),
                cpu_us: cpu_us.filter(|_| !files && !kind.is_stream()),
                files,
                server: if files { ServerKind::Nginx } else { ServerKind::Auto },
                ipv6,
                ..of_kind
            }
        })
    }

    fn wires() -> impl Strategy<Value = Wire> {
        let texts = (0_usize..3, 0_usize..3, 0_usize..3, prop::option::of(any::<bool>()));
        texts.prop_map(|(delay, loss, rate, gso)| Wire {
            delay: ["1ms", "2500us", "40ms"][delay].parse().ok(),
            loss: ["0%", "0.2%", "5%"][loss].parse().ok(),
            rate: ["1mbit", "2.5gbit", ""][rate].parse().ok(),
            line_rate: ["", "10gbit", "64kbit"][rate].parse().ok(),
            gso,
            ..Wire::default()
        })
    }

    fn candidates() -> impl Strategy<Value = Candidate> {
        let text = "[ -~äµ\u{7f}\n\"\\\\]{1,12}";
        let value = prop_oneof![
            any::<bool>().prop_map(RequestedValue::Switch),
            any::<i64>().prop_map(RequestedValue::Number),
            text.prop_map(RequestedValue::Text),
        ];
        let knobs = || prop::collection::btree_map(text, value.clone(), 0..3);
        let ways = (prop::option::of(wires()), prop::option::of(wires()));
        let side = prop::sample::select(&[Side::Both, Side::Client, Side::Server][..]);
        let plant = (0..=1_000_000_000_u64, 0..=1_000_000_000_u64)
            .prop_map(|(billionths, ns)| Plant { share: Share { billionths }, delay: Delay { ns } });
        let kinds =
            || prop::option::of(prop::sample::select(&[ProxyKind::HaproxyTcp, ProxyKind::EnvoyTcp][..]));
        let proxy = (kinds(), kinds()).prop_map(|(client, server)| Proxies {
            client,
            server,
            splice: server.is_some(),
        });
        let stack = prop::sample::select(&[StackKind::Kernel, StackKind::Afxdp][..])
            .prop_map(|kind| Stack { kind, wait: StackWait::Spin });
        let of_its_own = (ways, prop::option::of(plant), proxy, stack);
        ("[a-z][a-z\"'# ]{0,6}[a-z\"'#]", (any::<[bool; 2]>(), side), knobs(), knobs(), of_its_own).prop_map(
            |(
                name,
                ([required, plugins], side),
                both,
                server,
                ((to_server, to_client), plant, proxy, stack),
            )| {
                Candidate {
                    path: if plugins { String::new() } else { "bridge+direct".to_owned() },
                    cni: plugins.then(|| format!("{name}.conflist")),
                    name: Some(name),
                    in_container: if plugins { Side::Both } else { side },
                    tune: Tuning { both, server, ..Tuning::default() },
                    underlay: Ways { to_server, to_client },
                    plant,
                    proxy,
                    stack,
                    required,
                    ..Candidate::default()
                }
            },
        )
    }

    prop_compose! {
        fn experiments()(
            workload in workloads(), wire in wires(), candidates in prop::collection::vec(candidates(), 0..4),
            description in "[ -~\n\"\u{7f}<]{0,40}", flags in any::<[bool; 5]>(), rate in 1_u32..100,
            until in 0_usize..6, budget_s in prop::option::of(1_u32..10_000), flood in prop::option::of(1_000_u32..2_000_000),
        ) -> Experiment {
            let [same_node, exact, by_cpu, swept, has_vm] = flags;
            let mut asked = fixture::race().experiment;
            asked.rates = match workload.kind {
                WorkloadKind::Download | WorkloadKind::TcpStream => vec![],
                WorkloadKind::UdpStream => vec![RequestedRate::PerSecond(f64::from(rate) * 1000.0)],
                _ => vec![RequestedRate::OfCapacity(f64::from(rate) / 100.0), RequestedRate::PerSecond(1500.5)],
            };
            (asked.workload, asked.candidates, asked.description, asked.by_cpu) = (workload, candidates, description, by_cpu);
            if same_node {
                asked.placement = Placement::SameNode;
            } else {
                asked.underlay.steering = Steering::Sender;
                (asked.underlay.delay, asked.underlay.to_client) = (wire.delay, Some(wire));
            }
            let kernels = vec!["debian:6.12".to_owned()];
            let clock = if exact { Clock::Real } else { Clock::Counted };
            asked.vm = has_vm.then(|| Machines { kernels, exact, clock, ..Machines::default() });
            let values = [1, 8].map(SweepValue::Number).to_vec();
            asked.until = ["±3%", "p50:0.5%", "p99.9:12.5%", "req/s:1%"].get(until).and_then(|text| text.parse().ok());
            asked.budget_s = budget_s.filter(|_| asked.until.is_some());
            if let Some(packets_per_s) = flood.filter(|_| !same_node && asked.vm.is_none()) {
                asked.flood = Some(Flood { packets_per_s, bytes: 64 });
                let filter = Some(PacketFilter::XdpDrop);
                asked.candidates.push(Candidate { path: "host".to_owned(), filter, ..Candidate::default() });
            }
            asked.sweep = swept.then(|| Sweep { over: "connections".parse().expect("it can be swept over"), values });
            asked
        }
    }

    proptest! {
        // Experiments that cannot be raced are rejected; they are more than half of the generated ones.
        #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::default() })]

        #[test]
        fn the_experiment_on_the_page_is_the_experiment(asked in experiments()) {
            if let Err(error) = asked.validate() {
                return Err(TestCaseError::reject(error.to_string()));
            }
            check(&asked);
        }
    }
}
