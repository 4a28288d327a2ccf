//! Rules for all rows of the table.

use std::collections::BTreeSet;

use doctor::{Severity, TABLE, Window, all, diagnose, find};
use linux::NetnsName;

use crate::faults;
use crate::scene::Scene;

#[test]
fn codes_are_unique_and_in_order() {
    let codes: Vec<&str> = all().map(|check| check.code).collect();
    assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len());
    assert!(codes.iter().all(|code| code.len() == 5 && code.starts_with("HG")));
    for family in TABLE {
        assert!(family.checks.windows(2).all(|pair| pair[0].code < pair[1].code), "{}", family.title);
    }
    assert!(codes.len() >= 45, "{} checks", codes.len());
    assert_eq!(find("hg060").unwrap().code, "HG060");
}

#[test]
fn rows_are_complete() {
    for check in all() {
        for (what, text) in [
            ("title", check.title),
            ("why", check.why),
            ("remedy", check.remedy),
            ("verify", check.verify),
            ("source", check.source),
        ] {
            assert!(!text.is_empty(), "{}: {what}", check.code);
            assert!(!text.contains("  "), "{}: {what} has two blanks", check.code);
        }
        assert!(check.why.ends_with(['.', '"']), "{}: why is sentences", check.code);
        assert!(!check.title.ends_with('.') && !check.verify.ends_with('.'), "{}", check.code);
        for knob in check.knobs {
            assert!(tune::find(knob).is_some(), "{}: there is no knob {knob}", check.code);
        }
        for code in check.follows {
            assert!(find(code).is_some() && *code != check.code, "{} follows {code}", check.code);
        }
    }
}

#[test]
fn a_healthy_machine_has_no_finding() {
    let diagnosis = Scene::healthy().diagnose();
    let found: Vec<_> =
        diagnosis.findings.iter().map(|finding| (finding.check.code, &finding.seen)).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(diagnosis.unseen.is_empty(), "{:?}", diagnosis.unseen);
}

