//! The cause of requests that were not sent when they were due.

use super::generator::BUSY_MAX;
use super::phrases::{connection, connections};
use crate::{Outcome, Overdue, Protocol, ThreadCost};

/// What requests that were due lacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    /// A free connection: they waited for answers.
    Answers,
    /// No connection: they had broken or were being made.
    Connections,
    /// A generator that is fast enough, or that had a CPU.
    Generator,
}

/// The share of each cause; together 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shares {
    pub(super) answers: f64,
    pub(super) connections: f64,
    pub(super) generator: f64,
}

impl Shares {
    /// Shares of the requests that were not sent within the schedule. Dropped requests have a known cause each. For
    /// the others, the shares are those of the time since they began to pile up.
    pub(super) fn of_unsent(outcome: &Outcome) -> Shares {
        let dropped = &outcome.dropped;
        let late = outcome.intended.saturating_sub(outcome.sent_in_schedule + dropped.count()) as f64;
        let times = Shares::of_times(&outcome.backlog);
        Shares::of(
            dropped.answers as f64 + late * times.answers,
            dropped.connections as f64 + late * times.connections,
            dropped.late as f64 + late * times.generator,
        )
    }

    /// Of the time in which requests were overdue.
    pub(super) fn of_times(overdue: &Overdue) -> Shares {
        Shares::of(overdue.answers_ns as f64, overdue.connections_ns as f64, overdue.own_ns() as f64)
    }

    fn of(answers: f64, connections: f64, generator: f64) -> Shares {
        let all = answers + connections + generator;
        if all == 0.0 {
            // Where no time passed that a connection could have been missed in, none was.
            return Shares { answers: 0.0, connections: 0.0, generator: 1.0 };
        }
        Shares { answers: answers / all, connections: connections / all, generator: generator / all }
    }

    /// The shares as named figures, for machine-readable output.
    pub(super) fn figures(&self) -> [(&'static str, f64); 3] {
        [
            ("answers_share", self.answers),
            ("connections_share", self.connections),
            ("generator_share", self.generator),
        ]
    }

    /// The cause with the largest share.
    pub(super) fn cause(&self) -> Shortage {
        if self.generator > self.answers.max(self.connections) {
            Shortage::Generator
        } else if self.connections > self.answers {
            Shortage::Connections
        } else {
            Shortage::Answers
        }
    }
}

impl Shortage {
    /// What was the matter, and what to do about it.
    pub(super) fn explained(self, outcome: &Outcome) -> String {
        match self {
            Shortage::Answers => format!("{}; {}", short(outcome), unanswered(outcome)),
            Shortage::Connections if is_left_open(outcome) => format!("{}; {LEFT_OPEN}", short(outcome)),
            Shortage::Connections => format!(
                "{}; the server was gone or took no more {}, so see whether it still runs and how many it takes",
                short(outcome),
                connections(outcome)
            ),
            Shortage::Generator => generator(outcome).to_owned(),
        }
    }
}

/// A generator that has time left when it has a CPU, and is late all the same, was kept from running.
pub(super) fn generator(outcome: &Outcome) -> &'static str {
    let at_its_end = |thread: &ThreadCost| thread.busy() > BUSY_MAX * (1.0 - thread.starved());
    if outcome.threads.iter().any(at_its_end) {
        "the generator is at its end; more threads and CPUs, or a lower rate"
    } else {
        "the generator was kept from running; give it CPUs of its own (--cpus) or real-time priority (--fifo 20)"
    }
}

/// What the connections did when none was free.
fn short(outcome: &Outcome) -> String {
    let short = &outcome.short;
    let all = short.count();
    let parts = [
        (short.waiting, "waited for answers"),
        (short.broken, "had broken or could not be made"),
        (short.connecting, "were being made"),
        (short.ending, "had been answered and not been closed by the server"),
    ];
    let causes = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| match *count == all {
        true if all == 1 => format!("the only one {}", what.replace("were", "was")),
        true => format!("all {all} {what}"),
        false => format!("{count} of {all} {what}"),
    });
    format!("no {} was free, {}", connection(outcome), causes.collect::<Vec<_>>().join(", "))
}

/// Whether most connections waited for the server to close them, when none was free.
pub(super) fn is_left_open(outcome: &Outcome) -> bool {
    let short = &outcome.short;
    short.ending > short.broken + short.connecting
}

/// What it means if they did.
pub(super) const LEFT_OPEN: &str = "the server does not close them when it says so, and each keeps its place until it is \
                                    left a second later; more of them (--connections) help";

