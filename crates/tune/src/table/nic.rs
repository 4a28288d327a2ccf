//! Network cards, and how the kernel polls them.

use linux::ethtool::{NicFeature, NicParameter};
use linux::sysfs::LinkAttribute;

use super::{ETHTOOL, NAPI, OLDEST, SCALING, USUAL, from_to};
use crate::{ByDefault, Disrupts, Knob, KnobGroup, Lives, Reaches, Risk, RssPart, ValueKind};

const OF_CARD: Knob = Knob { reaches: Reaches::All, source: ETHTOOL, ..USUAL };

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Network card",
    about: "Settings of the card behind a link, and how it is polled. If a driver refuses a value or changes it into another \
            one, that is an error, and the step is undone.",
    knobs: &[
        Knob {
            id: "channels",
            lives: Lives::Nic(&[NicParameter::Channels]),
            kind: from_to(1, 1_024, "queues"),
            example: "2",
            default: ByDefault::Driver("mostly one for each CPU, up to what the card has"),
            disrupts: Disrupts::Link,
            risk: Risk::Medium,
            why: "Queues of the card (RSS). At most as many as cores of its NUMA node; fewer cost fewer \
                  interrupts, and the fewest whose rings do not overflow are best. A new number resets the \
                  settings of each queue (steering, the flow table, often interrupts), which are restored when \
                  this is. A card that has no queues in pairs (veth, mlx4) gets as many for each direction: rx and tx \
                  in place of combined.",
            source: SCALING,
            ..OF_CARD
        },
        Knob {
            id: "ring_rx",
            lives: Lives::Nic(&[NicParameter::RingRx]),
            kind: from_to(1, 65_536, "packets"),
            example: "512",
            default: ByDefault::Driver("mostly 256 to 1024"),
            disrupts: Disrupts::Link,
            why: "Places for received packets in each queue. More survive a pause of the CPU that empties the queue; too many \
                push each other out of its cache. Worth it where the card counts drops for want of places.",
            ..OF_CARD
        },
        Knob {
            id: "ring_tx",
            lives: Lives::Nic(&[NicParameter::RingTx]),
            kind: from_to(1, 65_536, "packets"),
            example: "512",
            default: ByDefault::Driver("mostly 256 to 1024"),
            disrupts: Disrupts::Link,
            why: "The same for packets to send. Where the driver does not limit bytes by itself (BQL), more is a longer wait.",
            ..OF_CARD
        },
        Knob {
            id: "coalesce_adaptive_rx",
            lives: Lives::Nic(&[NicParameter::CoalesceAdaptiveRx]),
            example: "1",
            default: ByDefault::Driver("on where the driver can choose"),
            why: "1 lets the driver choose how long an interrupt waits, by the traffic: right for a mixed \
                  load. 0 is for a fixed wait.",
            ..OF_CARD
        },
        Knob {
            id: "coalesce_rx_usecs",
            lives: Lives::Nic(&[NicParameter::CoalesceRxUsecs]),
            kind: from_to(0, 10_000, "microseconds"),
            example: "8",
            default: ByDefault::Driver("mostly 3 to 50"),
            risk: Risk::Medium,
            why: "How long an interrupt for a received packet waits for more packets: about half of it is added to each \
                answer. 0 is the least latency and the most interrupts.",
            ..OF_CARD
        },
        Knob {
            id: "coalesce_tx_usecs",
            lives: Lives::Nic(&[NicParameter::CoalesceTxUsecs]),
            kind: from_to(0, 10_000, "microseconds"),
            example: "64",
            default: ByDefault::Driver("mostly 8 to 64"),
            why: "The same for packets that were sent. It adds no latency by itself, but until it fires their \
                  memory counts as in flight, which holds up connections with little of it.",
            ..OF_CARD
        },
        Knob {
            id: "gro",
            lives: Lives::Nic(&[NicParameter::Feature(NicFeature::Gro)]),
            example: "0",
            default: ByDefault::Driver("1; 0 at veth links"),
            risk: Risk::Medium,
            why: "Received segments of a connection go through the kernel as one packet. 0 makes each go \
                  alone, which costs several times the CPU time: for experiments.",
            ..OF_CARD
        },
        Knob {
            id: "gso",
            lives: Lives::Nic(&[NicParameter::Feature(NicFeature::Gso)]),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            risk: Risk::Medium,
            why: "Large packets go through the kernel as one, and are split last of all. 0 as above.",
            ..OF_CARD
        },
        Knob {
            id: "tso",
            lives: Lives::Nic(&[
                NicParameter::Feature(NicFeature::TsoIpv4),
                NicParameter::Feature(NicFeature::TsoIpv6),
            ]),
            example: "0",
            default: ByDefault::Driver("1 where the card can"),
            risk: Risk::Medium,
            why: "The card splits large TCP packets by itself, over IPv4 and IPv6. 0 is for drivers with a \
                  fault.",
            ..OF_CARD
        },
        Knob {
            id: "rx_gro_hw",
            lives: Lives::Nic(&[NicParameter::Feature(NicFeature::GroHw)]),
            example: "0",
            default: ByDefault::Driver("1 where the card can, or 0"),
            why: "The card merges received segments, which saves CPU time from some 25 Gbit/s on.",
            disrupts: Disrupts::Link,
            ..OF_CARD
        },
        Knob {
            id: "rx_checksum",
            lives: Lives::Nic(&[NicParameter::Feature(NicFeature::RxChecksum)]),
            example: "0",
            default: ByDefault::Driver("1 where the card can"),
            risk: Risk::Medium,
            why: "The card checks the checksums of received packets. 0 makes the kernel add up every byte, and drops \
                rx_gro_hw with it: for experiments, and for drivers with a fault.",
            source: "ethtool(8); netdev_fix_features in net/core/dev.c",
            disrupts: Disrupts::Link,
            ..OF_CARD
        },
        Knob {
            id: "rss_indirection",
            lives: Lives::Indirection,
            kind: from_to(1, 1_024, "queues"),
            example: "2",
            default: ByDefault::Driver("evenly over all queues"),
            why: "Spreads received flows evenly over the first N queues, by the card's own table. It leaves \
                  later queues to flows that are steered there by hand, and removes the uneven distribution of \
                  an old table.",
            source: SCALING,
            ..OF_CARD
        },
        Knob {
            id: "rss_hash_key",
            lives: Lives::Rss(RssPart::Key),
            kind: ValueKind::Rss(RssPart::Key),
            example: "symmetric",
            default: ByDefault::Driver("random bytes, chosen once after boot, or a constant of the driver"),
            risk: Risk::Medium,
            why: "The key of the card's hash (Toeplitz). \"symmetric\" repeats 6d:5a: both directions of a connection get the \
                same hash, so that what watches or forwards both has them on one CPU. A key that others know lets them choose flows that all come to one queue. A key of your own \
                makes runs comparable: with few flows, the key decides which of them share a queue.",
            source: "ethtool(8); netdev_rss_key_fill in net/ethtool/ioctl.c; Woo and Park, Scalable TCP Session Monitoring \
                with Symmetric Receive-side Scaling, KAIST 2012",
            ..OF_CARD
        },
        Knob {
            id: "rss_hash_fields",
            lives: Lives::Rss(RssPart::Fields),
            kind: ValueKind::Rss(RssPart::Fields),
            example: "udp4 sdfn udp6 sdfn",
            default: ByDefault::Driver("mostly addresses and ports for TCP, and addresses alone for UDP"),
            risk: Risk::Medium,
            why: "The fields of a packet by which the card chooses its queue. Many cards use only the \
                  addresses for UDP, so that all datagrams between two machines (QUIC, DNS, tunnels) come to \
                  one queue and one CPU. With the ports too (sdfn) they spread. Fragments have no ports to \
                  hash: they go to another queue than the whole datagrams of their flow and arrive out of \
                  order, so stay with sd where datagrams are longer than the MTU. Most cards accept only sd or \
                  sdfn. virtio_net only stores them until `ethtool -K LINK rxhash on`.",
            source: "ethtool(8); igb_set_rss_hash_opt in drivers/net/ethernet/intel/igb/igb_ethtool.c; virtnet_set_hashflow \
                in drivers/net/virtio_net.c",
            ..OF_CARD
        },
        Knob {
            id: "irq_affinity",
            lives: Lives::Interrupts,
            kind: ValueKind::Cpus,
            example: "node",
            default: ByDefault::Driver("all CPUs, or one for each queue; irqbalance moves them"),
            risk: Risk::Medium,
            why: "The CPUs that serve the card's interrupts, one queue each in turn. One CPU with all of them \
                  is full while others idle; CPUs of another NUMA node fetch every packet from afar. \
                  irqbalance, if it runs, moves them again within ten seconds unless they are banned there.",
            source: "Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst",
            ..OF_CARD
        },
        Knob {
            id: "virtual_functions",
            lives: Lives::Attribute(LinkAttribute::VirtualFunctions),
            kind: from_to(0, 1_024, "functions"),
            example: "2",
            default: ByDefault::Driver("0: it has none"),
            risk: Risk::Medium,
            disrupts: Disrupts::Link,
            why: "Virtual functions of the card (SR-IOV): each a device of its own on the bus, which a container can have (`attach` \
                  \"host-device\" of the CNI plugin), joined by a switch in the card. They get links if their driver is there (igbvf, \
                  iavf, mlx5_core). From one number to another goes only by way of 0, which takes away all that there are. \
                  Those that a container or a virtual machine has are not taken away.",
            source: "Documentation/PCI/pci-iov-howto.rst",
            ..OF_CARD
        },
        Knob {
            id: "gro_flush_timeout",
            lives: Lives::Attribute(LinkAttribute::GroFlushTimeout),
            kind: from_to(0, 10_000_000, "nanoseconds"),
            example: "20000",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            risk: Risk::Medium,
            why: "How long merged segments may wait for more when a poll ends. Use it only together with \
                  napi_defer_hard_irqs, where it is the time between two polls without interrupts; alone it \
                  adds latency.",
            source: NAPI,
            ..OF_CARD
        },
        Knob {
            id: "napi_defer_hard_irqs",
            lives: Lives::Attribute(LinkAttribute::NapiDeferHardIrqs),
            kind: from_to(0, 1_000, "polls"),
            example: "2",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            why: "How many polls in a row may find nothing before interrupts are enabled again: fewer \
                  interrupts under load, for at most gro_flush_timeout of latency.",
            source: NAPI,
            ..OF_CARD
        },
        Knob {
            id: "threaded_napi",
            lives: Lives::Attribute(LinkAttribute::Threaded),
            example: "1",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            risk: Risk::Medium,
            why: "1 receives in a kernel thread of each queue, which the scheduler can move and weigh, and not \
                  in softirqs, which starve other work on their CPU. It costs a wake-up for each burst.",
            source: NAPI,
            ..OF_CARD
        },
        Knob {
            id: "txqueuelen",
            lives: Lives::Attribute(LinkAttribute::TxQueueLen),
            kind: from_to(0, 1_000_000, "packets"),
            example: "2000",
            default: ByDefault::Kernel(&[(OLDEST, "1000")]),
            why: "The length of the plain queues pfifo and pfifo_fast. fq and fq_codel have their own; the \
                  10000 of old guides only adds waiting.",
            source: "ip-link(8); net/sched/sch_fifo.c",
            ..OF_CARD
        },
    ],
};
