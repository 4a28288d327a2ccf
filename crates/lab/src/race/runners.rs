//! The candidates that race in a build, as its rounds visit them.

use record::{Capacity, Load, TrialRecord};

use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::{Event, LabError};

/// A candidate that stands.
pub(crate) trait Runner: Sized {
    /// The name of the candidate, in tables and in the record.
    fn name(&self) -> &str;

    /// How many connections its client has for answers of a size.
    fn connections(&mut self, body_bytes: u32) -> usize;

    /// The highest rate that it sustains; `None` if asked to stop.
    ///
    /// # Errors
    /// It broke, or cannot be reached any more.
    fn capacity(
        &mut self,
        method: &Method,
        body_bytes: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Capacity>, LabError>;

    /// One slice of load. `key` says which of the record's it is.
    ///
    /// # Errors
    /// [`LabError::Broken`]: it does not answer any more; others of what failed beside it.
    fn trial(&mut self, method: &Method, load: &Load, key: TrialKey) -> Result<TrialRecord, LabError>;

    /// What has changed of its path since it stands, in words; `None` if nothing has.
    ///
    /// # Errors
    /// It cannot be looked at.
    fn changed(&mut self) -> Result<Option<String>, LabError>;

    /// Takes it down. Returns what another program has changed since, which is left as that has it, in words.
    ///
    /// # Errors
    /// Something could not be undone.
    fn take_down(self) -> Result<Vec<String>, LabError>;
}

/// The candidates that race in a build.
///
/// Usually all stand at the same time, each with nodes of its own. Those of two machines share the machines, and stand
/// one at a time: connections that are tracked for one, or programs at the card, would cost the others too.
pub(crate) struct Runners<R> {
    /// The indexes of the entrants, in display order.
    entrants: Vec<usize>,
    standing: Vec<(usize, R)>,
    in_turn: bool,
    left: Vec<LeftAlone>,
}

/// What was left as another program has it, when a candidate was taken down.
#[derive(Debug)]
pub(super) struct LeftAlone {
    /// The name of the candidate.
    pub(super) name: String,
    /// What it is, in words.
    pub(super) what: String,
}

impl<R: Runner> Runners<R> {
    /// Those that stand already.
    pub(super) fn together(mut standing: Vec<(usize, R)>) -> Runners<R> {
        standing.sort_by_key(|(entrant, _)| *entrant);
        let entrants = standing.iter().map(|(entrant, _)| *entrant).collect();
        Runners { entrants, standing, in_turn: false, left: Vec::new() }
    }

    /// Those that are built when it is their turn.
    pub(super) fn in_turn(entrants: Vec<usize>) -> Runners<R> {
        Runners { entrants, standing: Vec::new(), in_turn: true, left: Vec::new() }
    }

    /// Whether one stands at a time.
    pub(super) fn are_in_turn(&self) -> bool {
        self.in_turn
    }

    /// The indexes of the entrants that race, in display order.
    pub(super) fn entrants(&self) -> &[usize] {
        &self.entrants
    }

    pub(super) fn standing(&mut self) -> &mut [(usize, R)] {
        &mut self.standing
    }

    /// Takes down the candidate that had the last turn, so that each turn has a build of its own.
    pub(super) fn begin_turn(&mut self) -> Result<(), LabError> {
        if self.in_turn { self.empty() } else { Ok(()) }
    }

    /// One that stands; `stand` builds it if it does not.
    pub(super) fn reach(
        &mut self,
        entrant: usize,
        stand: impl FnOnce(usize) -> Result<R, LabError>,
    ) -> Result<&mut R, LabError> {
        let at = self.standing.iter().position(|(other, _)| *other == entrant);
        let at = match at {
            Some(at) => at,
            None => {
                self.empty()?;
                self.standing.push((entrant, stand(entrant)?));
                0
            }
        };
        Ok(&mut self.standing[at].1)
    }

    /// Takes one down, which is out of the race.
    pub(super) fn drop_out(&mut self, entrant: usize) -> Result<(), LabError> {
        self.entrants.retain(|other| *other != entrant);
        let at = self.standing.iter().position(|(other, _)| *other == entrant);
        let dropped = at.map(|at| self.standing.remove(at));
        self.left.extend(take_down(dropped)?);
        Ok(())
    }

    /// Takes all down that stand.
    pub(super) fn empty(&mut self) -> Result<(), LabError> {
        let left = take_down(std::mem::take(&mut self.standing))?;
        self.left.extend(left);
        Ok(())
    }

    /// What was left of those that were taken down since this was asked last.
    pub(super) fn left_alone(&mut self) -> Vec<LeftAlone> {
        std::mem::take(&mut self.left)
    }

    /// Takes all down that stand. Returns what was left.
    pub(super) fn take_down(mut self) -> Result<Vec<LeftAlone>, LabError> {
        self.empty()?;
        Ok(self.left)
    }
}

/// Takes all of them down, whatever becomes of the others; the first error, or what was left of them.
pub(super) fn take_down<R: Runner>(
    standing: impl IntoIterator<Item = (usize, R)>,
) -> Result<Vec<LeftAlone>, LabError> {
    let taken_down = |(_, runner): (usize, R)| {
        let name = runner.name().to_owned();
        let left = runner.take_down()?;
        Ok(left.into_iter().map(|what| LeftAlone { name: name.clone(), what }).collect())
    };
    let all: Vec<Result<Vec<LeftAlone>, LabError>> = standing.into_iter().map(taken_down).collect();
    Ok(all.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Says what was left.
pub(super) fn tell(left: Vec<LeftAlone>, emit: &mut dyn FnMut(Event)) {
    left.into_iter().for_each(|LeftAlone { name, what }| emit(Event::LeftAlone { name, what }));
}