/// What to do about answers that do not come, or not soon enough.
fn unanswered(outcome: &Outcome) -> String {
    let (left, sent) = (outcome.missed.stuck + outcome.missed.expired, outcome.sent);
    let is_udp = outcome.protocol == Protocol::Datagrams;
    match outcome.answered + outcome.unexpected.count() {
        0 if is_udp => format!(
            "none of the {sent} requests that were sent had an answer, so see whether they arrive and the server runs"
        ),
        0 => format!("the server answered none of the {sent} requests that were sent, so look there first"),
        _ if left > 0 && is_udp => format!(
            "{left} of the {sent} requests that were sent had no answer, and each holds its socket until \
             --request-timeout gives it up; a shorter one helps, or more sockets (--connections)"
        ),
        _ if left > 0 => format!(
            "the server did not answer {left} of the {sent} requests that were sent, and each holds its place until \
             --request-timeout gives it up"
        ),
        _ => format!(
            "the server or the path takes too long for this rate; more {} (--connections) help if the server can \
             answer more at a time",
            connections(outcome)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::good;
    use super::*;
    use crate::{Dropped, Short};

    fn shares(backlog: [u64; 3], dropped: [u64; 3], late: u64) -> Shares {
        let [total_ns, answers_ns, connections_ns] = backlog;
        let [answers, connections, own] = dropped;
        let mut outcome = good();
        outcome.backlog = Overdue { total_ns, answers_ns, connections_ns };
        outcome.dropped = Dropped { answers, connections, late: own };
        outcome.sent_in_schedule = outcome.intended - late - answers - connections - own;
        Shares::of_unsent(&outcome)
    }

    #[test]
    fn what_takes_most_of_the_time_is_the_cause() {
        let cause = |backlog| shares(backlog, [0; 3], 100).cause();
        assert_eq!(cause([1_000, 900, 0]), Shortage::Answers);
        assert_eq!(cause([1_000, 100, 800]), Shortage::Connections);
        assert_eq!(cause([1_000, 100, 100]), Shortage::Generator);
        assert_eq!(cause([0, 0, 0]), Shortage::Generator);
        // An equal split counts against the server: the generator was idle.
        assert_eq!(cause([1_000, 500, 0]), Shortage::Answers);
    }

    #[test]
    fn dropped_requests_count_with_the_late_ones() {
        assert_eq!(shares([0; 3], [90, 0, 10], 0).cause(), Shortage::Answers);
        assert_eq!(shares([0; 3], [0, 90, 10], 0).cause(), Shortage::Connections);
        assert_eq!(shares([0; 3], [10, 0, 90], 0).cause(), Shortage::Generator);
        let mixed = shares([1_000, 1_000, 0], [0, 0, 50], 150);
        assert_eq!((mixed.answers, mixed.generator), (0.75, 0.25));
    }

    #[test]
    fn shares_are_numbers_whatever_the_times() {
        // Requests that wait for connections of their own are sent out of order, so their times may add up to more.
        let odd = shares([100, 80, 80], [0; 3], 7);
        assert_eq!((odd.answers, odd.connections, odd.generator), (0.5, 0.5, 0.0));
    }

    #[test]
    fn it_says_what_the_connections_did() {
        let mut outcome = good();
        outcome.short = Short { waiting: 8, ..Short::default() };
        (outcome.missed.unanswered, outcome.missed.stuck) = (8, 0);
        assert!(Shortage::Answers.explained(&outcome).contains("takes too long"));
        outcome.missed.stuck = 8;
        let text = Shortage::Answers.explained(&outcome);
        assert!(text.starts_with("no connection was free, all 8 waited for answers; "), "{text}");
        assert!(text.contains("did not answer 8 of the 20000"), "{text}");
        outcome.answered = 0;
        let text = Shortage::Answers.explained(&outcome);
        assert!(text.contains("the server answered none of the 20000 requests that were sent"), "{text}");
        outcome.short = Short { connecting: 1, ..Short::default() };
        let text = Shortage::Connections.explained(&outcome);
        assert!(text.starts_with("no connection was free, the only one was being made; "), "{text}");
        outcome.short = Short { waiting: 1, broken: 5, connecting: 2, ending: 0 };
        let text = Shortage::Connections.explained(&outcome);
        let parts =
            "1 of 8 waited for answers, 5 of 8 had broken or could not be made, 2 of 8 were being made";
        assert!(text.contains(parts), "{text}");
        assert!(text.contains("the server was gone"), "{text}");
        outcome.short = Short { broken: 1, ending: 7, ..Short::default() };
        let text = Shortage::Connections.explained(&outcome);
        assert!(
            text.contains("7 of 8 had been answered and not been closed by the server; the server"),
            "{text}"
        );
        assert!(!text.contains("gone"), "{text}");
    }

    #[test]
    fn a_generator_with_time_left_was_kept_from_running() {
        let mut outcome = good();
        assert!(Shortage::Generator.explained(&outcome).starts_with("the generator was kept from running"));
        outcome.threads[1].in_schedule.cpu_ns = outcome.threads[1].wall_ns;
        assert!(Shortage::Generator.explained(&outcome).starts_with("the generator is at its end"));
        // It had only half a CPU.
        outcome.threads[1].in_schedule.cpu_ns /= 2;
        assert!(Shortage::Generator.explained(&outcome).starts_with("the generator was kept from running"));
        outcome.threads[1].in_schedule.run_queue_ns = outcome.threads[1].wall_ns / 2;
        assert!(Shortage::Generator.explained(&outcome).starts_with("the generator is at its end"));
    }

    #[test]
    fn over_udp_there_are_sockets() {
        let mut outcome = good();
        outcome.protocol = Protocol::Datagrams;
        outcome.short = Short { waiting: 2, ..Short::default() };
        for cause in [Shortage::Answers, Shortage::Connections] {
            let text = cause.explained(&outcome);
            assert!(text.contains("no socket was free") && !text.contains("connections "), "{text}");
        }
    }
}
