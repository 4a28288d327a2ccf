//! What an experiment may ask for and this machine or its server cannot give.

use load::serve::BODY_BYTES_MAX;
use record::{Capacity, Experiment, Rate};

use crate::LabError;
use crate::server::ServerChoice;

/// All candidates keep all their connections open at the same time, and each takes a file.
pub(crate) fn files_suffice(experiment: &Experiment, racing: usize) -> Result<(), LabError> {
    let workload = &experiment.workload;
    if workload.kind.makes_connections() || workload.kind.is_stream() {
        return one_at_a_time(workload.connections);
    }
    let needed = workload.connections as usize * workload.body_bytes.len() * racing + 256;
    let limit = linux::process::raise_open_files()?;
    if needed as u64 <= limit {
        return Ok(());
    }
    Err(LabError::Experiment {
        what: format!("{} connections", workload.connections),
        why: format!(
            "{racing} candidates × {} body sizes need {needed} open files, the limit is {limit}: \
             race fewer candidates at once or raise the limit (ulimit -Hn)",
            workload.body_bytes.len()
        ),
    })
}

/// Connections of a trial that go with it: those of one candidate at a time. Both ends of a stream are ours.
fn one_at_a_time(connections: u32) -> Result<(), LabError> {
    let (needed, limit) = (2 * u64::from(connections) + 256, linux::process::raise_open_files()?);
    if needed <= limit {
        return Ok(());
    }
    Err(LabError::Experiment {
        what: format!("{connections} connections"),
        why: format!("they need {needed} open files, the limit is {limit}: raise it (ulimit -Hn)"),
    })
}

/// A constant rate above all that the reference answered when it was asked as fast as it can be would measure nothing
/// but a queue that grows.
pub(crate) fn possible(asked: &[Rate], found: &Capacity) -> Result<(), LabError> {
    let most = found.samples_per_s.iter().copied().fold(found.rate_per_s, f64::max);
    let beyond = asked.iter().find(|rate| matches!(rate, Rate::PerSecond(rate) if *rate > most));
    beyond.map_or(Ok(()), |rate| {
        Err(LabError::Experiment {
            what: format!("a rate of {rate} requests/s"),
            why: format!(
                "host itself answers at most {most:.0} requests/s with bodies of {} bytes on this machine: \
                 ask for less, or for a share of its capacity (50%)",
                found.body_bytes
            ),
        })
    })
}

/// Our own responder's answers end at a size that nginx's do not.
pub(crate) fn answers_suffice(experiment: &Experiment, server: &ServerChoice) -> Result<(), LabError> {
    let largest = experiment.workload.body_bytes.iter().copied().max().unwrap_or(0);
    if matches!(server, ServerChoice::Nginx(_)) || largest <= BODY_BYTES_MAX {
        return Ok(());
    }
    Err(LabError::Experiment {
        what: format!("a body of {largest} bytes"),
        why: format!("our own responder answers with at most {BODY_BYTES_MAX} bytes; nginx with more"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_above_what_the_reference_answers_at_all() {
        let found =
            Capacity { body_bytes: 100, rate_per_s: 900.0, samples_per_s: vec![950.0, 1000.0, 980.0] };
        assert!(possible(&[Rate::PerSecond(1000.0), Rate::OfCapacity(1.0)], &found).is_ok());
        let error =
            possible(&[Rate::PerSecond(10.0), Rate::PerSecond(1001.0)], &found).unwrap_err().to_string();
        assert!(error.contains("1001") && error.contains("at most 1000"), "{error}");
    }

    #[test]
    fn our_own_responder_has_a_largest_answer() {
        let mut experiment = Experiment::default();
        experiment.workload.body_bytes = vec![100, BODY_BYTES_MAX + 1];
        let own = ServerChoice::Hostgap("hostgap".into());
        assert!(answers_suffice(&experiment, &own).is_err());
        experiment.workload.body_bytes.pop();
        assert!(answers_suffice(&experiment, &own).is_ok());
    }
}
