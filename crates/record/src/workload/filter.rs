//! What becomes of a frame of the workload `packets`, and where on its way: the `filter` of a candidate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::WorkloadKind;
use crate::experiment_error::{ExperimentError, out_of_range};
use crate::spelling::{did_you_mean, nearest};
use crate::{Candidate, Experiment, Placement, Steering};

/// What is done with a frame that arrives, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketFilter {
    /// Nothing takes it: it goes all the way to a UDP socket, which is read.
    #[default]
    Socket,
    /// XDP in the driver drops it.
    XdpDrop,
    /// XDP in the driver sends it back by the link that it came from.
    XdpTx,
    /// XDP in the driver sends it to another link.
    XdpRedirect,
    /// XDP drops it after the kernel has made an `sk_buff` of it.
    XdpGeneric,
    /// A program of traffic control drops it, at tcx.
    TcDrop,
    /// nftables drops it at the hook of its link.
    NftIngress,
    /// nftables drops it before connection tracking, as a rule in iptables' table `raw` does.
    NftRaw,
    /// nftables drops it after the routing decision; nothing tracks connections.
    NftInput,
    /// The same behind a rule about its connection, so that the kernel tracks it.
    NftInputCt,
    /// XDP in the driver leaves it to the kernel, and it goes to the socket.
    XdpPass,
}

impl PacketFilter {
    /// Every filter, in display order: where on its way a frame meets it.
    pub const ALL: [PacketFilter; 11] = [
        PacketFilter::XdpDrop,
        PacketFilter::XdpTx,
        PacketFilter::XdpRedirect,
        PacketFilter::XdpGeneric,
        PacketFilter::TcDrop,
        PacketFilter::NftIngress,
        PacketFilter::NftRaw,
        PacketFilter::NftInput,
        PacketFilter::NftInputCt,
        PacketFilter::Socket,
        PacketFilter::XdpPass,
    ];

    /// The name in an experiment.
    pub fn name(self) -> &'static str {
        match self {
            PacketFilter::XdpDrop => "xdp-drop",
            PacketFilter::XdpTx => "xdp-tx",
            PacketFilter::XdpRedirect => "xdp-redirect",
            PacketFilter::XdpGeneric => "xdp-generic",
            PacketFilter::TcDrop => "tc-drop",
            PacketFilter::NftIngress => "nft-ingress",
            PacketFilter::NftRaw => "nft-raw",
            PacketFilter::NftInput => "nft-input",
            PacketFilter::NftInputCt => "nft-input-ct",
            PacketFilter::Socket => "socket",
            PacketFilter::XdpPass => "xdp-pass",
        }
    }

    /// What it does, in a few words for tables.
    pub fn describe(self) -> &'static str {
        match self {
            PacketFilter::XdpDrop => "XDP in the driver drops frames",
            PacketFilter::XdpTx => "XDP in the driver sends frames back",
            PacketFilter::XdpRedirect => "XDP in the driver sends frames to another link",
            PacketFilter::XdpGeneric => "generic XDP drops frames",
            PacketFilter::TcDrop => "a program at tcx drops frames",
            PacketFilter::NftIngress => "nftables drops frames at the hook of their link",
            PacketFilter::NftRaw => {
                "nftables drops packets before connection tracking, as iptables' raw does"
            }
            PacketFilter::NftInput => "nftables drops packets at input, without connection tracking",
            PacketFilter::NftInputCt => "nftables drops packets at input, with connection tracking",
            PacketFilter::Socket => "a UDP socket is read",
            PacketFilter::XdpPass => "XDP in the driver passes frames, and a UDP socket is read",
        }
    }
}

impl fmt::Display for PacketFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PacketFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<PacketFilter, String> {
        let names = PacketFilter::ALL.map(PacketFilter::name);
        let found = PacketFilter::ALL.into_iter().find(|filter| filter.name() == text);
        found.ok_or_else(|| {
            let near = did_you_mean(nearest(text, &names));
            format!("`{text}` is no filter of packets: one of {} is expected{near}", names.join(", "))
        })
    }
}

/// Bytes of the Ethernet header.
pub(crate) const ETHERNET_BYTES: u32 = 14;

impl Experiment {
    /// Checks that filters are in a race of packets or beside a flood. A race of packets has nothing else to compare: its
    /// frames are made, judged and end on one CPU, without a client, a connection or a rate.
    pub(crate) fn validate_filters(&self) -> Result<(), ExperimentError> {
        if self.workload.kind != WorkloadKind::Packets {
            let of_candidate = self.candidates.iter().find_map(|candidate| candidate.filter);
            return match (self.workload.filter, of_candidate, self.flood) {
                (Some(filter), ..) => {
                    Err(out_of_range("workload.filter", filter, "only kind = \"packets\" has it"))
                }
                (None, Some(filter), None) => {
                    let why = "only kind = \"packets\" and experiments with a [flood] have it";
                    Err(out_of_range("candidates.filter", filter, why))
                }
                (None, _, Some(flood)) => self.validate_flood(flood),
                (None, None, None) => Ok(()),
            };
        }
        self.flood.map_or(Ok(()), |flood| self.validate_flood(flood))?;
        self.candidates.iter().try_for_each(validate_candidate)?;
        let largest = self.workload.body_bytes.iter().copied().max().unwrap_or(0);
        if largest > self.underlay.mtu + ETHERNET_BYTES {
            let why = format!("the wire takes frames of {} bytes", self.underlay.mtu + ETHERNET_BYTES);
            return Err(out_of_range("workload.body_bytes", largest, why));
        }
        let refused = |key: &str, value: &str, why: &str| Err(out_of_range(key, value, why));
        if self.placement != Placement::TwoNodes {
            return refused("placement", "same_node", "frames cross the wire between two nodes");
        }
        if self.underlay.steering == Steering::Receiver {
            let why = "frames are judged on the CPU that makes them, whose time is what is compared";
            return refused("underlay.steering", "receiver", why);
        }
        for (key, wire) in
            [("to_server", self.underlay.to_server()), ("to_client", self.underlay.to_client())]
        {
            if wire != crate::Wire::default() {
                let why = "frames are judged as fast as they are made, on a wire that only carries them";
                return Err(out_of_range(&format!("underlay.{key}"), wire, why));
            }
        }
        for (key, asked) in [("profile", self.profile), ("why_late", self.why_late)] {
            if asked {
                return refused(key, "true", "packets have no client, no server and no answers to look at");
            }
        }
        Ok(())
    }
}

