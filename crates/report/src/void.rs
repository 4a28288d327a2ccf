//! The kinds of reasons for which a trial is void, and the rule of each in general.

use record::{Measure, Void};

/// A [`Void`] without its figures. In the order in which reasons are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VoidKind {
    GeneratorLate,
    GeneratorStarved,
    ClientBusy,
    Stolen,
    Throttled,
    FactsChanged,
    PathChanged,
    StoodStill,
    FramesLost,
    FloodShort,
    Unanswered,
    ClientLost,
}

/// What decides which rules a race has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ruled {
    /// What trials are compared by.
    pub(crate) measure: Measure,
    /// Some load is a rate of requests.
    pub(crate) at_rates: bool,
    /// Some load is none.
    pub(crate) without_rate: bool,
    /// A witness looked for stalls at the rates.
    pub(crate) watched: bool,
    /// Some candidates had a flood.
    pub(crate) flood: bool,
    /// Several machines loaded the server.
    pub(crate) several_clients: bool,
}

impl VoidKind {
    const ALL: [VoidKind; 12] = [
        VoidKind::GeneratorLate,
        VoidKind::GeneratorStarved,
        VoidKind::ClientBusy,
        VoidKind::Stolen,
        VoidKind::Throttled,
        VoidKind::FactsChanged,
        VoidKind::PathChanged,
        VoidKind::StoodStill,
        VoidKind::FramesLost,
        VoidKind::FloodShort,
        VoidKind::Unanswered,
        VoidKind::ClientLost,
    ];

    /// The kind of a reason.
    pub(crate) fn of(void: &Void) -> VoidKind {
        match void {
            Void::GeneratorLate { .. } => VoidKind::GeneratorLate,
            Void::GeneratorStarved { .. } => VoidKind::GeneratorStarved,
            Void::ClientBusy { .. } => VoidKind::ClientBusy,
            Void::Stolen { .. } => VoidKind::Stolen,
            Void::Throttled { .. } => VoidKind::Throttled,
            Void::FactsChanged { .. } => VoidKind::FactsChanged,
            Void::PathChanged { .. } => VoidKind::PathChanged,
            Void::StoodStill { .. } => VoidKind::StoodStill,
            Void::FramesLost { .. } => VoidKind::FramesLost,
            Void::FloodShort { .. } => VoidKind::FloodShort,
            Void::Unanswered { .. } => VoidKind::Unanswered,
            Void::OnClient { why, .. } => VoidKind::of(why),
            Void::ClientLost { .. } => VoidKind::ClientLost,
        }
    }

    /// The rules of a race, each fit to follow "a trial is void if".
    pub(crate) fn rules(race: Ruled) -> Vec<&'static str> {
        VoidKind::ALL.into_iter().filter_map(|kind| kind.rule(race)).collect()
    }

    /// `None` where no trial can be void for it.
    fn rule(self, race: Ruled) -> Option<&'static str> {
        let asks = race.measure == Measure::Latency;
        let is_stream = matches!(race.measure, Measure::Bandwidth | Measure::Packets);
        match self {
            VoidKind::GeneratorLate => (asks && race.at_rates).then_some("the generator was late"),
            VoidKind::GeneratorStarved if is_stream => Some("nothing arrived since the sender had no CPU"),
            VoidKind::GeneratorStarved => {
                (asks && race.at_rates).then_some("the generator had to wait for a CPU")
            }
            VoidKind::ClientBusy => (asks && race.at_rates).then_some("the generator's CPU had no headroom"),
            VoidKind::Stolen => match asks && race.watched {
                true => race.without_rate.then_some("the hypervisor took CPU time away from a closed loop"),
                false => Some("the hypervisor took CPU time away"),
            },
            VoidKind::Throttled => Some("a CPU quota stopped one of its processes"),
            VoidKind::FactsChanged => Some("the machine changed"),
            VoidKind::PathChanged => Some("its path had changed or was not taken"),
            VoidKind::StoodStill => {
                (asks && race.watched).then_some("the machine stood still for half of it")
            }
            VoidKind::FramesLost => match (race.measure, race.flood) {
                (Measure::Frames, _) => Some("a frame was lost"),
                (_, flood) => flood.then_some("a tenth of its flood was lost"),
            },
            VoidKind::FloodShort => race.flood.then_some("a tenth of its flood was not sent"),
            VoidKind::Unanswered => asks.then_some("most requests got no answer"),
            VoidKind::ClientLost => race.several_clients.then_some("a client's machine did not do its part"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_race_has_the_rules_that_can_make_its_trials_void() {
        let default = Ruled {
            measure: Measure::Latency,
            at_rates: true,
            without_rate: true,
            watched: true,
            flood: false,
            several_clients: false,
        };
        let has = |race: Ruled, words: &str| VoidKind::rules(race).iter().any(|rule| rule.contains(words));
        let all = [
            "late",
            "wait for a CPU",
            "headroom",
            "hypervisor",
            "quota",
            "machine changed",
            "path",
            "stood still",
        ];
        for words in all.into_iter().chain(["no answer"]) {
            assert!(has(default, words), "{words}");
        }
        assert!(!has(default, "flood") && !has(default, "frame"));
        assert!(!has(Ruled { without_rate: false, ..default }, "hypervisor"), "a witness leaves it out");
        let unwatched = Ruled { watched: false, ..default };
        assert!(has(unwatched, "hypervisor") && !has(unwatched, "stood still"));
        let several = Ruled { several_clients: true, ..default };
        assert!(has(several, "did not do its part") && !has(default, "its part"));
        let flooded = Ruled { flood: true, ..default };
        assert!(has(flooded, "flood was lost") && has(flooded, "flood was not sent"));
        let stream = Ruled { measure: Measure::Packets, at_rates: false, watched: false, ..default };
        assert!(["late", "headroom", "stood still", "no answer"].iter().all(|words| !has(stream, words)));
        assert!(has(stream, "sender had no CPU") && has(stream, "hypervisor") && has(stream, "path"));
        assert!(has(Ruled { measure: Measure::Frames, ..stream }, "a frame was lost"));
    }

    #[test]
    fn every_kind_is_listed_once_and_in_order() {
        assert!(VoidKind::ALL.is_sorted_by(|one, next| one < next));
        assert_eq!(VoidKind::ALL.len(), VoidKind::ClientLost as usize + 1);
    }
}