#[test]
fn every_check_has_a_planted_fault() {
    let planted: BTreeSet<&str> = faults::all().map(|fault| fault.code).collect();
    let missing: Vec<&str> = all().map(|check| check.code).filter(|code| !planted.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_planted_fault_is_named_first() {
    for fault in faults::all() {
        let mut scene = Scene::healthy();
        (fault.plant)(&mut scene);
        let diagnosis = scene.diagnose();
        let order: Vec<_> =
            diagnosis.findings.iter().map(|finding| (finding.check.code, finding.seen.severity)).collect();
        let ours = diagnosis.findings.iter().find(|finding| finding.check.code == fault.code);
        let ours = ours.unwrap_or_else(|| panic!("{} ({}) is not found: {order:?}", fault.code, fault.name));
        assert_eq!(ours.seen.severity, fault.severity, "{} ({}): {:#?}", fault.code, fault.name, ours.seen);
        assert!(
            !ours.seen.evidence.is_empty() && !ours.remedy().is_empty(),
            "{} ({})",
            fault.code,
            fault.name
        );
        if fault.severity == Severity::Warning {
            assert_eq!(order[0].0, fault.code, "{}: {order:?}", fault.name);
        } else {
            // A result that needs no action must not cause a warning.
            assert!(
                order.iter().all(|(_, severity)| *severity == Severity::Information),
                "{}: {order:?}",
                fault.name
            );
        }
    }
}

#[test]
fn what_is_no_fault_is_not_found() {
    for (code, name, plant) in faults::harmless() {
        let mut scene = Scene::healthy();
        plant(&mut scene);
        let diagnosis = scene.diagnose();
        let found = diagnosis.findings.iter().find(|finding| finding.check.code == *code);
        assert!(found.is_none(), "{code} ({name}): {:#?}", found.map(|finding| &finding.seen));
    }
}

#[test]
fn proposals_are_settings_that_knobs_take() {
    for fault in faults::all() {
        let mut scene = Scene::healthy();
        (fault.plant)(&mut scene);
        let findings = scene.diagnose().findings;
        for proposal in findings.iter().flat_map(|finding| &finding.seen.proposals) {
            assert!(proposal.setting().is_some(), "{}: {proposal:?}", fault.name);
        }
    }
}

/// Where a limit is beyond what a knob takes, or beyond what is advised, nothing is proposed.
#[test]
fn no_limit_that_is_too_small_is_made_smaller() {
    let proposed = |code: &str, change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::healthy();
        change(&mut scene);
        let findings = scene.diagnose().findings;
        let finding = findings.into_iter().find(|finding| finding.check.code == code).unwrap();
        finding.seen.proposals.into_iter().next().map(|proposal| proposal.value)
    };
    let overflows = |somaxconn: u32| {
        proposed("HG060", &|scene| {
            scene.sysctl("net/core/somaxconn", &somaxconn.to_string());
            scene.listen(somaxconn, somaxconn);
            scene.count("TcpExtListenOverflows", 60);
        })
    };
    assert_eq!(
        [128, 32_768, 65_535, 100_000].map(overflows),
        [Some("1024".to_owned()), Some("65535".to_owned()), None, None]
    );
    let ends = |most: u32| {
        proposed("HG065", &|scene| {
            scene.sysctl("net/ipv4/tcp_max_tw_buckets", &most.to_string());
            scene.count("TcpExtTCPTimeWaitOverflow", 400);
        })
    };
    assert_eq!([262_144, 4_000_000].map(ends), [Some("524288".to_owned()), None]);
    // The kernel's own default is lower where memory is short.
    let own = proposed("HG110", &|scene| {
        scene.file("proc/meminfo", "MemTotal: 1000000 kB\n");
        scene.sysctl("net/ipv4/tcp_rmem", "4096 131072 2097152");
    });
    assert_eq!(own.as_deref(), Some("4096 131072 8000000"));
}

/// A macvlan receives more, but has its packets from a link at which RPS has been asked for already.
#[test]
fn a_link_at_which_rps_is_asked_for_is_named() {
    let mut scene = Scene::healthy();
    let name = "a veth without RPS below the packets of a macvlan, and a full CPU";
    let veth = faults::all().find(|fault| fault.name == name).unwrap();
    (veth.plant)(&mut scene);
    let findings = scene.diagnose().findings;
    let finding = findings.iter().find(|finding| finding.check.code == "HG020").unwrap();
    assert_eq!(finding.device.as_deref(), Some("veth0"));
}

/// Of the two signs of HyStart the one is kept that did not end slow start.
#[test]
fn hystart_keeps_the_sign_that_did_not_mislead_it() {
    let remedy = |counter: &str| {
        let mut scene = Scene::healthy();
        let early = faults::all().find(|fault| fault.code == "HG088").unwrap();
        (early.plant)(&mut scene);
        scene.count(counter, 3);
        let findings = scene.diagnose().findings;
        findings.iter().find(|finding| finding.check.code == "HG088").unwrap().remedy()
    };
    let (delay, train) = (remedy("TcpExtTCPHystartDelayDetect"), remedy("TcpExtTCPHystartTrainDetect"));
    assert!(delay.contains("hystart_detect=1") && train.contains("hystart_detect=2"), "{delay}; {train}");
}

/// A window is halved once for each RTO that a pause lasts beyond the first.
#[test]
fn a_short_pause_halves_a_window_once() {
    let begins = |pause_ms: u32, window: u32| {
        let mut scene = Scene::healthy();
        let bursts = faults::all().find(|fault| fault.code == "HG087").unwrap();
        (bursts.plant)(&mut scene);
        for tcp in scene.tcp() {
            (tcp.last_data_sent_ms, tcp.snd_cwnd, tcp.rto) = (pause_ms, window, 280_000);
        }
        let findings = scene.diagnose().findings;
        let finding = findings.into_iter().find(|finding| finding.check.code == "HG087").unwrap();
        finding.seen.evidence[1].saw.clone()
    };
    assert_eq!(begins(300, 80), "the window of 80 segments, over 80 ms, begins at 40 again");
    assert_eq!(begins(900, 120), "the window of 120 segments, over 80 ms, begins at 15 again");
    assert_eq!(begins(90_000, 80), "the window of 80 segments, over 80 ms, begins at 10 again");
}

/// Files are applied in the machine's first namespace, and those of a container begin with the kernel's defaults.
#[test]
fn a_named_namespace_is_not_compared_with_files() {
    let keys = |netns: Option<&str>| -> Vec<String> {
        let mut scene = Scene::healthy();
        let text = "net.core.somaxconn = 65535\nnet.core.rmem_max = 9000000\n";
        scene.file("etc/sysctl.d/50-a.conf", text);
        let (before, mut after) = scene.snapshots();
        after.netns = netns.map(|name| NetnsName::new(name).unwrap());
        let findings = diagnose(&Window { before: &before, after: &after }).findings;
        let drifts = findings.into_iter().filter(|finding| finding.check.code == "HG122");
        drifts.map(|finding| finding.seen.subject).collect()
    };
    assert_eq!(keys(None).len(), 2);
    assert_eq!(keys(Some("pod")), ["net.core.rmem_max"]);
}

/// Interrupts are not proposed for CPUs that were set apart, even if these are all that are near the card.
#[test]
fn isolated_cpus_are_left_alone() {
    let mut scene = Scene::healthy();
    let on_one = faults::all().find(|fault| fault.code == "HG010").unwrap();
    (on_one.plant)(&mut scene);
    scene.card("device/local_cpulist", "2-3\n");
    scene.file("sys/devices/system/cpu/nohz_full", "2-3\n");
    let findings = scene.diagnose().findings;
    let proposals = findings.iter().flat_map(|finding| &finding.seen.proposals);
    let cpus: Vec<_> = proposals.filter(|one| one.knob == "irq_affinity").map(|one| &one.value).collect();
    assert!(!cpus.is_empty() && cpus.iter().all(|cpus| *cpus == "0-1"), "{findings:#?}");
}

/// Other waits are refused by the driver, which takes everything else back.
#[test]
fn a_shorter_wait_is_one_that_the_driver_takes() {
    let proposed = |driver: &str| {
        let mut scene = Scene::healthy();
        let waits = faults::all().find(|fault| fault.code == "HG153").unwrap();
        (waits.plant)(&mut scene);
        scene.card("device/uevent", &format!("DRIVER={driver}\n"));
        for tcp in scene.tcp() {
            tcp.min_rtt = 100;
        }
        let findings = scene.diagnose().findings;
        let finding = findings.into_iter().find(|finding| finding.check.code == "HG153").unwrap();
        finding.seen.proposals[0].value.clone()
    };
    assert_eq!(["ixgbe", "igb"].map(proposed), ["5", "10"]);
}

/// The destination that does not answer must come first.
#[test]
fn a_destination_that_does_not_answer_is_named() {
    let mut scene = Scene::healthy();
    scene.count("TcpExtTCPSynRetrans", 60);
    for (at, retransmits) in [(0, 0), (1, 3), (2, 3), (3, 1)] {
        scene.connect(|socket| {
            socket.state = 2;
            socket.peer.set_port(if at == 3 { 80 } else { 5432 });
            socket.tcp.as_mut().unwrap().retransmits = retransmits;
        });
    }
    let findings = scene.diagnose().findings;
    let finding = findings.iter().find(|finding| finding.check.code == "HG063").unwrap();
    assert_eq!(
        finding.seen.evidence[1].saw,
        "3 from here wait for an answer now, 2 of them for 10.0.0.9:5432"
    );
}

/// A counter of 32 bits that wrapped around has grown. Without that rule, one drop would be all that was
/// handled.
#[test]
fn a_backlog_is_judged_by_what_it_handled() {
    let mut scene = Scene::healthy();
    for cpu in 0..4 {
        scene.before.softnet[cpu][0] = u64::from(u32::MAX) - 50_000;
        scene.after.softnet[cpu][0] = 49_999;
    }
    scene.after.softnet[1][1] += 400;
    let findings = scene.diagnose().findings;
    let finding = findings.iter().find(|finding| finding.check.code == "HG002").unwrap();
    assert!(finding.seen.evidence[0].saw.starts_with("400 packets dropped, 0.10 % "), "{:?}", finding.seen);
}

/// The few CPUs of the card's node would have to share all its queues.
#[test]
fn more_queues_than_cpus_are_not_moved_to_their_node() {
    let proposals = |cpus: &str| {
        let mut scene = Scene::healthy();
        scene.card("device/local_cpulist", cpus);
        scene.after.interrupts = [[0, 0, 0, 80_000], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]];
        let findings = scene.diagnose().findings;
        findings
            .into_iter()
            .find(|finding| finding.check.code == "HG011")
            .map(|finding| finding.seen.proposals.len())
    };
    assert_eq!((proposals("0-1\n"), proposals("0-2,4\n"), proposals("0-3\n")), (Some(0), Some(1), None));
}

