//! How to run the race again: the experiment as the TOML file that would ask for the same.

use record::{Experiment, Header};

use super::marks::{self, Venue};
use super::markup::Markup;
use crate::Summary;

/// Writes the section on how to run it again.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
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

/// The experiment as a file that asks for the same race.
fn toml(experiment: &Experiment, seed: u64) -> String {
    Experiment { seed: Some(seed), ..experiment.clone() }.to_toml()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use record::{
        Arrivals, Candidate, Clock, Delay, Flood, HttpVersion, Machines, Measure, PacketFilter, Placement,
        Plant, Proxies, ProxyKind, RequestedRate, RequestedValue, ServerKind, Share, Side, Stack, StackKind,
        StackWait, Steering, Sweep, SweepValue, Tuning, Ways, Wire, Workload, WorkloadKind,
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
        let keys = (any::<[bool; 5]>(), prop::option::of(any::<bool>()), prop::option::of(1_u32..1000));
        let numbers = (1_u32..32, prop::option::of(1_u32..9), prop::option::of(1_u32..100));
        (prop::sample::select(&WorkloadKind::ALL[..]), keys, numbers).prop_map(|(kind, keys, numbers)| {
            let ([tls, files, ipv6, old, random], session_reuse, cpu_us) = keys;
            let (connections, connections_min, objects) = numbers;
            let is = |kinds: &[WorkloadKind]| kinds.contains(&kind);
            use WorkloadKind::{Connect, Download, Http};
            let (tls, files) = (tls && is(&[Http, Connect, Download]), files && is(&[Http, Connect]));
            let of_kind = Workload::of(kind);
            Workload {
                connections,
                arrivals: match random && kind.measure() == Measure::Latency {
                    true => Arrivals::Poisson,
                    false => Arrivals::Constant,
                },
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
        let stack = prop::sample::select(&[StackKind::Kernel, StackKind::Afxdp, StackKind::VhostUser][..])
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
