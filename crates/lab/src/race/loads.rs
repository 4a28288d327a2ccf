//! What each candidate gets in each round: found out once, before the first.

use std::sync::atomic::Ordering;

use record::{Capacity, Experiment, Line, Load, RequestedRate, Writer};

use super::arena::Arena;
use super::contest::Contest;
use super::runners::{Runner, Runners, tell};
use crate::capacity::without_capacity;
use crate::limits::possible;
use crate::{Event, LabError};

/// The host as an entrant.
const REFERENCE: usize = 0;

impl<A: Arena> Contest<'_, A> {
    /// Finds the reference's capacity and turns the rates into loads: for each body size first the closed loop, then
    /// the rates. `None` if asked to stop.
    pub(super) fn loads(
        &mut self,
        runners: &mut Runners<A::Runner>,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<Vec<Load>>, LabError> {
        if !self.experiment.workload.kind.has_capacity() {
            return announce(without_capacity(self.experiment), writer, emit).map(Some);
        }
        let rates = requested_rates(self.experiment);
        let mut loads = Vec::new();
        for body_bytes in self.experiment.workload.body_bytes.clone() {
            let closed_loop = Load::closed_loop(body_bytes);
            if self.experiment.exact() {
                for (_, runner) in runners.standing() {
                    self.arena.settle(runner, &self.method, &closed_loop)?;
                }
                loads.push(closed_loop);
                continue;
            }
            let Some(found) = self.capacity(runners, body_bytes, writer, emit)? else { return Ok(None) };
            loads.push(closed_loop);
            let arrivals = self.experiment.workload.arrivals;
            loads.extend(rates.iter().map(|rate| found.load(rate, arrivals)));
        }
        let loads = announce(loads, writer, emit)?;
        if self.method.witness.is_some() {
            let reference = runners.reach(REFERENCE, |entrant| self.arena.stand(entrant))?;
            if let Some(described) = self.arena.adjust_witness(reference, &self.method, &loads)? {
                writer.append(&Line::Witness(described.clone()))?;
                emit(Event::Witness(described));
            }
        }
        Ok(Some(loads))
    }
}

impl<A: Arena> Contest<'_, A> {
    /// The reference's capacity for a size of answers, recorded and reported. `None` if asked to stop.
    fn capacity(
        &mut self,
        runners: &mut Runners<A::Runner>,
        body_bytes: u32,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<Capacity>, LabError> {
        let stop = || self.stop.load(Ordering::Relaxed);
        let reference = match runners.reach(REFERENCE, |entrant| self.arena.stand(entrant)) {
            // Nobody waits for a client that is away when the race is to end.
            Err(LabError::ClientLost { .. }) if stop() => return Ok(None),
            reached => reached?,
        };
        let found = match reference.capacity(&self.method, body_bytes, &stop) {
            Err(LabError::ClientLost { .. }) if stop() => None,
            found => found?,
        };
        let Some(found) = found else { return Ok(None) };
        possible(&requested_rates(self.experiment), &found)?;
        let connections = reference.connections(body_bytes);
        self.method.learn(&found, connections);
        writer.append(&Line::Capacity(found.clone()))?;
        emit(Event::Capacity(found.clone()));
        Ok(Some(found))
    }

    /// The reference's capacity for each size of answers, on a build for that alone. `None` if asked to stop.
    pub(crate) fn capacities(
        &mut self,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<Vec<Capacity>>, LabError> {
        let mut runners = Runners::in_turn(vec![REFERENCE]);
        let sizes = self.experiment.workload.body_bytes.clone();
        let found = sizes.into_iter().map(|size| self.capacity(&mut runners, size, writer, emit)).collect();
        tell(runners.take_down()?, emit);
        found
    }
}

/// The rates of an experiment: those that it names, or the usual shares of the reference's capacity.
pub(crate) fn requested_rates(experiment: &Experiment) -> Vec<RequestedRate> {
    match experiment.rates.as_slice() {
        [] => vec![RequestedRate::OfCapacity(0.3), RequestedRate::OfCapacity(0.5)],
        rates => rates.to_vec(),
    }
}

/// Records and reports the loads of the race.
fn announce(
    loads: Vec<Load>,
    writer: &mut Writer,
    emit: &mut dyn FnMut(Event),
) -> Result<Vec<Load>, LabError> {
    writer.append(&Line::Loads(loads.clone()))?;
    emit(Event::Loads(loads.clone()));
    Ok(loads)
}