fn validate_candidate(candidate: &Candidate) -> Result<(), ExperimentError> {
    let title = candidate.title();
    let refused = |key: &str, why: &str| Err(out_of_range(&format!("candidates.{key}"), &title, why));
    if candidate.path != "host" {
        return refused("path", "packets race on `host`, each candidate with a `filter`");
    }
    if candidate.filter.is_none() {
        return refused("filter", "a candidate of kind = \"packets\" needs a `filter`");
    }
    if candidate.connections.is_some() {
        return refused("connections", "packets have no connections");
    }
    if !candidate.underlay.is_empty() {
        return refused("underlay", "all packets race on the same wire");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{lines}"))
    }

    #[track_caller]
    fn check(lines: &str, message: &str) {
        assert_eq!(read(lines).expect_err(lines).to_string(), message);
    }

    fn packets(lines: &str) -> String {
        format!("{lines}\n[workload]\nkind = \"packets\"")
    }

    #[test]
    fn filters_are_read_by_name_and_written_as_they_were_read() {
        for filter in PacketFilter::ALL {
            assert_eq!(filter.name().parse(), Ok(filter));
            assert_eq!(serde_json::to_string(&filter).unwrap(), format!("\"{filter}\""));
            let text = packets(&format!("candidates = [{{ path = \"host\", filter = \"{filter}\" }}]"))
                + "\nfilter = \"nft-raw\"";
            let experiment = read(&text).unwrap();
            let candidate = &experiment.candidates[0];
            assert_eq!((candidate.filter, candidate.title()), (Some(filter), filter.name().to_owned()));
            assert_eq!(experiment.workload.filter, Some(PacketFilter::NftRaw));
            assert_eq!(Experiment::from_toml(&experiment.to_toml()).unwrap(), experiment);
        }
        let error = "xdp-dorp".parse::<PacketFilter>().unwrap_err();
        assert!(error.contains("nft-input-ct") && error.ends_with("did you mean xdp-drop?"), "{error}");
    }

    #[test]
    fn an_unknown_filter_is_refused_with_its_place() {
        let error =
            read(&packets("candidates = [{ path = \"host\", filter = \"xdp\" }]")).unwrap_err().to_string();
        assert!(error.starts_with("line 3, column ") && error.contains("unknown variant `xdp`"), "{error}");
    }

    #[test]
    fn a_filter_belongs_to_packets_and_packets_to_filters() {
        let filter = "candidates = [{ path = \"host\", filter = \"tc-drop\" }]";
        let why = "only kind = \"packets\" and experiments with a [flood] have it";
        check(filter, &format!("`candidates.filter` is tc-drop: {why}"));
        check("workload.filter = \"socket\"", "`workload.filter` is socket: only kind = \"packets\" has it");
        check(
            &packets("candidates = [{ path = \"host\", name = \"bare\" }]"),
            "`candidates.filter` is bare: a candidate of kind = \"packets\" needs a `filter`",
        );
        check(
            &packets("candidates = [{ path = \"docker\", filter = \"tc-drop\" }]"),
            "`candidates.path` is tc-drop: packets race on `host`, each candidate with a `filter`",
        );
        let twice = "{ path = \"host\", filter = \"tc-drop\" }";
        check(
            &packets(&format!("candidates = [{twice}, {twice}]")),
            "`candidates.path` is tc-drop: it races already",
        );
    }

    #[test]
    fn frames_fit_the_wire_and_have_room_for_their_headers() {
        let size = |bytes: u32| format!("{}\nbody_bytes = [{bytes}]", packets(""));
        check(&size(59), "`workload.body_bytes` is 59: 60 to 1514 is expected");
        check(&size(1515), "`workload.body_bytes` is 1515: 60 to 1514 is expected");
        let narrow = format!("{}\nbody_bytes = [1514]\n[underlay]\nmtu = 1400", packets(""));
        check(&narrow, "`workload.body_bytes` is 1514: the wire takes frames of 1414 bytes");
        assert!(read(&size(1514)).is_ok());
    }

    #[test]
    fn what_packets_do_not_have_is_refused() {
        check(&packets("rates = [5]"), "`rates` is 5: frames are made as fast as they are judged");
        check(
            &packets("placement = \"same_node\""),
            "`placement` is same_node: frames cross the wire between two nodes",
        );
        check(
            &format!("{}\nconnections = 2", packets("")),
            "`workload.connections` is 2: 1 to 1 is expected",
        );
        check(
            &format!("{}\nipv6 = true", packets("")),
            "`workload.ipv6` is true: frames of packets are of IPv4",
        );
        check(
            &format!("{}\nserver = \"hostgap\"", packets("")),
            "`workload.server` is hostgap: packets have no server",
        );
        check(
            &packets("why_late = true"),
            "`why_late` is true: packets have no client, no server and no answers to look at",
        );
        let exact = packets("vm = { kernels = [\"debian:6.12\"], exact = true }");
        assert!(read(&exact).unwrap().on("debian:6.12").exact());
    }
}
