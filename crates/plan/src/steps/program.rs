//! Our own programs: loaded and pinned, and attached to links.

use std::path::Path;

use bpf::forward::{self, NodeConfig, Program, TunnelEnd};
use bpf::{Attached, Hook, pins};

use super::{Effect, MovedBack, Past, UndoOutcome, absent, ethernet_index, existing_index, mistaken};
use crate::entry::{Before, Undone};
use crate::error::StepError;
use crate::forwarding::{ProgramAttachment, Programs};
use crate::kernel::OpenNetns;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{ours, quoted, word};
use crate::{Kernel, Place};

/// The programs of a node, pinned.
pub(super) struct LoadPrograms<'s>(pub(super) &'s Programs);

impl Effect for LoadPrograms<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let absent = refuse_loaded(&self.0.node)?;
        ethernet_index(kernel, place, &self.0.wire)?;
        Ok(absent)
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        let (config, folder) = (config(kernel, place, self.0)?, self.0.folder());
        Ok(pinned(&folder, || forward::load(&folder, &config).map(drop))?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        unpin(&self.0.node, past)
    }

    fn renew(&self, kernel: &mut Kernel, place: &Place) -> Result<bool, StepError> {
        replace_programs(kernel, place, self.0).map(|_| true)
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        let folder = self.0.folder();
        let pins = Program::FORWARD.iter().map(|program| program.pin(&folder));
        let (there, missing): (Vec<_>, Vec<_>) = pins.partition(|pin| pin.exists());
        Ok(match (there.as_slice(), missing.as_slice()) {
            (_, []) => StepState::So,
            ([], _) => StepState::Absent,
            (_, [first, ..]) => StepState::otherwise(format!("without {}", first.display())),
        })
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn subject(&self) -> String {
        format!("the bpffs with the programs of {}", self.0.node)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let Programs { node, wire, mtu, gateway, gateway_mac, pods, cluster, tunnel } = self.0;
        let mut text = format!("--wire {} --mtu {mtu}", word(wire));
        for (name, prefixes) in [("pods", pods), ("cluster", cluster)] {
            let list: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
            text += &format!(" --{name} {}", list.join(","));
        }
        text += &format!(" --gateway {gateway} --gateway-mac {gateway_mac}");
        if let Some(TunnelEnd { local, vni, port }) = tunnel {
            text += &format!(" --tunnel {local} --vni {vni} --port {port}");
        }
        vec![ours(place, "load", node, &text)]
    }

    fn removal(&self, _: &Place) -> Option<String> {
        Some(unload(&self.0.node))
    }
}

/// Makes a folder with what `load` pins in it, or nothing.
pub(super) fn pinned(folder: &Path, load: impl FnOnce() -> linux::Result<()>) -> linux::Result<()> {
    pins::make(folder)?;
    load().map_err(|error| error.and_left(pins::remove(folder)))
}

/// What a person would type to take away all that is pinned for a node.
pub(super) fn unload(node: &str) -> String {
    format!("hostgap bpf unload {}", quoted(node))
}

/// Refuses a node that has a folder of pins.
pub(super) fn refuse_loaded(node: &str) -> Result<Before, StepError> {
    let folder = pins::folder(node);
    if pins::exists(&folder) {
        let what = folder.display().to_string();
        let remedy = format!("if these programs are not needed: hostgap bpf unload {node}");
        return Err(StepError::Exists { what, remedy });
    }
    Ok(Before::Absent)
}

/// How programs are found that this version cannot work with.
pub(super) fn of_another_version() -> String {
    "that of another version, whose maps this one cannot read".to_owned()
}

/// Takes away all that is pinned for a node. One unmount takes programs, maps and bpf links. What stands there is ours:
/// the step refused a folder that existed.
pub(super) fn unpin(node: &str, past: &Past) -> Result<UndoOutcome, StepError> {
    let folder = pins::folder(node);
    if !pins::exists(&folder) {
        return Ok(absent(past.after.as_ref()).into());
    }
    pins::remove(&folder)?;
    Ok(Undone::Restored.into())
}

/// Replaces the programs of a node by those of this version, with this configuration, while packets flow: each packet
/// meets an old program or a new one. Pods, tunnels and counters stay. If the node splices sockets, those that join
/// from now on have the new programs for that. Nothing is written down, and nothing undoes it: the undo of the steps
/// that loaded and attached the old programs is that of the new ones too.
///
/// # Errors
/// There is no such wire; or as for [`bpf::replace`].
pub fn replace_programs(
    kernel: &mut Kernel,
    place: &Place,
    programs: &Programs,
) -> Result<bpf::Replaced, StepError> {
    let config = config(kernel, place, programs)?;
    Ok(kernel.at(place)?.netns.run(|| bpf::replace(&programs.folder(), &config))??)
}

/// Does what [`replace_programs`] does where a node's programs are another build's. `None`: they are this one's,
/// and nothing is changed.
///
/// # Errors
/// As of [`replace_programs`], or it cannot be found out of which build they are.
pub fn renew_programs(
    kernel: &mut Kernel,
    place: &Place,
    programs: &Programs,
) -> Result<Option<bpf::Replaced>, StepError> {
    if bpf::are_of_this_build(&programs.folder())? {
        return Ok(None);
    }
    replace_programs(kernel, place, programs).map(Some)
}

