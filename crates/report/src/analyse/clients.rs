//! How far apart the machines with clients began, as a fact of the race.

use record::{ClientsApart, Header, Machine, RaceRecord};

use crate::figures::duration_ns;

/// The machine with what the trials say of its clients together.
pub(super) fn machine(race: &RaceRecord) -> Machine {
    let mut machine = race.header.machine.clone();
    let trials = race.rounds.iter().flat_map(|round| &round.trials);
    let counted = trials.filter(|trial| trial.void.is_none());
    let mut all: Vec<ClientsApart> = counted.filter_map(|trial| trial.clients_apart).collect();
    all.sort_by_key(|apart| apart.ns);
    if let Some(last) = all.last() {
        let typical = all[all.len() / 2];
        let text = format!(
            "by {} (± {}) in the median trial, by {} (± {}) at most",
            duration_ns(typical.ns),
            duration_ns(typical.error_ns),
            duration_ns(last.ns),
            duration_ns(last.error_ns)
        );
        machine.facts.insert(Header::CLIENTS_APART.to_owned(), text);
    }
    machine
}
