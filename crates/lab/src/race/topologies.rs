//! The topologies of a race's contenders: as they are planned, as they come to stand, and as they run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use datapath::Family;
use plan::Unit;
use record::{
    Capacity, Experiment, Line, Load, Machine, TrialRecord, Witness, Workload, WorkloadKind, Writer,
};

use super::Race;
use super::arena::{Arena, LastBuild};
use super::runners::Runner;
use crate::built_topology::{BuiltTopology, Staffing};
use crate::candidate::{Contender, slug};
use crate::capacity::capacity;
use crate::family::{families, family};
use crate::late::late;
use crate::machine::machine;
use crate::profile::profile;
use crate::protocol::protocol;
use crate::repeats::REPEATS;
use crate::shape::RdmaWire;
use crate::trial::{Method, connections, run};
use crate::trial_key::TrialKey;
use crate::{Event, LabError, NodeCpus, Shape, proxy, witness_choice, workload};

/// Load before the first count of instructions, in counted time, in which a nanosecond is an instruction. Of a
/// new topology the first ten thousand requests take up to a per cent more: what the kernel learns and keeps
/// is not there yet.
const SETTLE: Duration = Duration::from_millis(800);

/// This machine's namespaces, or this machine and others, as the arena of a race.
pub(super) struct Topologies<'a> {
    pub(super) race: &'a Race,
    /// The unit to which the topologies belong.
    pub(super) claim: &'a Unit,
}

impl Arena for Topologies<'_> {
    type Runner = BuiltTopology;

    fn names(&self) -> Vec<&str> {
        self.race.contenders.iter().map(|contender| contender.name.as_str()).collect()
    }

    fn can_run(&self, entrant: usize) -> bool {
        self.race.contenders[entrant].races()
    }

    fn is_in_turn(&self) -> bool {
        self.race.options.machines.is_some()
    }

    fn stand(&mut self, entrant: usize) -> Result<BuiltTopology, LabError> {
        let built = self.race.stand(&self.race.contenders[entrant], self.claim);
        if self.race.options.machines.is_none() { built } else { built.map_err(LabError::of_own_half) }
    }

    fn machine(&mut self) -> Result<Machine, LabError> {
        machine(&self.race.method.cpus, self.race.options.scheduling)
    }

    fn settle(&mut self, runner: &mut BuiltTopology, method: &Method, load: &Load) -> Result<(), LabError> {
        run(runner, method, load, SETTLE, None).map(drop)
    }

    fn adjust_witness(
        &mut self,
        reference: &mut BuiltTopology,
        method: &Method,
        loads: &[Load],
    ) -> Result<Option<Witness>, LabError> {
        let choose = |watching| witness_choice::choose(watching, reference, method, loads);
        method.witness.as_deref().map(choose).transpose()
    }

    /// Watches all candidates for the causes of late answers, and samples where their CPU time goes.
    fn after_rounds(
        &mut self,
        last: LastBuild<'_, BuiltTopology>,
        experiment: &Experiment,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        let LastBuild { runners, method, loads, rng } = last;
        let stop = || self.race.options.stop.load(Ordering::Relaxed);
        if experiment.why_late {
            let found = late(runners.standing(), loads, method, rng, stop, emit)?;
            let Some(found) = found else { return Ok(false) };
            found.into_iter().try_for_each(|late| writer.append(&Line::Late(late)))?;
        }
        if experiment.profile {
            let found = profile(runners.standing(), loads, method, rng, stop, emit)?;
            let Some(profiles) = found else { return Ok(false) };
            profiles.into_iter().try_for_each(|profile| writer.append(&Line::Profile(profile)))?;
        }
        Ok(true)
    }
}

impl Runner for BuiltTopology {
    fn name(&self) -> &str {
        &self.name
    }

    /// Those of all clients.
    fn connections(&mut self, body_bytes: u32) -> usize {
        match self.topology.there {
            Some(_) => self.workload.connections as usize,
            None => connections(self, body_bytes),
        }
    }

