//! Half a topology, in as few words as both machines plan it from.

use datapath::SocketRole;
use linux::features::Facts;
use plan::Place;
use record::{Plant, Setting, Workload};
use serde::{Deserialize, Serialize};
use tune::{Settings, Site};

use crate::candidate::{find, slug};
use crate::proving::prove_on_machine;
use crate::shape::MachineNodes;
use crate::side_settings::{self, site_of_node};
use crate::{LabError, NodeCpus, Shape};

/// Half a topology, in as few words as both sides plan it from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The name in tables.
    pub(crate) candidate: String,
    /// The data path's name.
    path: String,
    /// The machines, and which of their networks it is.
    pub(crate) nodes: MachineNodes,
    /// What is asked of the server, with the candidate's connections.
    pub(crate) workload: Workload,
    /// What is set otherwise than the machines have it, on both sides.
    settings: Vec<Setting>,
    /// Answers that the server holds back on purpose.
    pub(crate) plant: Option<Plant>,
}

impl Order {
    /// For a topology of this shape, which stands on machines.
    pub(crate) fn of(candidate: &str, shape: &Shape, workload: &Workload, plant: Option<Plant>) -> Order {
        Order {
            candidate: candidate.to_owned(),
            path: shape.path.name.to_owned(),
            nodes: shape.machines.clone().expect("what stands on machines is planned for them"),
            workload: workload.clone(),
            settings: shape.settings.recorded(),
            plant,
        }
    }

    /// The same for a client that has so many of the connections.
    #[must_use]
    pub(crate) fn for_client(&self, client: usize, connections: u32) -> Order {
        Order {
            nodes: self.nodes.for_client(client),
            workload: Workload { connections, ..self.workload.clone() },
            plant: None,
            ..self.clone()
        }
    }

    /// The topology as the leading machine plans it, with names of this machine's unit of work, `id`, and settings of
    /// its side, `part`, by the way that is open here.
    ///
    /// # Errors
    /// Another version of this program gave the order, or settings cannot be tried here.
    pub(crate) fn shape(
        &self,
        id: &str,
        part: SocketRole,
        cpus: NodeCpus,
        facts: &Facts,
    ) -> Result<Shape, LabError> {
        let mut shape = Shape { cpus, ..self.plain_shape()? };
        shape.prefix = format!("hg-{id}-{}", slug(&self.candidate));
        prove_side(&mut shape, part, facts)?;
        Ok(shape)
    }

    /// Why this machine cannot have the settings of its side, in words.
    ///
    /// # Errors
    /// Those of [`Order::shape`].
    pub(crate) fn unmet(&self, part: SocketRole, facts: &Facts) -> Result<Vec<String>, LabError> {
        prove_side(&mut self.plain_shape()?, part, facts)
    }

    fn plain_shape(&self) -> Result<Shape, LabError> {
        let failed = |why| LabError::Settings { candidate: self.candidate.clone(), why };
        let settings = Settings::of_recorded(&self.settings).map_err(failed)?;
        let shape = Shape::between_machines(find(&self.path)?, self.nodes.clone(), &self.workload);
        Ok(Shape { settings, ..shape })
    }
}

/// Why this machine cannot have the settings of a side, in words; those that it can have go by the way that is open.
///
/// # Errors
/// Settings cannot be tried here.
pub(crate) fn prove_side(
    shape: &mut Shape,
    part: SocketRole,
    facts: &Facts,
) -> Result<Vec<String>, LabError> {
    if side_settings::of(&shape.settings, part).is_empty() {
        return Ok(Vec::new());
    }
    let machines = shape.machines.as_ref().expect("an order is for machines");
    // The queues that the card has now: others that its settings would give it are not there yet.
    let nic = shape.nic(part);
    let site = Site { nic, ..site_of_node(shape, part, (&Place::Host, &machines.end(part).name)) };
    let settings = match part {
        SocketRole::Client => &mut shape.settings.client,
        SocketRole::Server => &mut shape.settings.server,
    };
    prove_on_machine(settings, facts, site)
}
