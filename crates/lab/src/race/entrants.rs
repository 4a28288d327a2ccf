//! What is written down of a race before its first packet: who races, and on which machine.

use record::{Entrant, Header, WorkloadKind};

use super::Race;
use crate::candidate::Contender;
use crate::machine::machine;
use crate::{LabError, Topology};

impl Race {
    /// What is known before the first packet.
    pub(super) fn header(&self) -> Result<Header, LabError> {
        let mut machine = machine(&self.method.cpus, self.settings.scheduling)?;
        self.settings.machine.iter().for_each(|server| server.describe(&mut machine));
        Ok(Header {
            schema: record::SCHEMA,
            hostgap: self.settings.own.version.to_owned(),
            started_unix_s: linux::clock::unix_s(),
            seed: self.seed,
            experiment: self.experiment.clone(),
            machine,
            server: match self.experiment.workload.kind {
                WorkloadKind::Packets => "the kernel makes frames and judges them".to_owned(),
                kind if kind.is_stream() => format!("a receiver of hostgap {}", self.settings.own.version),
                _ => match &self.settings.machine {
                    Some(machine) => machine.server().to_owned(),
                    None => self.server.describe(),
                },
            },
            entrants: self.entrants()?,
            pair: None,
        })
    }

    /// Who races or cannot, with the commands that build each.
    ///
    /// # Errors
    /// A topology cannot be planned.
    pub fn entrants(&self) -> Result<Vec<Entrant>, LabError> {
        self.contenders.iter().map(|contender| self.entrant(contender)).collect()
    }

    pub(super) fn entrant(&self, contender: &Contender) -> Result<Entrant, LabError> {
        let can_run = contender.unmet.is_empty();
        // What machines lack may be what the plan would be made of.
        let is_planned = can_run || self.settings.machine.is_none();
        let topology = is_planned.then(|| Topology::plan(self.shape(contender, None))).transpose()?;
        let known = topology.as_ref().filter(|_| contender.is_known());
        let with_mtu = topology.as_ref().filter(|_| can_run && contender.cni.is_none());
        Ok(Entrant {
            name: contender.name.clone(),
            path: contender.path_name().to_owned(),
            stands_for: contender.stands_for.clone(),
            unmet: contender.unmet.clone(),
            commands: known.map(Topology::commands).unwrap_or_default(),
            settings: contender.settings.recorded(),
            mtu: with_mtu.map(|topology| topology.pod_mtu_bytes),
        })
    }
}
