//! What each candidate gets in each round: found out once, before the first.

use std::sync::atomic::Ordering;
use std::time::Duration;

use plan::Unit;
use record::{Line, Load, RequestedRate, Writer};

use super::Race;
use super::runners::Runners;
use crate::built_topology::BuiltTopology;
use crate::capacity::{capacity, without_capacity};
use crate::limits::possible;
use crate::trial::run;
use crate::{Event, LabError, witness_choice, workload};

/// Counted time, in which a nanosecond is an instruction.
const SETTLE: Duration = Duration::from_millis(800);
/// The host as an entrant.
const REFERENCE: usize = 0;

impl Race {
    /// Finds the reference's capacity and turns the rates into loads: for each body size first the closed loop, then
    /// the rates. `None` if asked to stop.
    pub(super) fn loads(
        &mut self,
        runners: &mut Runners,
        claim: &Unit,
        writer: &mut Writer,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<Vec<Load>>, LabError> {
        if !workload::of(self.experiment.workload.kind).has_capacity() {
            return self.announce(without_capacity(&self.experiment), writer, tell).map(Some);
        }
        let asked = match self.experiment.rates.as_slice() {
            [] => vec![RequestedRate::OfCapacity(0.3), RequestedRate::OfCapacity(0.5)],
            rates => rates.to_vec(),
        };
        let mut loads = Vec::new();
        for body_bytes in self.experiment.workload.body_bytes.clone() {
            if self.experiment.exact() {
                let load = Load { body_bytes, rate_per_s: None, of_capacity: None };
                runners.standing().iter_mut().try_for_each(|(_, built)| self.settle(built, &load))?;
                loads.push(load);
                continue;
            }
            let reference = runners.reach(self, claim, REFERENCE)?;
            let stop = || self.settings.stop.load(Ordering::Relaxed);
            let Some(found) = capacity(reference, &self.method, body_bytes, stop)? else { return Ok(None) };
            possible(&asked, &found)?;
            let connections = reference.connections(body_bytes);
            self.method.learn(&found, connections);
            let at_rates = asked.iter().map(|rate| found.load(rate)).collect::<Vec<_>>();
            writer.append(&Line::Capacity(found.clone()))?;
            tell(Event::Capacity(found));
            loads.push(Load { body_bytes, rate_per_s: None, of_capacity: None });
            loads.extend(at_rates);
        }
        let loads = self.announce(loads, writer, tell)?;
        if let Some(watching) = &self.method.witness {
            let reference = runners.reach(self, claim, REFERENCE)?;
            let described = witness_choice::choose(watching, reference, &self.method, &loads)?;
            writer.append(&Line::Witness(described.clone()))?;
            tell(Event::Witness(described));
        }
        Ok(Some(loads))
    }

    /// Load before the first count of instructions. Of a new topology the first ten thousand requests take up to a per
    /// cent more: what the kernel learns and keeps is not there yet.
    fn settle(&self, built: &mut BuiltTopology, load: &Load) -> Result<(), LabError> {
        run(built, &self.method, load, SETTLE, None).map(drop)
    }

    /// Records and reports the loads of the race.
    fn announce(
        &self,
        loads: Vec<Load>,
        writer: &mut Writer,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Vec<Load>, LabError> {
        writer.append(&Line::Loads(loads.clone()))?;
        tell(Event::Loads(loads.clone()));
        Ok(loads)
    }
}
