//! The topologies of a race's contenders: as they are planned, and as they come to stand.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use datapath::Family;
use plan::Unit;
use record::{Workload, WorkloadKind};
use stats::Random;

use super::Race;
use super::goal::StoppingRule;
use super::runners::{Runners, take_down};
use crate::built_topology::{BuiltTopology, Staffing};
use crate::candidate::{Contender, slug};
use crate::topology::{families, family};
use crate::{LabError, Shape, proxy, workload};

impl Race {
    /// Builds all topologies but those of candidates that broke or left, in shuffled order, so that none is always the
    /// first; those of two machines wait for their turn. `None` if asked to stop.
    pub(super) fn stand_up(
        &self,
        broken: &BTreeSet<usize>,
        goal: &StoppingRule,
        claim: &Unit,
        rng: &mut Random,
    ) -> Result<Option<Runners>, LabError> {
        let contenders = self.contenders.iter().enumerate();
        let racing = contenders
            .filter(|(index, one)| one.unmet.is_empty() && !broken.contains(index) && goal.stands(*index));
        let mut order: Vec<(usize, &Contender)> = racing.collect();
        if self.settings.machine.is_some() {
            return Ok(Some(Runners::in_turn(order.into_iter().map(|(index, _)| index).collect())));
        }
        rng.shuffle(&mut order);
        let mut runners = Vec::with_capacity(order.len());
        for (index, contender) in order {
            if self.settings.stop.load(Ordering::Relaxed) {
                take_down(runners)?;
                return Ok(None);
            }
            runners.push((index, self.stand(contender, claim)?));
        }
        Ok(Some(Runners::together(runners)))
    }

    /// Builds a contender's topology and opens its connections.
    pub(crate) fn stand(&self, contender: &Contender, claim: &Unit) -> Result<BuiltTopology, LabError> {
        let shape = self.shape(contender, Some(claim.id()));
        let dir = claim.dir().join(slug(&contender.name));
        let staffing = self.staffing(contender);
        let mut built = BuiltTopology::build(&contender.name, shape, &staffing, &dir)?;
        for body in &self.experiment.workload.body_bytes {
            built.open(*body, staffing.connections)?;
        }
        Ok(built)
    }

    pub(super) fn staffing(&self, contender: &Contender) -> Staffing {
        let workload = &self.experiment.workload;
        let connections = contender.connections.unwrap_or(workload.connections);
        Staffing {
            server: self.server.clone(),
            machine: self.settings.machine.clone(),
            scheduling: self.settings.scheduling,
            connections,
            outlives_us: false,
            plant: contender.plant,
            proxies: proxy::of(contender.proxy, &self.proxies),
            workload: Workload { connections, ..workload.clone() },
        }
    }

    /// The topology of a contender. Without an id its names are those for a reader: `hg-docker-n1`.
    pub(super) fn shape(&self, contender: &Contender, id: Option<&str>) -> Shape {
        let slug = slug(&contender.name);
        let prefix = id.map_or_else(|| format!("hg-{slug}"), |id| format!("hg-{id}-{slug}"));
        if let Some(machine) = &self.settings.machine {
            let number = self.contenders.iter().position(|other| other.name == contender.name);
            let number = u16::try_from(number.expect("it is one of them")).unwrap_or(u16::MAX);
            let (nodes, cpus) = (machine.nodes(number), self.method.cpus.clone());
            let shape = Shape::between_machines(contender.path, nodes, &self.experiment.workload);
            return Shape { prefix, cpus, ..shape };
        }
        Shape {
            prefix,
            path: contender.path,
            cni: contender.cni.clone(),
            mtu_bytes: self.experiment.underlay.mtu,
            cpus: self.method.cpus.clone(),
            family: family(self.experiment.workload.ipv6),
            families: match self.experiment.workload.kind {
                // Frames are of IPv4, and nodes with IPv6 send some of their own.
                WorkloadKind::Packets => &[Family::V4],
                _ => families(),
            },
            steered: self.steered,
            placement: self.experiment.placement,
            in_container: contender.in_container,
            wires: contender.wires(&self.experiment.underlay),
            settings: contender.settings.clone(),
            proxies: contender.proxy,
            stack: contender.stack,
            filter: contender.filter,
            flood: self.experiment.flood,
            protocol: workload::protocol(self.experiment.workload.kind),
            machines: None,
        }
    }
}
