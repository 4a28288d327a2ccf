//! What a look has found, in the state and in the log.

use std::collections::BTreeMap;
use std::time::Instant;

use plan::Kept;
use tracing::{info, warn};

use super::change_log::Saying;
use super::{KeptNode, ProbeResults};
use crate::backend::AWS_VPC;
use crate::cloud::View;
use crate::desired::{Desired, PROGRAMS_PART, SERVICES_PART, Undecided, is_of_service, service_part_of};
use crate::lease::Snapshot;
use crate::offload::{Offload, Offloads};
use crate::reason_log::said_together;
use crate::status::{CloudStatus, PeerStatus, ProgramsStatus, ServicesStatus, TunnelOffload, now_s};

impl KeptNode {
    /// Writes down what was done, and says it. True if something was repaired, or could not be made.
    pub(super) fn note_changes(&mut self, kept: &Kept) -> bool {
        let (mut has_changed, now) = (!kept.failed.is_empty(), Instant::now());
        let mut alike: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
        for (part, done) in &kept.changed {
            // What could not be taken back is among what failed, and is tried again with each look.
            let removed = done.removed.iter().filter(|(_, undone)| undone.is_final()).count();
            let made = done.made.len();
            has_changed |= !done.repaired.is_empty();
            for drift in &done.repaired {
                self.status.add_repair(drift.what.clone(), now_s());
            }
            if done.repaired.is_empty() && made + removed == 0 {
                continue;
            }
            match self.change_log.note(part, now) {
                Saying::Said => {}
                Saying::FirstUnsaid => {
                    warn!(
                        part,
                        "it changes again and again; that is said no more until it has been still for a minute"
                    );
                    continue;
                }
                Saying::Unsaid => continue,
            }
            for drift in &done.repaired {
                warn!(part, "repaired: {}", drift.what);
            }
            if made + removed > 0 {
                alike.entry((made, removed)).or_default().push(part);
            }
        }
        for ((made, removed), parts) in alike {
            for part in said_together(&parts) {
                info!(part, made, removed, "changed");
            }
        }
        for (part, unsaid) in self.change_log.still(now) {
            info!(part, "it has been still for a minute, after {unsaid} more changes");
        }
        has_changed
    }

