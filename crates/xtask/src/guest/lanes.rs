//! Which test runs on which kernel beside this machine's own.

use vm::Flavour;
use vm::deb;

use super::Guest;
use super::When::{Always, Never, Skipped};

/// Every guest, in the order in which they boot: first those that wait for none of the native lane's skips, then the
/// longest, so that none goes on alone at the end.
///
/// An emulated CPU that waits for another's lock or interrupt spins, and where there are two, each access to memory
/// that they share costs more. So a guest has one CPU, unless its tests need a second one or are about what two do at
/// once.
pub(crate) static ALL: [Guest; 8] = [
    // The kernel of Debian 12's users. A test that needs what 6.1 lacks (netkit, tcx) skips here and runs in
    // another lane.
    Guest {
        kernel: deb::Suite::Stable,
        flavour: Flavour::Cloud,
        arguments: "",
        cpus: 1,
        lane: "old",
        tests: &[
            ("datapath", "traffic::ipv4_alone", Never),
            ("datapath", "traffic::ipv6_alone", Never),
            ("datapath", "traffic::ovs", Never),
            ("datapath", "traffic::", Always),
            // What gives way to a route, and how it is announced, differs from kernel to kernel.
            ("plan", "keeper::", Always),
            ("plan", "reconcile::", Always),
            // The table of knobs must be right about each kernel.
            ("tune", "defaults::", Always),
        ],
    },
    // The same kernel for programs, which are replaced while another CPU runs them, and for cards, whose queues are
    // spread over CPUs.
    Guest {
        kernel: deb::Suite::Stable,
        flavour: Flavour::Cloud,
        arguments: "",
        cpus: 2,
        lane: "programs",
        tests: &[
            // Thousands of random packets behave alike on every kernel.
            ("bpf", "odd::", Never),
            // These show that something is no stall, which takes a machine that seldom stalls itself. An
            // emulated one often does.
            ("bpf", "witness::a_softirq", Never),
            ("bpf", "witness::a_cpu_that_is_busy", Never),
            // Tens of thousands of sockets, which take minutes there.
            ("bpf", "services::calls::choices_of_sockets", Never),
            // Without tcx these would repeat other tests.
            ("bpf", "replace::no_packet_is_lost_where", Never),
            ("bpf", "guard::replace::no_datagram_is_lost_and_no_forged_one_passes_where", Never),
            ("bpf", "", Always),
            // The drivers of cards differ in which change resets which setting.
            ("tune", "card::", Always),
        ],
    },
    // A kernel without IPv6, which has no sockets, routes, parameters or counters for it.
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "ipv6.disable=1",
        cpus: 1,
        lane: "ipv4",
        tests: &[
            ("datapath", "traffic::ipv4_alone", Always),
            ("lab", "standing::the_families_of_the_kernel", Always),
            // All that the plugin and the agent do, in a network of IPv4 alone.
            ("node", "families::ipv4_alone", Always),
            ("agent", "families::ipv4_alone", Always),
        ],
    },
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        cpus: 1,
        lane: "guest",
        tests: &[
            ("doctor", "live::card::", Never),
            ("doctor", "live::machine::", Never),
            ("doctor", "live::rhythm::", Never),
            ("doctor", "", Skipped),
            ("linux", "steering::", Never),
            ("linux", "", Skipped),
            // IPv4 alone has a kernel of its own.
            ("node", "families::ipv4_alone", Never),
            ("node", "", Skipped),
            // What no card and no store is needed for is the same on every kernel that has WireGuard.
            ("agent", "wireguard::", Skipped),
            ("agent", "changes::nothing_is_lost_between_encrypted", Skipped),
            ("agent", "families::ipv6_alone_encrypted", Skipped),
            // Faults at every step of a plan, and dozens of kills, test the same code on every kernel. They
            // take minutes natively, and would take half an hour here.
            ("plan", "faults::", Never),
            ("plan", "killed::", Never),
            ("plan", "card::", Never),
            ("plan", "", Skipped),
            // Races and endings of the binary are the same on every kernel. But its commands differ for each
            // data path.
            ("hostgap", "agent::attaches::", Skipped),
            ("hostgap", "commands::", Skipped),
            ("hostgap", "conformance::", Skipped),
        ],
    },
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        cpus: 1,
        lane: "paths",
        tests: &[
            ("datapath", "splice::", Never),
            // One family alone is a part of both. IPv4 alone has a kernel of its own below.
            ("datapath", "traffic::ipv4_alone", Never),
            // Packets meet each path on this machine's own kernel and on the oldest. Where either lacks what a path
            // needs, as netkit, they meet it here, and so the programs of pods.
            ("datapath", "", Skipped),
        ],
    },
    // Races have a CPU for the load and one for the server.
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        cpus: 2,
        lane: "races",
        tests: &[
            // Streams that both ends write at once.
            ("datapath", "splice::", Always),
            // They also run natively, and the programs lane covers the oldest verifier.
            ("bpf", "", Skipped),
            ("lab", "standing::", Never),
            ("lab", "one_side::", Never),
            ("lab", "settings::both_ends", Never),
            ("lab", "", Skipped),
            // Devices that only a machine of ours may have.
            ("hostgap", "verbs::", Skipped),
            // A wire that loses packets.
            ("hostgap", "workloads::a_lost_datagram", Skipped),
        ],
    },
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        cpus: 2,
        lane: "cards",
        tests: &[
            // What one CPU handles for another.
            ("doctor", "live::card::", Skipped),
            ("doctor", "live::machine::", Skipped),
            ("doctor", "live::rhythm::", Skipped),
            ("linux", "steering::", Skipped),
            ("plan", "card::", Skipped),
            ("tune", "", Skipped),
            // Only a guest has cards that may be tuned.
            ("hostgap", "tune::found::", Skipped),
            ("hostgap", "tune::machine::", Skipped),
            ("hostgap", "tune::cards::", Skipped),
        ],
    },
    // What is built and asked once, and has no load: one CPU is enough for it.
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        cpus: 1,
        lane: "topologies",
        tests: &[
            ("lab", "standing::", Skipped),
            ("lab", "one_side::", Skipped),
            ("lab", "settings::both_ends", Skipped),
        ],
    },
];
