//! Races of several clients' machines.

use record::{ClientsApart, Void};
use report::{analyse, html};

use crate::made::{Plan, Truth};

#[test]
fn how_far_apart_clients_began_is_a_fact_of_the_race() {
    let mut race = Plan::of(3, vec![Truth::of("x", 1.2)]).race();
    assert!(!analyse(&race).machine.facts.contains_key("clients began apart"));
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    for (trial, ms) in trials.zip([3, 1, 9, 2]) {
        trial.clients_apart = Some(ClientsApart { ns: ms * 1_000_000, error_ns: 400_000 });
        // What does not count says nothing.
        trial.void = (ms == 9).then(|| Void::FactsChanged { what: "a fact".to_owned() });
    }
    let summary = analyse(&race);
    let fact = "by 2.00 ms (± 400 µs) in the median trial, by 3.00 ms (± 400 µs) at most";
    assert_eq!(summary.machine.facts["clients began apart"], fact);
    assert!(html::page(&summary).contains(fact));
}
