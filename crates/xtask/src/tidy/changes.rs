//! Which files may call functions that change a machine: `plan`, and the exceptions named in ARCHITECTURE.md.

/// The modules of the kernel's interfaces, `plan`, and this list itself.
const EVERYTHING: [&str; 4] =
    ["crates/linux/src/", "crates/bpf/src/", "crates/plan/src/", "crates/xtask/src/tidy/changes.rs"];

/// These may change a namespace without a name: to try something in it, or for the cards of a guest.
const UNNAMED: &[&str] = &[
    "crates/lab/src/possible/packets.rs",
    "crates/lab/src/proving.rs",
    "crates/vm/src/nic.rs",
    "crates/host/src/obstacle.rs",
];
/// It breaks what a plugin made in a container of its own, to see whether the plugin notices.
const DAMAGE: &[&str] = &["crates/conformance/src/damage.rs"];
const PROVING: &[&str] = &["crates/lab/src/proving.rs"];
const NIC: &[&str] = &["crates/vm/src/nic.rs"];
const PLAN: &[&str] = &[];

/// Every function of `linux` and `bpf` that changes a machine, as it is called, and the files that may call
/// it besides [`EVERYTHING`]. A method with a general name is listed together with its receiver.
const CHANGES: &[(&str, &[&str])] = &[
    ("Netns::create(", PLAN),
    ("Netns::anonymous(", UNNAMED),
    ("netns::delete(", &["crates/lab/src/home.rs", "crates/conformance/src/damage.rs"]),
    (
        ".link_add(",
        &["crates/lab/src/possible/packets.rs", "crates/lab/src/proving.rs", "crates/vm/src/nic.rs"],
    ),
    (".link_del(", DAMAGE),
    (".link_move(", PLAN),
    (".link_set_up(", &["crates/lab/src/proving.rs", "crates/vm/src/nic.rs"]),
    (".link_set_mac(", PLAN),
    (".link_set_mtu(", PLAN),
    (".link_set_master(", NIC),
    (".link_set_port_flag(", PLAN),
    (".link_set_gso_max_segs(", PLAN),
    (".address_add(", PROVING),
    (".address_del(", DAMAGE),
    (".route_add(", PLAN),
    (".route_del(", DAMAGE),
    (".route_set_metric(", PLAN),
    (".neighbour_add(", PLAN),
    (".neighbour_del(", PLAN),
    (".fdb_add(", PLAN),
    (".fdb_del(", PLAN),
    (".set_key(", PLAN),
    (".clear_key(", PLAN),
    (".set_peer(", PLAN),
    (".remove_peer(", PLAN),
    (".state_add(", PLAN),
    (".state_del(", PLAN),
    (".policy_add(", PLAN),
    (".policy_del(", PLAN),
    (".set_root_qdisc(", PLAN),
    (".restore_root_qdisc(", PLAN),
    (".delete_root_qdisc(", PLAN),
    (".restore_chosen_qdisc(", PLAN),
    ("sysctl::write(", NIC),
    // Of the process's own mount namespace, which ends with its container.
    ("sysctl::make_writable(", &["crates/hostgap/src/agent/run.rs"]),
    (".write_queue_cpus(", PLAN),
    (".write_queue_flows(", PLAN),
    (".write_attribute(", PLAN),
    (".write_delays(", PLAN),
    (".write_hash_fields(", PLAN),
    (".write_hash_key(", PLAN),
    (".write_indirection(", PLAN),
    ("ethtool()?.write(", PLAN),
    ("napis.write(", PLAN),
    ("Interrupts::kernel().write_cpus(", PLAN),
    ("Debugfs::kernel().write(", PLAN),
    ("Modules::kernel().write(", PLAN),
    ("Cgroup::named(", PLAN),
    // It affects the whole machine for as long as it is held.
    ("latency::hold(", PLAN),
    ("nft::add(", PLAN),
    (".delete_table(", PLAN),
    (".add_element(", PLAN),
    (".delete_element(", PLAN),
    (".untrack(", PLAN),
    ("process::kill_in(", &["crates/lab/src/home/sweep.rs"]),
    ("Switch::named(", &["crates/lab/src/home.rs"]),
    (".set_rest(", &["crates/lab/src/built_topology/switches.rs"]),
    ("bpf::attach(", PLAN),
    ("bpf::detach(", PLAN),
    ("bpf::replace(", PLAN),
    ("bpf::remove_qdisc(", PLAN),
    ("pins::make(", &["crates/lab/src/cni/pins.rs"]),
    ("pins::remove(", &["crates/lab/src/cni/pins.rs", "crates/lab/src/home.rs", "crates/hostgap/src/bpf.rs"]),
    ("forward::load(", PLAN),
    ("forward::add_", PLAN),
    ("forward::remove_", PLAN),
    ("forward::set_prefixes(", PLAN),
    ("guard::load(", PLAN),
    ("guard::add(", PLAN),
    ("guard::remove(", PLAN),
    ("guard::replace(", PLAN),
    ("programs.attach(", &["crates/lab/src/possible/packets.rs", "crates/lab/src/packets/judge.rs"]),
    ("splice::load(", PLAN),
    ("splice::attach(", &["crates/hostgap/src/bpf.rs"]),
    ("splice::detach(", PLAN),
    ("splice::remove(", PLAN),
    ("splice::add_member(", PLAN),
    ("splice::remove_member(", PLAN),
    ("services::load(", PLAN),
    ("services::attach(", PLAN),
    ("services::detach(", PLAN),
    ("services::set(", PLAN),
    ("services::remove(", PLAN),
    ("services::replace(", PLAN),
    // plan without a journal.
    (
        "plan::by_hand(",
        &["crates/lab/src/proving.rs", "crates/host/src/obstacle.rs", "crates/hostgap/src/bpf.rs"],
    ),
    ("plan::replace_programs(", &["crates/hostgap/src/bpf/replace.rs"]),
    ("plan::replace_guard(", &["crates/hostgap/src/bpf/replace.rs"]),
    ("plan::renew_", &["crates/agent/src/keep/renewal.rs"]),
];

/// Programs that change a machine when they run.
const PROGRAMS: &[(&str, &[&str])] = &[("Command::new(\"systemctl\")", &["crates/host/src/keep.rs"])];

/// Whether a line of code calls something that this file may not call.
pub(super) fn offends(path: &str, code: &str) -> bool {
    if EVERYTHING.iter().any(|home| path.starts_with(home)) {
        return false;
    }
    let may = |homes: &[&str]| homes.contains(&path);
    CHANGES.iter().chain(PROGRAMS).any(|(call, homes)| code.contains(call) && !may(homes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_its_files() {
        assert!(!offends("crates/plan/src/steps/link.rs", "netlink.link_del(index)?"));
        assert!(!offends("crates/vm/src/nic.rs", "netlink.link_add(&link)?"));
        assert!(offends("crates/vm/src/nic.rs", "netlink.link_del(index)?"));
        assert!(!offends("crates/conformance/src/damage.rs", "netlink.link_del(index)?"));
        assert!(offends("crates/lab/src/home.rs", "linux::process::kill_in(&namespaces)?"));
        assert!(!offends("crates/lab/src/home/sweep.rs", "linux::process::kill_in(&namespaces)?"));
        assert!(offends("crates/host/src/proposal.rs", "Command::new(\"systemctl\")"));
        assert!(!offends("crates/lab/src/race.rs", "netlink.links()?"));
    }
}
