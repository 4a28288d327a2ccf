//! In which order settings are made.

use linux::ethtool::NicParameter;

use crate::{Lives, QueueFile, RssPart, Setting, Value};

impl Setting {
    /// Settings with a lower rank are made first. A setting that resets others comes before them (a new number of
    /// queues resets nearly all settings of queues). A setting that others need comes before them (the table of flows
    /// before the flows of a queue). A setting that can cut the machine off comes last.
    ///
    /// The queueing discipline comes before the number of queues, so that undo removes it after restoring the queues.
    /// Removing it while there are fewer queues would leave the others with another discipline than the default
    /// (`mq_init` in net/sched/sch_mq.c gives `pfifo_fast` to queues that are not in use).
    ///
    /// The fields of the hash come after its key and its table, so that undo restores them before these: virtio_net
    /// may only store new fields, and send them to the device with the next key or table (`virtnet_set_hashflow` in
    /// drivers/net/virtio_net.c).
    pub fn rank(&self) -> u8 {
        match self.lives {
            // A discipline that is taken away, and a queue that comes back, leave the default: on the way back that
            // must be the old one already.
            Lives::Machine("net/core/default_qdisc") => 10,
            // A limit comes before the settings that it limits, and the machine's table of flows before the queues'
            // parts of it.
            Lives::Machine(_) | Lives::Debug(_) | Lives::Module(_) => 0,
            Lives::RootQdisc => 1,
            Lives::Nic([NicParameter::Channels]) => 2,
            Lives::Nic([NicParameter::RingRx | NicParameter::RingTx]) => 3,
            Lives::Interrupts => 4,
            Lives::Indirection | Lives::Rss(RssPart::Key) => 5,
            Lives::Rss(RssPart::Fields) | Lives::Queue(QueueFile::RpsFlows) => 6,
            Lives::Queue(QueueFile::RpsCpus) => 7,
            Lives::Queue(QueueFile::XpsCpus) => 8,
            Lives::Attribute(_) | Lives::CpuLatency => 9,
            // A card with adaptive delays rejects fixed ones: adaptive mode must end before they are set, and begin
            // after.
            Lives::Nic([NicParameter::CoalesceAdaptiveRx]) => {
                if self.value == Value::Number(0) {
                    9
                } else {
                    11
                }
            }
            Lives::Nic(_) => 10,
            Lives::Sysctl(_) | Lives::Notrack => 11,
            Lives::Route(_) => 12,
            Lives::Mtu => 13,
            Lives::Nowhere { .. } => 14,
        }
    }
}

#[cfg(test)]
mod tests {
    use record::RequestedValue;

    use super::*;

    #[test]
    fn what_resets_others_comes_first_and_the_mtu_last() {
        let rank = |id: &str| {
            let knob = crate::find(id).unwrap();
            Setting::read(knob, &RequestedValue::Text(knob.example.to_owned())).unwrap().rank()
        };
        let order = [
            "rps_sock_flow_entries",
            "qdisc",
            "channels",
            "ring_rx",
            "irq_affinity",
            "rss_hash_key",
            "rss_hash_fields",
            "rps_cpus",
            "xps_cpus",
            "gro_flush_timeout",
            "gro",
            "tcp_congestion_control",
            "initcwnd",
            "mtu",
        ];
        assert_eq!(rank("rss_indirection"), rank("rss_hash_key"));
        assert_eq!(rank("rps_flow_cnt"), rank("rss_hash_fields"));
        let ranks: Vec<u8> = order.into_iter().map(rank).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }

    /// virtio_net and others refuse a delay while they find their own.
    #[test]
    fn a_card_ends_finding_its_delays_before_it_is_given_one() {
        let rank = |knob: &str, value: u64| {
            Setting::named(knob, &RequestedValue::Text(value.to_string())).unwrap().rank()
        };
        assert!(rank("coalesce_adaptive_rx", 0) < rank("coalesce_rx_usecs", 8));
        assert!(rank("coalesce_rx_usecs", 8) < rank("coalesce_adaptive_rx", 1));
    }
}
