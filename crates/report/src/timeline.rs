//! The course of a race: what its trials reached, round by round.
//!
//! It is for the page alone. For computations the record has the trials themselves.

/// The course of a race.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Rounds from the first to the last, including missing ones.
    pub rounds: u32,
    /// Rounds that a step stands for; 1 but in long races.
    pub rounds_a_step: u32,
    /// Where a new build of the topologies began, in rounds from the first.
    pub builds: Vec<u32>,
    /// When each step ended, in seconds from the beginning of the race, ascending; `None` if the record lacks the time
    /// of a step.
    pub ends_s: Option<Vec<f64>>,
    /// One entry a load, in the order of [`crate::Summary::loads`].
    pub loads: Vec<Vec<TimelineRow>>,
}

/// A quantity over the steps.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineRow {
    /// The quantity of this row.
    pub quantity: Quantity,
    /// For each candidate, in the order of [`crate::Summary::candidates`], its value at each step; `None` without a
    /// trial that has one.
    pub series: Vec<Vec<Option<f64>>>,
}

/// A quantity that is followed over a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// What a trial got done per second, in the unit of the race's throughput; of several rounds the least.
    Rate(&'static str),
    /// A percentile of the response times of a trial in nanoseconds, by its name; of several rounds the greatest.
    Percentile(&'static str),
    /// Trials that do not count.
    Void,
    /// Requests without an answer.
    Unanswered,
    /// Segments that were sent again.
    Retransmits,
    /// Expired retransmission timers, by trial.
    TimeOuts,
    /// Nanoseconds for which the machine's own hypervisor ran other guests on the nodes' CPUs.
    Stolen,
    /// Nanoseconds for which threads of the generator could have run and had no CPU.
    Starved,
    /// Packets that backlogs, UDP sockets and wires dropped.
    Drops,
}

impl Timeline {
    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.rounds.div_ceil(self.rounds_a_step) as usize
    }
}
