//! Whether this kernel makes frames and has the hooks of filters: found out by trying, in a namespace that
//! ends with the question.

use bpf::packets::{Filter, PacketPrograms, Source};
use linux::netlink::Netlink;
use linux::{IfName, Link, LinkKind, Netns, VethPeer};

use crate::packets::program;
use crate::{Contender, LabError};

/// Says of contenders whose filter this kernel has no hook for why; an error where one is required, and where the
/// kernel makes no frames at all.
pub(crate) fn leave_out(contenders: &mut [Contender]) -> Result<(), LabError> {
    if contenders.iter().all(|contender| contender.filter.is_none()) {
        return Ok(());
    }
    let ground = Netns::anonymous()?;
    let netlink = Netlink::open_in(&ground)?;
    let [near, far] = ["wire0", "peer0"].map(|name| IfName::new(name).expect("a constant name is valid"));
    let peer = VethPeer { name: far, netns: None, mtu: None, mac: None };
    netlink.link_add(&Link { name: near.clone(), kind: LinkKind::Veth { peer }, mtu: None, mac: None })?;
    let link = netlink.index_of(&near)?;
    let programs = PacketPrograms::load()?;
    if let Err(error) = ground.run(|| programs.generate(Source::Alone, &[0; 64], 1))? {
        let why = format!(
            "this kernel makes no frames that programs of XDP could send (it can from Linux 5.18): {error}"
        );
        return Err(LabError::Experiment { what: "packets".to_owned(), why });
    }
    for contender in contenders.iter_mut().filter(|contender| contender.races()) {
        let Some(filter) = contender.filter.and_then(program) else { continue };
        let Err(error) = ground.run(|| programs.attach(filter, link))? else { continue };
        let since = if filter == Filter::TcDrop { "; tcx came with Linux 6.6" } else { "" };
        // The reference has to run too, or there is nothing to compare with: it is required.
        contender.cannot([format!("could not {error}{since}")])?;
    }
    Ok(())
}
