//! From a request to settings and steps.

use std::collections::BTreeMap;

use plan::{Place, Plan};
use record::{RequestedValue, Side, Tuning};
use tune::{Lives, Nic, Settings, Site, Value};

fn values(knobs: &[(&str, &str)]) -> BTreeMap<String, RequestedValue> {
    knobs
        .iter()
        .map(|(knob, value)| ((*knob).to_owned(), RequestedValue::Text((*value).to_owned())))
        .collect()
}

fn tuning(both: &[(&str, &str)], client: &[(&str, &str)], server: &[(&str, &str)]) -> Tuning {
    Tuning { both: values(both), client: values(client), server: values(server) }
}

#[track_caller]
fn refused(knob: &str, value: &str, text: &str) {
    let error = Settings::read(&tuning(&[(knob, value)], &[], &[])).unwrap_err();
    assert_eq!(error.to_string(), text);
}

#[test]
fn what_cannot_be_set_says_why() {
    refused(
        "tcp_congestion_controll",
        "bbr",
        "there is no knob \"tcp_congestion_controll\", did you mean \"tcp_congestion_control\"?; \
         `hostgap tune knobs` lists them",
    );
    refused("quux", "1", "there is no knob \"quux\"; `hostgap tune knobs` lists them");
    refused(
        "tcp_tw_recycle",
        "1",
        "tcp_tw_recycle cannot be set: it was removed in Linux 4.12; it broke clients behind address translation; \
         tcp_tw_reuse = 1 is for clients that run out of ports",
    );
    refused(
        "tcp_low_latency",
        "1",
        "tcp_low_latency cannot be set: it has done nothing since Linux 4.14; the way around the prequeue that it chose is \
         the only one now; there is nothing to set",
    );
    for name in ["net/ipv4/tcp_tw_recycle", "net.ipv4.tcp_tw_recycle"] {
        let error = Settings::read(&tuning(&[(name, "1")], &[], &[])).unwrap_err();
        assert!(error.to_string().starts_with("tcp_tw_recycle cannot be set: it was removed"), "{error}");
    }
    let hint = |name: &str, near: &str| {
        let text =
            format!("there is no knob {name:?}, did you mean {near:?}?; `hostgap tune knobs` lists them");
        refused(name, "1", &text);
    };
    hint("net.core.somaxcon", "somaxconn");
    hint("net/ipv4/tcp_rmen", "tcp_rmem");
    let twice = tuning(&[("somaxconn", "1"), ("net.core.somaxconn", "1")], &[], &[]);
    assert_eq!(
        Settings::read(&twice).unwrap_err().to_string(),
        "somaxconn is set twice, under two of its names"
    );
    refused("initcwnd", "0", "initcwnd cannot be \"0\": a number from 1 to 1000 (segments) is expected");
}

#[test]
fn one_side_counts_more_than_both() {
    let requested = tuning(
        &[("tcp_sack", "0"), ("initcwnd", "16"), ("mtu", "9001")],
        &[("tcp_sack", "1"), ("tcp_dsack", "0")],
        &[("initcwnd", "32"), ("tcp_dsack", "0")],
    );
    let settings = Settings::read(&requested).unwrap();
    let recorded: Vec<String> = settings
        .recorded()
        .iter()
        .map(|setting| format!("{}={} {:?}", setting.knob, setting.value, setting.side))
        .collect();
    let expected = [
        "tcp_sack=1 Client",
        "tcp_sack=0 Server",
        "tcp_dsack=0 Both",
        "initcwnd=16 Client",
        "initcwnd=32 Server",
        "mtu=9001 Both",
    ];
    assert_eq!(recorded, expected);
    assert_eq!(settings.recorded()[2].side, Side::Both);
    assert_eq!(settings.of_both(Lives::Mtu), Some(&Value::Number(9001)));
    assert_eq!(settings.of_both(Lives::Sysctl("net/ipv4/tcp_sack")), None);
}

/// Another machine of a race gets settings as they are written down.
#[test]
fn every_knob_is_read_back_as_it_was_written_down() {
    for knob in tune::all().filter(|knob| !matches!(knob.lives, Lives::Nowhere { .. })) {
        for sides in [[true, true, false], [true, false, false], [false, true, true]] {
            let of = |asked: bool| if asked { vec![(knob.id, knob.example)] } else { Vec::new() };
            let [both, client, server] = sides.map(of);
            let settings = Settings::read(&tuning(&both, &client, &server)).unwrap();
            assert_eq!(Settings::of_recorded(&settings.recorded()).unwrap(), settings, "{}", knob.id);
        }
    }
}