    fn capacity(
        &mut self,
        method: &Method,
        body_bytes: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Capacity>, LabError> {
        // Without one of the clients a slice says nothing, and it is back for the next.
        for _ in 0..REPEATS {
            match self.awake(|built| capacity(built, method, body_bytes, stop)) {
                Err(LabError::ClientLost { .. }) if !stop() => {}
                found => return found,
            }
        }
        self.awake(|built| capacity(built, method, body_bytes, stop))
    }

    fn trial(&mut self, method: &Method, load: &Load, key: TrialKey) -> Result<TrialRecord, LabError> {
        let trial = self.awake(|built| workload::trial(built, method, load, key));
        trial.map_err(|error| self.because_of_the_path(error))
    }

    fn changed(&mut self) -> Result<Option<String>, LabError> {
        self.why_changed()
    }

    fn take_down(self) -> Result<Vec<String>, LabError> {
        BuiltTopology::take_down(self)
    }
}

impl Race {
    /// Builds a contender's topology and opens its connections.
    pub(crate) fn stand(&self, contender: &Contender, claim: &Unit) -> Result<BuiltTopology, LabError> {
        let shape = self.shape(contender, Some(claim.id()));
        let dir = claim.dir().join(slug(&contender.name));
        let staffing = self.staffing(contender);
        let mut built = BuiltTopology::build(&contender.name, shape, &staffing, &dir)?;
        built.open_all(staffing.connections)?;
        Ok(built)
    }

    pub(super) fn staffing(&self, contender: &Contender) -> Staffing {
        let workload = &self.experiment.workload;
        let connections = contender.connections.unwrap_or(workload.connections);
        Staffing {
            server: self.server.clone(),
            machines: self.options.machines.clone(),
            scheduling: self.options.scheduling,
            connections,
            outlives_us: false,
            plant: contender.plant,
            proxies: proxy::of(contender.proxy, &self.proxies),
            workload: Workload { connections, ..workload.clone() },
        }
    }

    /// Its place among all of them.
    fn number(&self, contender: &Contender) -> usize {
        let number = self.contenders.iter().position(|other| other.name == contender.name);
        number.expect("it is one of them")
    }

    /// Its place among those that can run; `None` if it cannot.
    fn place_among_runners(&self, contender: &Contender) -> Option<usize> {
        let mut runners = self.contenders.iter().filter(|other| other.races());
        runners.position(|other| other.name == contender.name)
    }

    /// The topology of a contender. Without an id its names are those for a reader: `hg-docker-n1`.
    pub(super) fn shape(&self, contender: &Contender, id: Option<&str>) -> Shape {
        let slug = slug(&contender.name);
        let prefix = id.map_or_else(|| format!("hg-{slug}"), |id| format!("hg-{id}-{slug}"));
        if let Some(machines) = &self.options.machines {
            let number = u16::try_from(self.number(contender)).unwrap_or(u16::MAX);
            let cpus = NodeCpus { server: machines.server().cpus().clone(), ..self.method.cpus.clone() };
            let settings = contender.settings.clone();
            let nodes = machines.nodes(number);
            let shape = Shape::between_machines(contender.path, nodes, &self.experiment.workload);
            return Shape { prefix, cpus, settings, ..shape };
        }
        Shape {
            prefix,
            path: contender.path,
            cni: contender.cni.clone(),
            mtu_bytes: self.experiment.underlay.mtu,
            cpus: self.method.cpus.clone(),
            spare: self.spare_cpus(),
            family: family(self.experiment.workload.ipv6),
            families: match self.experiment.workload.kind {
                // Frames are of IPv4, and nodes with IPv6 send some of their own.
                WorkloadKind::Packets => &[Family::V4],
                _ => families(),
            },
            steered: self.steered,
            placement: self.experiment.placement,
            in_container: contender.in_container,
            cards: self.place_among_runners(contender).and_then(|place| self.cards.of_contender(place)),
            wires: contender.wires(&self.experiment.underlay),
            settings: contender.settings.clone(),
            proxies: contender.proxy,
            stack: contender.stack,
            rdma: RdmaWire::of(contender.stack.kind, || self.number(contender)),
            filter: contender.filter,
            flood: self.experiment.flood,
            protocol: protocol(self.experiment.workload.kind),
            machines: None,
        }
    }
}
