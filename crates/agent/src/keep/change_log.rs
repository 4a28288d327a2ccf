//! What is said of parts that come, change and go. A node that comes and goes all the time, or two programs that undo
//! each other's work, would fill a disk with it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So many changes of a part within so long are said each.
const MANY: usize = 10;
const WITHIN: Duration = Duration::from_secs(60);

/// The latest changes of parts.
#[derive(Debug, Default)]
pub(super) struct ChangeLog(BTreeMap<String, Changes>);

#[derive(Debug)]
struct Changes {
    begun: Instant,
    last: Instant,
    count: usize,
    unsaid: usize,
}

/// Whether a change is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saying {
    Said,
    /// It is the first that is not, which is to be said instead.
    FirstUnsaid,
    Unsaid,
}

impl ChangeLog {
    /// Notes a change of a part.
    pub(super) fn note(&mut self, part: &str, now: Instant) -> Saying {
        let fresh = Changes { begun: now, last: now, count: 0, unsaid: 0 };
        let changes = self.0.entry(part.to_owned()).or_insert(fresh);
        if changes.unsaid == 0 && now.duration_since(changes.begun) >= WITHIN {
            (changes.begun, changes.count) = (now, 0);
        }
        changes.last = now;
        changes.count += 1;
        if changes.count <= MANY {
            return Saying::Said;
        }
        changes.unsaid += 1;
        if changes.unsaid == 1 { Saying::FirstUnsaid } else { Saying::Unsaid }
    }

    /// The parts that have not changed for as long, of which changes were not said, and how many. They are forgotten.
    pub(super) fn still(&mut self, now: Instant) -> Vec<(String, usize)> {
        let is_still = |changes: &Changes| now.duration_since(changes.last) >= WITHIN;
        let still = self.0.iter().filter(|(_, changes)| is_still(changes) && changes.unsaid > 0);
        let still = still.map(|(part, changes)| (part.clone(), changes.unsaid)).collect();
        self.0.retain(|_, changes| !is_still(changes));
        still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_changes_all_the_time_is_spoken_of_a_few_times() {
        let (begun, mut log) = (Instant::now(), ChangeLog::default());
        let at = |s: u64| begun + Duration::from_secs(s);
        let said: Vec<Saying> = (0..100).map(|s| log.note("node-b", at(s))).collect();
        assert!(said[..MANY].iter().all(|saying| *saying == Saying::Said));
        assert_eq!(said[MANY], Saying::FirstUnsaid);
        assert!(said[MANY + 1..].iter().all(|saying| *saying == Saying::Unsaid));
        assert_eq!(log.note("node-c", at(100)), Saying::Said);
        assert_eq!(log.still(at(158)), []);
        assert_eq!(log.still(at(159)), [("node-b".to_owned(), 100 - MANY)]);
        assert_eq!(log.note("node-b", at(160)), Saying::Said);
    }

    #[test]
    fn a_part_that_changes_now_and_then_is_always_spoken_of() {
        let (begun, mut log) = (Instant::now(), ChangeLog::default());
        let at = |number: u64| begun + Duration::from_secs(number * 10);
        assert!((0..50).all(|number| log.note("node-b", at(number)) == Saying::Said));
        assert_eq!(log.still(at(100)), []);
    }
}
