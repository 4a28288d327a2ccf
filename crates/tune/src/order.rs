//! In which order settings are made.

use crate::{Lives, QueueFile, Setting};

impl Setting {
    /// Settings with a lower rank are made first. What resets others comes before these (a new number of queues resets
    /// nearly all that is set for a queue), what others need comes before they do (the table of flows before the flows of
    /// a queue), and what can cut the machine off comes last.
    pub fn rank(&self) -> u8 {
        match self.lives {
            Lives::Nic(_) if self.knob.id == "channels" => 1,
            Lives::Nic(_) if self.knob.id.starts_with("ring_") => 2,
            Lives::Interrupts => 3,
            Lives::Indirection => 4,
            // Limits before what they limit, and the machine's table of flows before the queues' parts of it.
            Lives::Machine(_) => 0,
            Lives::Queue(QueueFile::RpsFlows) => 5,
            Lives::Queue(QueueFile::RpsCpus) => 6,
            Lives::Queue(QueueFile::XpsCpus) => 7,
            Lives::Attribute(_) => 8,
            Lives::Nic(_) => 9,
            Lives::RootQdisc => 10,
            Lives::Sysctl(_) => 11,
            Lives::Route(_) => 12,
            Lives::Mtu => 13,
            Lives::Nowhere { .. } => 14,
        }
    }
}

#[cfg(test)]
mod tests {
    use record::Asked;

    use super::*;

    #[test]
    fn what_resets_others_comes_first_and_the_mtu_last() {
        let rank = |id: &str| {
            let knob = crate::find(id).unwrap();
            Setting::read(knob, &Asked::Text(knob.example.to_owned())).unwrap().rank()
        };
        let order = [
            "rps_sock_flow_entries",
            "channels",
            "ring_rx",
            "irq_affinity",
            "rss_indirection",
            "rps_flow_cnt",
            "rps_cpus",
            "xps_cpus",
            "gro_flush_timeout",
            "gro",
            "qdisc",
            "tcp_congestion_control",
            "initcwnd",
            "mtu",
        ];
        let ranks: Vec<u8> = order.into_iter().map(rank).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }
}