/// In half a second with little traffic, a packet or two are a large share by chance.
#[test]
fn a_packet_without_a_route_is_no_warning() {
    let severity = |lost: u64| {
        let mut scene = Scene::healthy();
        for name in ["IpInReceives", "IpOutRequests"] {
            scene.after.counters.insert(name.to_owned(), 40);
        }
        scene.count("IpOutNoRoutes", lost);
        let (before, mut after) = scene.snapshots();
        after.at_ns = before.at_ns + 500_000_000;
        let findings = diagnose(&Window { before: &before, after: &after }).findings;
        findings.iter().find(|finding| finding.check.code == "HG055").unwrap().seen.severity
    };
    assert_eq!([1, 60].map(severity), [Severity::Information, Severity::Warning]);
}

/// Ports of services are proposed only if no others are left, and then with their names.
#[test]
fn ports_of_services_are_not_given_away() {
    let proposed = |range: &str, first: u16| {
        let mut scene = Scene::healthy();
        scene.sysctl("net/ipv4/ip_local_port_range", range);
        for port in [80, 27_017, 61_616] {
            scene.listen(0, 128);
            for look in [&mut scene.before, &mut scene.after] {
                look.answers.sockets.as_mut().unwrap().last_mut().unwrap().local.set_port(port);
            }
        }
        (0..90).for_each(|at| {
            scene.connect(|socket| {
                socket.local.set_port(first + at);
                socket.tcp = None;
            });
        });
        let findings = scene.diagnose().findings;
        let finding = findings.iter().find(|finding| finding.check.code == "HG064").unwrap();
        (finding.seen.proposals[0].value.clone(), finding.remedy())
    };
    let (range, remedy) = proposed("40001 40100", 40_001);
    assert_eq!(range, "40001 65535");
    assert!(remedy.contains("ip_local_reserved_ports") && remedy.contains("here listen 61616"), "{remedy}");
    let (range, remedy) = proposed("65436 65535", 65_436);
    assert_eq!(range, "10240 65535");
    assert!(remedy.contains("ip_local_reserved_ports") && remedy.contains("here listen 27017"), "{remedy}");
}

