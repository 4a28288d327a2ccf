//! On a machine set up by one of hostgap's own profiles, doctor has no findings.

use linux::IfName;
use linux::ethtool::{NicFeature, NicParameter};
use plan::{Place, Queue, Set, SetNic, SetQueueCpus, SetQueueFlows, SetRootQdisc, SetSysctl, Step};
use tune::{Nic, PROFILES, Profile, Site};

use crate::scene::Scene;

/// The scene's machine, with its first `queues` queues.
fn site(queues: u16) -> Site {
    Site {
        process: Place::Host,
        routes: vec![("0.0.0.0/0".parse().unwrap(), IfName::new("eth0").unwrap())],
        node: Place::Host,
        wire: IfName::new("eth0").unwrap(),
        cpus: "0-3".parse().unwrap(),
        nic: Nic { rx: queues, tx: queues, interrupts: Vec::new() },
    }
}

/// Makes the step's change in the texts. Returns false if no text shows it.
fn set(scene: &mut Scene, step: &Step) -> bool {
    let Step::Set(setting) = step else { panic!("{step:?} is planted nowhere") };
    match setting {
        Set::Sysctl(SetSysctl { key, value }) => scene.sysctl(key.as_str(), value),
        Set::QueueFlows(SetQueueFlows { rx, flows, .. }) => {
            scene.card(&format!("queues/rx-{rx}/rps_flow_cnt"), &format!("{flows}\n"));
        }
        Set::QueueCpus(SetQueueCpus { queue, cpus, .. }) => {
            let file = match queue {
                Queue::Rx(rx) => format!("queues/rx-{rx}/rps_cpus"),
                Queue::Tx(tx) => format!("queues/tx-{tx}/xps_cpus"),
            };
            scene.card(&file, &format!("{}\n", cpus.to_mask()));
        }
        Set::RootQdisc(SetRootQdisc { qdisc, .. }) => {
            let kind = qdisc.to_string().split(' ').next().unwrap().to_owned();
            scene.qdiscs().into_iter().for_each(|root| root.kind.clone_from(&kind));
        }
        Set::Nic(SetNic { parameter, value, .. }) => {
            let on = *value == 1;
            scene.nics().into_iter().for_each(|nic| {
                let coalescing = nic.coalescing.as_mut().unwrap();
                match parameter {
                    NicParameter::CoalesceAdaptiveRx => coalescing.adaptive_rx = on,
                    NicParameter::CoalesceRxUsecs => coalescing.rx_usecs = *value,
                    NicParameter::Feature(NicFeature::Gro) => {
                        nic.offloads.insert("gro".to_owned(), on);
                    }
                    NicParameter::Feature(NicFeature::TsoIpv4 | NicFeature::TsoIpv6) => {
                        nic.offloads.insert("tso".to_owned(), on);
                    }
                    other => panic!("{other:?} is planted nowhere"),
                }
            });
        }
        // Doctor reads no text with properties of routes.
        Set::RouteMetric(_) => return false,
        other => panic!("{other:?} is planted nowhere"),
    }
    true
}

/// The current value where a step writes, for profiles that require a minimum.
fn standing(scene: &Scene, step: &Step) -> String {
    let path = match step {
        Step::Set(Set::Sysctl(SetSysctl { key, .. })) => format!("proc/sys/{key}"),
        Step::Set(Set::QueueFlows(SetQueueFlows { rx, .. })) => {
            format!("sys/class/net/eth0/queues/rx-{rx}/rps_flow_cnt")
        }
        _ => return String::new(),
    };
    scene.after.texts.get(&path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn apply(scene: &mut Scene, profile: &Profile, queues: u16) -> usize {
    let site = site(queues);
    let mut changed = 0;
    for wanted in &profile.wanted {
        let steps = wanted.setting.plan(&site).steps;
        let Some(first) = steps.first() else { continue };
        let setting = wanted.against(&standing(scene, &first.step));
        changed += setting.plan(&site).steps.iter().filter(|placed| set(scene, &placed.step)).count();
    }
    changed
}

#[test]
fn no_profile_of_ours_is_a_finding() {
    for release in ["6.1.0-amd64", "6.12.1-amd64", "6.18.1-amd64"] {
        for queues in [1, 4] {
            let mut plain = Scene::healthy();
            plain.kernel(release);
            if queues == 1 {
                plain.single_queue();
            }
            for (name, text) in PROFILES {
                let mut scene = plain.clone();
                let changed = apply(&mut scene, &Profile::read(text).unwrap(), queues);
                assert!(changed >= 3, "{name} changes only {changed} things");
                let known = plain.diagnose();
                let known: Vec<_> = known.findings.iter().map(|finding| finding.check.code).collect();
                for finding in scene.diagnose().findings {
                    let (code, seen) = (finding.check.code, &finding.seen);
                    assert!(known.contains(&code), "{name} on {release}, {queues} queues: {code} {seen:?}");
                }
            }
        }
    }
}

/// The table of flows has room for what the queues follow, and there is a bucket for each tracked connection.
#[test]
fn many_connections_have_room() {
    let (_, text) = PROFILES.iter().find(|(name, _)| *name == "many-connections").unwrap();
    let mut scene = Scene::healthy();
    apply(&mut scene, &Profile::read(text).unwrap(), 4);
    let number = |path: &str| scene.after.texts[path].trim().parse::<u64>().unwrap();
    let flows: u64 =
        (0..4).map(|rx| number(&format!("sys/class/net/eth0/queues/rx-{rx}/rps_flow_cnt"))).sum();
    assert_eq!(flows, number("proc/sys/net/core/rps_sock_flow_entries"));
    assert_eq!(
        number("proc/sys/net/netfilter/nf_conntrack_buckets"),
        number("proc/sys/net/netfilter/nf_conntrack_max")
    );
    // A table that is three quarters full is neither nearly full nor slow.
    scene.sysctl("net/netfilter/nf_conntrack_count", "786432");
    let diagnosis = scene.diagnose();
    assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
}
