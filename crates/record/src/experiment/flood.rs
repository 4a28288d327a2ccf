//! Junk that arrives at the server's node while it serves: the `[flood]` of an experiment.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment_error::{ExperimentError, out_of_range, within};
use crate::workload::ETHERNET_BYTES;
use crate::{Experiment, PacketFilter, Placement, WorkloadKind};

/// Unrequested frames, at a constant rate. Each is a UDP datagram over IPv4 to a port that the candidate's `filter`
/// is about; candidates without a filter are left in peace, the reference among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    /// Frames per second, 1,000 to 2,000,000.
    pub packets_per_s: u32,
    /// Bytes of a frame, its checksum not counted.
    #[serde(default = "bytes")]
    pub bytes: u32,
}

/// An Ethernet frame of the least length with its checksum.
fn bytes() -> u32 {
    64
}

impl fmt::Display for Flood {
    /// `200000 frames of 64 B a second`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames of {} B a second", self.packets_per_s, self.bytes)
    }
}

impl PacketFilter {
    /// Why it is none for a flood; `None` if it is.
    fn not_for_floods(self) -> Option<&'static str> {
        match self {
            PacketFilter::XdpTx | PacketFilter::XdpRedirect => {
                Some("a flood ends at its filter; take one that drops")
            }
            PacketFilter::XdpPass => Some("a flood that nothing drops has the filter socket"),
            PacketFilter::Socket
            | PacketFilter::XdpDrop
            | PacketFilter::XdpGeneric
            | PacketFilter::TcDrop
            | PacketFilter::NftIngress
            | PacketFilter::NftRaw
            | PacketFilter::NftInput
            | PacketFilter::NftInputCt => None,
        }
    }
}

impl Experiment {
    /// Checks that a flood can be made, and that a candidate gets it.
    pub(crate) fn validate_flood(&self, flood: Flood) -> Result<(), ExperimentError> {
        within("flood.packets_per_s", flood.packets_per_s, 1_000..=2_000_000)?;
        within("flood.bytes", flood.bytes, 60..=self.underlay.mtu + ETHERNET_BYTES)?;
        let refused = |key: &str, value: &str, why: &str| Err(out_of_range(key, value, why));
        if self.workload.kind == WorkloadKind::Packets {
            return refused("flood", &flood.to_string(), "frames of kind = \"packets\" are a flood already");
        }
        if self.placement != Placement::TwoNodes {
            return refused("placement", "same_node", "a flood arrives by the wire between two nodes");
        }
        if self.vm.as_ref().is_some_and(crate::Machines::counts) {
            return refused("vm", "counted", "a flood has a rate, and in counted time nothing keeps to one");
        }
        for (key, is_requested) in [("profile", self.profile), ("why_late", self.why_late)] {
            if is_requested {
                return refused(key, "true", "it looks at candidates without a flood");
            }
        }
        let flooded = self.candidates.iter().filter_map(|candidate| Some((candidate, candidate.filter?)));
        let mut none = true;
        for (candidate, filter) in flooded {
            none = false;
            if candidate.path != "host" {
                let why = "what filters a flood stands on the node; it races on `host`";
                return refused("candidates.path", &candidate.path, why);
            }
            if let Some(why) = filter.not_for_floods() {
                return refused("candidates.filter", filter.name(), why);
            }
        }
        match none {
            true => refused("flood", &flood.to_string(), "no candidate has a `filter`, so none would get it"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flood: &str, rest: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!("schema = 1\nname = \"x\"\nflood = {flood}\n{rest}"))
    }

    const DROPPED: &str = "[[candidates]]\npath = \"host\"\nfilter = \"xdp-drop\"";

    #[test]
    fn it_is_read_and_written() {
        let experiment = read("{ packets_per_s = 200000 }", DROPPED).unwrap();
        let flood = experiment.flood.unwrap();
        assert_eq!(flood.to_string(), "200000 frames of 64 B a second");
        assert_eq!(experiment.candidates[0].title(), "xdp-drop");
        assert_eq!(Experiment::from_toml(&experiment.to_toml()).unwrap(), experiment);
        let without = Experiment { flood: None, candidates: Vec::new(), ..experiment };
        assert!(!without.to_toml().contains("flood"));
    }

    #[test]
    fn what_has_no_flood_is_refused() {
        let fit = "{ packets_per_s = 200000 }";
        let said = "`flood` is 200000 frames of 64 B a second: ";
        for (flood, rest, why) in [
            ("{ packets_per_s = 10 }", DROPPED, "`flood.packets_per_s` is 10: 1000 to 2000000 is expected"),
            ("{ packets_per_s = 1000, bytes = 59 }", DROPPED, "`flood.bytes` is 59: 60 to 1514 is expected"),
            ("{ packets_per_s = 1000, size = 64 }", DROPPED, "unknown key `size`"),
            (fit, "", &format!("{said}no candidate has a `filter`")),
            (fit, "workload.kind = \"packets\"", &format!("{said}frames of kind = \"packets\"")),
            (fit, &format!("placement = \"same_node\"\n{DROPPED}"), "`placement` is same_node: a flood"),
            (fit, &format!("why_late = true\n{DROPPED}"), "`why_late` is true: it looks at"),
            (
                fit,
                &format!("vm = {{ kernels = [\"debian:6.12\"], clock = \"counted\" }}\n{DROPPED}"),
                "`vm` is counted: a flood has a rate",
            ),
            (fit, &DROPPED.replace("host", "docker"), "`candidates.path` is docker: what filters a flood"),
            (
                fit,
                &DROPPED.replace("drop", "tx"),
                "`candidates.filter` is xdp-tx: a flood ends at its filter",
            ),
            (fit, &DROPPED.replace("drop", "pass"), "is xdp-pass: a flood that nothing drops"),
        ] {
            let error = read(flood, rest).expect_err(why).to_string();
            assert!(error.contains(why), "{why:?} is not in {error:?}");
        }
    }
}
