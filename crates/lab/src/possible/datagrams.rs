//! Whether datagrams arrive whole that do not fit into one packet: most senders cut them into fragments, and who is to
//! put these together again may not.

use linux::features::Feature;
use record::{OWN_STACK_MTU_MAX, Underlay, Workload};

use crate::datagrams::{most, packet_bytes, too_large, wire_mtu};
use crate::{Contender, LabError};

/// Says of contenders to which datagrams would not get whole why; an error where one is required.
pub(crate) fn leave_out(
    contenders: &mut [Contender],
    underlay: &Underlay,
    workload: &Workload,
) -> Result<(), LabError> {
    for contender in contenders {
        contender.cannot(unfit(contender, underlay, workload))?;
    }
    Ok(())
}

fn unfit(contender: &Contender, underlay: &Underlay, workload: &Workload) -> Option<String> {
    let Contender { settings, path, stack, .. } = contender;
    let (link, who) = if stack.is_own() {
        let wire = wire_mtu(settings, underlay.mtu);
        if wire > OWN_STACK_MTU_MAX {
            return Some(format!("the stack of its server has an MTU of at most {OWN_STACK_MTU_MAX} bytes"));
        }
        (wire, "the stack of its server neither sends nor takes fragments")
    } else if path.needs().contains(&Feature::Pasta) {
        (path.attach.relay_mtu()?, "pasta passes on the first fragment of a datagram alone")
    } else {
        return None;
    };
    let packet = packet_bytes(settings, link);
    let largest = too_large(workload, packet).into_iter().max()?;
    Some(format!("{who}, and of {largest} bytes {} fit into a packet", most(workload.ipv6, packet)))
}

#[cfg(test)]
mod tests {
    use linux::features::Facts;
    use record::Experiment;

    use super::*;
    use crate::candidate::contenders;
    use crate::cni::PluginDirs;

    /// Why the only candidate cannot race.
    fn reasons(workload: &str, candidate: &str) -> String {
        let text = format!(
            "schema = 1\nname = \"x\"\nworkload = {{ {workload} }}\n[[candidates]]\nname = \"x\"\n{candidate}"
        );
        let experiment = Experiment::from_toml(&text).unwrap();
        let dirs = PluginDirs::default();
        let mut contenders = contenders(&experiment.candidates, &Facts::default(), &dirs).unwrap();
        leave_out(&mut contenders, &experiment.underlay, &experiment.workload).unwrap();
        contenders.last().unwrap().unmet.join("; ")
    }

    #[test]
    fn who_takes_no_fragments_gets_none() {
        let datagrams =
            |bytes: u32, ipv6| format!("kind = \"udp-rr\", body_bytes = [64, {bytes}], ipv6 = {ipv6}");
        let own =
            |settings: &str| format!("path = \"host\"\nstack.kind = \"afxdp\"\ntune = {{ {settings} }}\n");
        let whole = own("txqueuelen = 500");
        for (workload, candidate, why) in [
            (datagrams(1400, false), whole.clone(), ""),
            (datagrams(1400, false), own("mtu = 1400"), "takes fragments, and of 1400 bytes 1372 fit"),
            (datagrams(1372, false), own("mtu = 1400"), ""),
            (datagrams(1300, true), own("client = { route_mtu = 1300 }"), "of 1300 bytes 1252 fit"),
            (datagrams(100, false), own("mtu = 9001"), "an MTU of at most 1500 bytes"),
            ("kind = \"http\"".to_owned(), own("route_mtu = 1300"), ""),
            (datagrams(65_492, false), "path = \"pasta\"".to_owned(), ""),
            (datagrams(65_493, false), "path = \"pasta\"".to_owned(), "first fragment of a datagram alone"),
            (datagrams(65_473, true), "path = \"pasta\"".to_owned(), "of 65473 bytes 65472 fit"),
            (datagrams(65_493, false), "path = \"slirp4netns\"".to_owned(), ""),
            (datagrams(1400, false), "path = \"docker\"\ntune = { mtu = 1340 }".to_owned(), ""),
        ] {
            let found = reasons(&workload, &candidate);
            assert_eq!(found.is_empty(), why.is_empty(), "{workload} {candidate}: {found}");
            assert!(found.contains(why), "{why:?} is not in {found:?}");
        }
    }
}