fn config(kernel: &mut Kernel, place: &Place, programs: &Programs) -> Result<NodeConfig, StepError> {
    Ok(NodeConfig {
        wire: existing_index(kernel, place, &programs.wire)?,
        mtu: programs.mtu,
        gateway: programs.gateway,
        gateway_mac: programs.gateway_mac,
        pods: programs.pods.clone(),
        cluster: programs.cluster.clone(),
        tunnel: programs.tunnel,
        route_seconds: forward::ROUTE_SECONDS,
    })
}

/// A program of a node at a link.
pub(super) struct AttachProgram<'s>(pub(super) &'s ProgramAttachment);

impl Effect for AttachProgram<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let ProgramAttachment { node, program, link, .. } = self.0;
        let index = match program {
            Program::FromWire => ethernet_index(kernel, place, link)?,
            Program::FromPod | Program::FromNetkit | Program::FromTunnel | Program::Guard => {
                existing_index(kernel, place, link)?
            }
        };
        let opened = kernel.at(place)?;
        if self.attached(opened, index)?.is_some() {
            let what = format!("program {} at link {link}", program.name());
            let remedy = format!("if it is not needed: hostgap bpf unload {node}");
            return Err(StepError::Exists { what, remedy });
        }
        Ok(Before::Unattached { index, clsact: opened.netlink.has_clsact(index)? })
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError> {
        let Before::Unattached { index, .. } = before else { return Err(mistaken(before)) };
        let (program, pin) = (self.0.program_pin(), self.0.link_pin());
        let hook = self.0.program.hook();
        let attach = || match hook {
            Hook::Ingress if self.0.at_once => bpf::attach_at_once(&program, *index, &pin),
            _ => bpf::attach(&program, hook, *index, &pin),
        };
        kernel.at(place)?.netns.run(attach)??;
        Ok(())
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let (before, after) = (&past.intent.before, past.after.as_ref());
        let Before::Unattached { index, clsact } = before else { return Err(mistaken(before)) };
        let opened = kernel.at(&past.intent.placed.place)?;
        // A later link of the same name has another index.
        let there = opened.netlink.link(&self.0.link)?.is_some_and(|link| link.index == *index);
        match self.attached(opened, *index)? {
            Some(how) if there || how == Attached::Link => {
                let pin = self.0.link_pin();
                // Others may have found the qdisc there and put their filters on it.
                let with_qdisc = how == Attached::Filter
                    && !clsact
                    && opened.netlink.filters(*index)?.into_iter().all(bpf::is_our_place);
                let unpinned = opened.netns.run(|| bpf::detach(how, *index, &pin, with_qdisc))??;
                kernel.unpinned.extend(unpinned);
                Ok(Undone::Restored.into())
            }
            _ => {
                // Between the qdisc and the filter, power may have failed.
                let is_begun = there && !clsact && after.is_none() && opened.netlink.has_clsact(*index)?;
                if is_begun && opened.netlink.filters(*index)?.is_empty() {
                    opened.netns.run(|| bpf::remove_qdisc(*index))??;
                    return Ok(Undone::Restored.into());
                }
                Ok(absent(after).into())
            }
        }
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        Ok(StepState::whether(self.met(kernel.at(place)?, listing)?.is_some()))
    }

    /// Where the kernel has no list of programs at a link, another program is a filter. A guard lets a packet go on to
    /// others' programs, as it would to the kernel. From one that forwards they may take it.
    fn look_alone(
        &self,
        kernel: &mut Kernel,
        place: &Place,
        listing: &Listing,
    ) -> Result<StepState, StepError> {
        let opened = kernel.at(place)?;
        let Some((index, beside)) = self.met(opened, listing)? else {
            return Ok(StepState::Absent);
        };
        if self.0.program == Program::Guard {
            return Ok(StepState::So);
        }
        let filters = opened.netlink.filters(index)?;
        let others = beside + filters.into_iter().filter(|filter| !bpf::is_our_place(*filter)).count();
        Ok(StepState::of(others == 0, || format!("one of {} programs and filters of that link", others + 1)))
    }

    fn admits_before(&self, before: &Before) -> bool {
        matches!(before, Before::Unattached { .. })
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn subject(&self) -> String {
        format!("program {} at link {}", self.0.program.name(), self.0.link)
    }

    fn gone(&self) -> String {
        format!("program {} is no longer at link {}", self.0.program.name(), self.0.link)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let ProgramAttachment { node, program, link, at_once } = self.0;
        let at_once = if *at_once { " --at-once" } else { "" };
        vec![ours(place, "attach", node, &format!("{} {}{at_once}", program.name(), word(link)))]
    }
}

impl AttachProgram<'_> {
    fn attached(&self, opened: &OpenNetns, index: u32) -> Result<Option<Attached>, StepError> {
        let (program, pin) = (self.0.program_pin(), self.0.link_pin());
        Ok(opened.netns.run(|| bpf::attached(&program, index, &pin))??)
    }

    /// The index of the link, if what passes it meets the program, and how many others by bpf links.
    fn met(&self, opened: &OpenNetns, listing: &Listing) -> Result<Option<(u32, usize)>, StepError> {
        let Some(index) = listing.index(opened, &self.0.link)? else { return Ok(None) };
        let (program, hook) = (self.0.program_pin(), self.0.program.hook());
        let beside = opened.netns.run(|| bpf::met(&program, hook, index))??;
        Ok(beside.map(|beside| (index, beside)))
    }
}