/// Packets that a card loses on receive are retransmitted by the peer. This host's retransmissions were lost
/// elsewhere.
#[test]
fn losses_on_receiving_are_not_why_this_host_sends_again() {
    let causes = |plant: fn(&mut Scene)| {
        let mut scene = Scene::healthy();
        plant(&mut scene);
        scene.count("TcpRetransSegs", 4000);
        let findings = scene.diagnose().findings;
        findings.into_iter().find(|finding| finding.check.code == "HG070").unwrap().because_of
    };
    assert!(causes(|scene| scene.link("rx_missed_errors", 5000)).is_empty());
    assert!(causes(|scene| scene.link("rx_crc_errors", 5000)).is_empty());
    assert_eq!(causes(|scene| scene.link("tx_dropped", 5000)), ["HG048"]);
}

/// Lost races in a table with room do not call for a larger table.
#[test]
fn lost_races_are_no_full_table() {
    let proposed = |growth: [u64; 3], count: &str| {
        let mut scene = Scene::healthy();
        scene.sysctl("net/netfilter/nf_conntrack_count", count);
        faults::conntrack(&mut scene, growth);
        let findings = scene.diagnose().findings;
        let finding = findings.iter().find(|finding| finding.check.code == "HG051").unwrap();
        finding.seen.proposals.iter().any(|proposal| proposal.knob == "nf_conntrack_max")
    };
    assert!(!proposed([90, 90, 0], "250000"));
    assert!(!proposed([0, 90, 0], "1200"));
    assert!(proposed([0, 90, 0], "250000"));
    assert!(proposed([90, 190, 100], "1200"));
}

/// The group of a socket is unknown, so a quota that another container used up does not explain a slow
/// reader.
#[test]
fn a_throttled_group_is_not_the_cause_of_all_that_reads_slowly() {
    let mut scene = Scene::healthy();
    let throttled = faults::all().find(|fault| fault.code == "HG130").unwrap();
    (throttled.plant)(&mut scene);
    scene.count("UdpRcvbufErrors", 4000);
    let findings = scene.diagnose().findings;
    for code in ["HG092", "HG105"] {
        let finding = findings.iter().find(|finding| finding.check.code == code).unwrap();
        assert!(finding.is_warning() && finding.because_of.is_empty(), "{finding:?}");
    }
}

#[test]
fn a_consequence_stands_behind_its_cause_and_names_it() {
    let mut scene = Scene::healthy();
    scene.count("TcpExtListenOverflows", 400);
    scene.count("TcpExtListenDrops", 400);
    scene.count("TcpExtTCPSynRetrans", 900);
    let findings = scene.diagnose().findings;
    let codes: Vec<&str> = findings.iter().map(|finding| finding.check.code).collect();
    assert_eq!(codes[..2], ["HG060", "HG063"]);
    assert_eq!(findings[1].because_of, ["HG060"]);
}
