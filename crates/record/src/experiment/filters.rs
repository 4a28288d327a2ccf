//! Which filters an experiment may ask for, and beside what.

use super::{Candidate, Experiment, Placement, Steering};
use crate::experiment_error::{ExperimentError, out_of_range};
use crate::workload::ETHERNET_BYTES;
use crate::{Wire, WorkloadKind};

impl Experiment {
    /// Checks that filters are in a race of packets or beside a flood. A race of packets has nothing else to compare:
    /// its frames are made, judged and end on one CPU, without a client, a connection or a rate.
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
            if wire != Wire::default() {
                let why = "frames are judged as fast as they are made, on a wire that only carries them";
                return Err(out_of_range(&format!("underlay.{key}"), wire, why));
            }
        }
        for (key, is_requested) in [("profile", self.profile), ("why_late", self.why_late)] {
            if is_requested {
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
    use crate::PacketFilter;

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