/// In the notation of sysctl(8).
#[test]
fn parameters_have_the_kernel_s_names_too() {
    let both = [("net.core.somaxconn", "9"), ("net/ipv4/tcp_sack", "0"), ("fs.file-max", "9000")];
    let settings = Settings::read(&tuning(&both, &[("tcp_sack", "1")], &[])).unwrap();
    let names = |settings: &[tune::Setting]| {
        let one = |setting: &tune::Setting| format!("{}={}", setting.knob.id, setting.value);
        settings.iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(names(&settings.client), ["tcp_sack=1", "somaxconn=9", "file_max=9000"]);
    assert_eq!(names(&settings.server), ["tcp_sack=0", "somaxconn=9", "file_max=9000"]);
    assert!(tune::find("net.ipv4.initcwnd").is_none(), "no parameter of the kernel");
}

/// Queues divide a table of flows into powers of two, so that they never follow more flows than it has
/// places.
#[test]
fn flows_are_shared_out_over_queues() {
    let knob = tune::find("rps_flow_cnt").unwrap();
    let setting = tune::Setting::read(knob, &RequestedValue::Text("65536/queues".to_owned())).unwrap();
    let flows = |rx| {
        let nic = Nic { rx, tx: 1, interrupts: Vec::new() };
        let wire = linux::IfName::new("eth0").unwrap();
        let (process, node) = (Place::Host, Place::Host);
        let site = Site { process, node, wire, nic, routes: Vec::new(), cpus: "0".parse().unwrap() };
        setting.plan(&site).commands()
    };
    let last = |rx, count| format!("echo {count} > /sys/class/net/eth0/queues/rx-{}/rps_flow_cnt", rx - 1);
    for (rx, count) in [(1, 65_536), (2, 32_768), (3, 16_384), (4, 16_384), (48, 1024)] {
        assert_eq!(flows(rx).len(), usize::from(rx));
        assert_eq!(flows(rx).last().unwrap(), &last(rx, count));
    }
}

#[test]
fn each_scope_has_its_place() {
    let place = |name: &str| Place::Netns(linux::NetnsName::new(name).unwrap());
    let link = |name: &str| linux::IfName::new(name).unwrap();
    let site = Site {
        process: place("pod"),
        routes: vec![("0.0.0.0/0".parse().unwrap(), link("eth0"))],
        node: place("node"),
        wire: link("wire0"),
        cpus: "0-1".parse().unwrap(),
        nic: Nic::default(),
    };
    let knobs = [
        ("tcp_congestion_control", "bbr"),
        ("tcp_rmem", "4096 131072 16777216"),
        ("rto_min", "10"),
        ("rps_sock_flow_entries", "1024"),
        ("rps_cpus", "node"),
        ("rps_flow_cnt", "1024"),
        ("mtu", "9001"),
        ("notrack", "8080"),
    ];
    let settings = Settings::read(&tuning(&knobs, &[], &[])).unwrap();
    let mut plan = Plan::new();
    settings.client.iter().for_each(|setting| plan.extend(setting.plan(&site)));
    let expected = "\
ip netns exec pod sysctl -w net.ipv4.tcp_congestion_control=bbr
ip netns exec pod sysctl -w 'net.ipv4.tcp_rmem=4096 131072 16777216'
ip netns exec node nft -f - <<'EOF'
table ip hostgap-notrack-8080 {
\tchain forwarded {
\t\ttype filter hook prerouting priority -300; policy accept;
\t\ttcp dport 8080 notrack
\t\ttcp sport 8080 notrack
\t}
}
EOF
ip netns exec node nft -f - <<'EOF'
table ip6 hostgap-notrack-8080 {
\tchain forwarded {
\t\ttype filter hook prerouting priority -300; policy accept;
\t\ttcp dport 8080 notrack
\t\ttcp sport 8080 notrack
\t}
}
EOF
ip -n pod route change $(ip -n pod route show exact 0.0.0.0/0 | sed 's/rto_min lock/rto_min/; s/ linkdown//; s/ dead//; \
/nhid/s/ onlink//; s/\\(nhid [0-9]*\\) .*dev [^ ]*/\\1/') rto_min 10
sysctl -w net.core.rps_sock_flow_entries=1024
ip netns exec node sh -c 'echo 3 > /sys/class/net/wire0/queues/rx-0/rps_cpus'
ip netns exec node sh -c 'echo 1024 > /sys/class/net/wire0/queues/rx-0/rps_flow_cnt'
ip -n node link set dev wire0 mtu 9001";
    assert_eq!(plan.commands().join("\n"), expected);
    let by_route = settings.client[0].by_route().unwrap().plan(&site);
    assert!(by_route.commands()[0].ends_with(" congctl bbr"), "{:?}", by_route.commands());
    assert!(settings.client[1].by_route().is_none());
}

#[test]
fn a_card_s_queues_and_interrupts_are_set_one_by_one() {
    let interrupt = |number, name: &str| linux::interrupts::Interrupt { number, name: name.to_owned() };
    let interrupts = vec![
        interrupt(24, "virtio1-config"),
        interrupt(25, "virtio1-input.0"),
        interrupt(26, "virtio1-output.0"),
        interrupt(27, "virtio1-input.1"),
    ];
    let site = Site {
        process: Place::Host,
        routes: Vec::new(),
        node: Place::Host,
        wire: linux::IfName::new("eth0").unwrap(),
        cpus: "0-3".parse().unwrap(),
        nic: Nic { rx: 2, tx: 2, interrupts },
    };
    let knobs = [
        ("rps_flow_cnt", "1024"),
        ("xps_cpus", "node"),
        ("irq_affinity", "2-3"),
        ("tso", "0"),
        ("rss_indirection", "2"),
        ("rss_hash_fields", "udp4 sdfn udp6 sd"),
        ("rss_hash_key", "01:02:fF"),
        ("flow_limit_cpu_bitmap", "0,2"),
        ("threaded_napi", "1"),
    ];
    let mut settings = Settings::read(&tuning(&knobs, &[], &[])).unwrap().client;
    settings.sort_by_key(tune::Setting::rank);
    let mut plan = Plan::new();
    settings.iter().for_each(|setting| plan.extend(setting.plan(&site)));
    let expected = "\
sysctl -w net.core.flow_limit_cpu_bitmap=5
echo 2 > /proc/irq/25/smp_affinity_list
echo 2 > /proc/irq/26/smp_affinity_list
echo 3 > /proc/irq/27/smp_affinity_list
ethtool -X eth0 equal 2
ethtool -X eth0 hkey 01:02:ff
echo 1024 > /sys/class/net/eth0/queues/rx-0/rps_flow_cnt
echo 1024 > /sys/class/net/eth0/queues/rx-1/rps_flow_cnt
ethtool -N eth0 rx-flow-hash udp4 sdfn
ethtool -N eth0 rx-flow-hash udp6 sd
echo 5 > /sys/class/net/eth0/queues/tx-0/xps_cpus
echo a > /sys/class/net/eth0/queues/tx-1/xps_cpus
echo 1 > /sys/class/net/eth0/threaded
ethtool -K eth0 tx-tcp-segmentation off
ethtool -K eth0 tx-tcp6-segmentation off";
    assert_eq!(plan.commands().join("\n"), expected);
    let symmetric = Settings::read(&tuning(&[("rss_hash_key", "symmetric")], &[], &[])).unwrap().client;
    assert_eq!(
        symmetric[0].plan(&site).commands(),
        ["ethtool -X eth0 hkey $(ethtool -x eth0 | sed -n '/^RSS hash key/{n;s/..:../6d:5a/g;p;}')"]
    );
    let in_netns = Site { node: Place::Netns(linux::NetnsName::new("pod").unwrap()), ..site };
    assert_eq!(
        symmetric[0].plan(&in_netns).commands(),
        ["ip netns exec pod ethtool -X eth0 hkey \
          $(ip netns exec pod ethtool -x eth0 | sed -n '/^RSS hash key/{n;s/..:../6d:5a/g;p;}')"]
    );
    refused(
        "rss_hash_key",
        "6d5a",
        "rss_hash_key cannot be \"6d5a\": the bytes of a key, as many as the card's own has (\"6d:5a:…\"), or \"symmetric\" \
         is expected",
    );
    refused("irq_affinity", "none", "irq_affinity cannot be \"none\": some CPU must serve an interrupt");
}