    /// Says what of these parts is not as it should be. Once it is clear what the node is to have, that is said of each
    /// node instead, and of those that leave alone.
    pub(super) fn say_failures<'p>(&mut self, parts: impl Iterator<Item = &'p String>, kept: &Kept) {
        let why = |part: &String| kept.failed.get(part).map(ToString::to_string);
        let parts: BTreeMap<&str, Option<String>> = parts.map(|part| (part.as_str(), why(part))).collect();
        self.reasons.say_of_many("part", &parts);
        self.reasons.retain(|what| what.strip_prefix("part ").is_none_or(|part| parts.contains_key(part)));
    }

    pub(super) fn note_peers(&mut self, wanted: &Desired, kept: &Kept) {
        let failed: BTreeMap<String, String> =
            kept.failed.iter().map(|(part, error)| (part.clone(), error.to_string())).collect();
        self.status.set_peers(wanted, &failed, now_s());
        let peers = self.status.peers.clone();
        let whole = wanted.targets.values().copied().max().unwrap_or(0);
        let less = |peer: &PeerStatus| {
            let less = peer.path_mtu.filter(|mtu| *mtu < whole);
            less.map(|mtu| format!("packets of more than {mtu} bytes do not arrive, of {whole}"))
        };
        let why_not = peers.iter().map(|(name, peer)| (name.as_str(), peer.why_not.clone())).collect();
        let narrow = peers.iter().map(|(name, peer)| (name.as_str(), less(peer))).collect();
        self.reasons.say_of_many("node", &why_not);
        self.reasons.say_of_many("the way to node", &narrow);
        self.reasons.retain(|what| {
            let of_node = what.strip_prefix("node ").or_else(|| what.strip_prefix("the way to node "));
            of_node.is_none_or(|name| peers.contains_key(name))
        });
    }

    pub(super) fn note_offload(&mut self, wanted: &Desired, found: &ProbeResults) {
        let Offloads { found, failed } = &found.offloads;
        let tried = wanted.tunnels.keys().filter(|_| self.settings.tests_offload).map(|link| {
            let is_whole = found.get(link) == Some(&Offload::Whole);
            (link.to_string(), TunnelOffload { is_whole, fault: None, why_not: failed.get(link).cloned() })
        });
        let faulty = wanted.offload_faults.iter().map(|(link, fault)| {
            (link.to_string(), TunnelOffload { is_whole: false, fault: Some(*fault), why_not: None })
        });
        self.status.offload = tried.chain(faulty).collect();
        let all = || self.status.offload.iter();
        let words = |offload: &TunnelOffload, is_so: bool| is_so.then(|| offload.words());
        let faults =
            all().map(|(link, offload)| (link.as_str(), words(offload, offload.fault.is_some()))).collect();
        let untried =
            all().map(|(link, offload)| (link.as_str(), words(offload, offload.why_not.is_some()))).collect();
        self.reasons.say_of_many("the tunnel", &faults);
        self.reasons.say_of_many("the test of tunnel", &untried);
    }

    /// Says which configuration comes before the network's. That is no fault of the node where a program reads that one
    /// which calls this plugin (Multus).
    pub(super) fn note_runtimes(&mut self) -> Result<(), String> {
        let behind = self.installed.as_ref().map_or(Ok(None), |(_, files)| files.behind());
        self.status.runtimes = behind.map_err(|error| error.to_string())?;
        self.reasons.say_if_new("container runtimes", self.status.runtimes.as_deref());
        Ok(())
    }

    pub(super) fn note_programs(&mut self, wanted: &Desired, kept: &Kept) {
        let why_not = kept.failed.get(PROGRAMS_PART).map(ToString::to_string);
        let are_wanted = wanted.parts.contains_key(PROGRAMS_PART);
        self.status.programs = are_wanted.then_some(ProgramsStatus { why_not });
        let why = self.status.programs.as_ref().and_then(|programs| programs.why_not.clone());
        self.reasons.say_if_new("programs at tunnels", why.as_deref());
    }

    pub(super) fn note_services(&mut self, snapshot: &Snapshot, wanted: &Desired, kept: &Kept) {
        if self.settings.services.is_none() {
            return;
        }
        let why_not = |part: &str| kept.failed.get(part).map(ToString::to_string);
        let names = snapshot.services.iter().flat_map(BTreeMap::keys);
        let of_each: BTreeMap<&str, Option<String>> =
            names.map(|name| (name.as_str(), why_not(&service_part_of(name)))).collect();
        self.reasons
            .retain(|what| what.strip_prefix("service ").is_none_or(|name| of_each.contains_key(name)));
        self.reasons.say_of_many("service", &of_each);
        self.reasons.say_if_new("services", why_not(SERVICES_PART).as_deref());
        let failed = of_each.into_iter().filter_map(|(name, why)| Some((name.to_owned(), why?)));
        self.status.services = Some(ServicesStatus {
            total: wanted.parts.keys().filter(|part| is_of_service(part)).count(),
            failed: failed.collect(),
            why_not: why_not(SERVICES_PART),
        });
    }

    /// Whether calls of Services are led, where they are to be. A pod that starts on a node on which nothing leads them
    /// finds not even the cluster's DNS.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn unserved(&self, snapshot: &Snapshot, kept: &Kept) -> Result<(), String> {
        if self.settings.services.is_none() {
            return Ok(());
        }
        if let Some(error) = kept.failed.get(SERVICES_PART) {
            return Err(error.to_string());
        }
        let stand = || self.keeper.parts().keys().any(|part| is_of_service(part));
        if snapshot.services.is_none() && !stand() {
            return Err(Undecided::SERVICES.to_string());
        }
        Ok(())
    }

    /// Writes down how the cloud's tables are, and says what is not as it should be there.
    pub(super) fn note_cloud(&mut self, view: &View) {
        for what in view.repaired_since(self.repaired_in_cloud) {
            self.status.add_repair(what.clone(), now_s());
        }
        self.repaired_in_cloud = view.repaired_total;
        let is_used = self.status.backend.as_deref() == Some(AWS_VPC);
        let routes_max = self.settings.cloud.routes_max;
        self.status.cloud = is_used.then(|| CloudStatus::of(view, routes_max));
        let tables = self.status.cloud.iter().flat_map(|cloud| &cloud.tables);
        let near: BTreeMap<&str, Option<String>> =
            tables.map(|table| (table.name.as_str(), table.warning.clone())).collect();
        self.reasons.say_of_many("route table", &near);
        let why = Some(view.faults().join("; ")).filter(|why| !why.is_empty());
        self.reasons.say_if_new("cloud", why.as_deref());
    }
}
