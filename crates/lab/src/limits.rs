//! What an experiment may ask for and this machine or its server cannot give.

use load::serve::BODY_BYTES_MAX;
use record::{CLIENT_CONNECTIONS_MAX, Capacity, Experiment, RequestedRate, Workload};

use crate::LabError;
use crate::part::connections_of;
use crate::server::ServerChoice;

/// The connections that each candidate gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) connections: u32,
    /// Why they are fewer than asked for, if they are.
    pub(crate) fewer: Option<String>,
}

/// Files that are open beside connections: namespaces, journals, epolls, the record.
const OTHER_FILES: u64 = 256;

/// All candidates keep all their connections open at the same time, and each takes a file. `own` is what those have
/// that have a number of their own. Of several machines' clients this process has the first one's part.
pub(crate) fn connections(
    experiment: &Experiment,
    racing: usize,
    own: &[u32],
    clients: usize,
) -> Result<Granted, LabError> {
    let workload = &experiment.workload;
    let most = own.iter().copied().fold(workload.connections, u32::max);
    if clients > 1 {
        client_suffices(workload, connections_of(0, clients, most))?;
        return Ok(Granted { connections: workload.connections, fewer: None });
    }
    if !workload.kind.is_stream() {
        has_ports(workload, most)?;
    }
    let granted = Granted { connections: workload.connections, fewer: None };
    if workload.kind.makes_connections() || workload.kind.is_stream() {
        return one_at_a_time(most).map(|()| granted);
    }
    let usual = u64::from(workload.connections) * racing.saturating_sub(own.len()) as u64;
    let all = usual + own.iter().map(|own| u64::from(*own)).sum::<u64>();
    let needed = all * pools(workload) + OTHER_FILES;
    let limit = linux::process::allow_open_files(needed)?;
    if own.is_empty() {
        return share(experiment, racing as u64, limit);
    }
    enough(all, needed, limit).map(|()| granted)
}

/// One of several clients has so many connections of the one candidate that stands: each takes a port and a file.
///
/// # Errors
/// [`LabError::Experiment`]: this machine does not have them.
pub(crate) fn client_suffices(workload: &Workload, connections: u32) -> Result<(), LabError> {
    has_ports(workload, connections)?;
    let needed = u64::from(connections) * pools(workload) + OTHER_FILES;
    enough(connections.into(), needed, linux::process::allow_open_files(needed)?)
}

/// Whether so many clients have ports for the connections of each candidate.
///
/// # Errors
/// [`LabError::Experiment`]: one has not.
pub fn clients_suffice(experiment: &Experiment, clients: usize) -> Result<(), LabError> {
    let own = experiment.candidates.iter().filter_map(|candidate| candidate.connections);
    let most = own.fold(experiment.workload.connections, u32::max);
    has_ports(&experiment.workload, connections_of(0, clients, most))
}

/// A client calls one port of a server, and all of its pools are open at the same time.
fn has_ports(workload: &Workload, connections: u32) -> Result<(), LabError> {
    let ports = u64::from(connections) * pools(workload);
    if ports <= u64::from(CLIENT_CONNECTIONS_MAX) {
        return Ok(());
    }
    Err(LabError::Experiment {
        what: format!("{ports} connections of one client"),
        why: format!(
            "it calls one port of the server, which takes a port of its own for each: {CLIENT_CONNECTIONS_MAX} at most; \
             several machines share them (--client ssh://a --client ssh://c --server ssh://b)"
        ),
    })
}

/// How many pools of connections a candidate has: of HTTP one for all sizes; plain bytes have a length, and so each
/// size a pool of its own.
fn pools(workload: &Workload) -> u64 {
    if workload.kind.is_http() { 1 } else { workload.body_bytes.len() as u64 }
}

fn share(experiment: &Experiment, racing: u64, limit: u64) -> Result<Granted, LabError> {
    let connections = experiment.workload.connections;
    let each = racing.max(1) * pools(&experiment.workload);
    let allowed = u32::try_from(limit.saturating_sub(OTHER_FILES) / each).unwrap_or(u32::MAX);
    if connections <= allowed {
        return Ok(Granted { connections, fewer: None });
    }
    let why = format!("{racing} candidates share the {limit} files that this process may have open");
    if allowed >= experiment.workload.connections_min.unwrap_or(connections) {
        let fewer = Some(format!("{allowed} a candidate instead of {connections}: {why}"));
        return Ok(Granted { connections: allowed, fewer });
    }
    Err(LabError::Experiment {
        what: format!("{connections} connections"),
        why: format!(
            "{why}, which is {allowed} connections each: race fewer candidates at once, raise the limit (ulimit -Hn), \
             or let workload.connections_min in the experiment's file allow fewer"
        ),
    })
}

/// Connections of a trial that go with it: those of one candidate at a time. Both ends of a stream are ours.
fn one_at_a_time(connections: u32) -> Result<(), LabError> {
    let needed = 2 * u64::from(connections) + OTHER_FILES;
    enough(connections.into(), needed, linux::process::allow_open_files(needed)?)
}

/// What cannot be shared: all of them or none.
fn enough(connections: u64, needed: u64, limit: u64) -> Result<(), LabError> {
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
pub(crate) fn possible(rates: &[RequestedRate], found: &Capacity) -> Result<(), LabError> {
    let most = found.samples_per_s.iter().copied().fold(found.rate_per_s, f64::max);
    let beyond = rates.iter().find(|rate| matches!(rate, RequestedRate::PerSecond(rate) if *rate > most));
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
    use crate::program::OwnProgram;

    #[test]
    fn files_are_shared_by_all_candidates() {
        let mut experiment = Experiment::default();
        experiment.workload.connections = 10_000;
        let all = Granted { connections: 10_000, fewer: None };
        assert_eq!(share(&experiment, 6, 60_256).unwrap(), all);
        let error = share(&experiment, 6, 60_255).unwrap_err().to_string();
        assert!(error.contains("9999 connections each") && error.contains("connections_min"), "{error}");
        experiment.workload.connections_min = Some(3_000);
        let fewer = share(&experiment, 6, 20_000).unwrap();
        assert_eq!(fewer.connections, 3_290);
        assert!(
            fewer
                .fewer
                .unwrap()
                .starts_with("3290 a candidate instead of 10000: 6 candidates share the 20000")
        );
        assert!(share(&experiment, 7, 20_000).is_err(), "2820 are fewer than the fewest");
    }

    #[test]
    fn connections_of_a_candidate_s_own_are_counted_and_never_fewer() {
        let mut experiment = Experiment::default();
        let granted = connections(&experiment, 3, &[1, 64], 1).unwrap();
        assert_eq!(granted, Granted { connections: 32, fewer: None });
        let error = enough(97, 97 + OTHER_FILES, 97).unwrap_err().to_string();
        assert!(error.contains("97 connections") && error.contains("353 open files"), "{error}");
        experiment.workload = Workload::of(record::WorkloadKind::TcpStream);
        assert_eq!(connections(&experiment, 3, &[4], 1).unwrap().connections, 1, "the reference's");
    }

    /// Each needs ports and files for its own part alone.
    #[test]
    fn sixty_thousand_connections_take_three_clients() {
        let mut experiment = Experiment::default();
        experiment.workload.connections = 60_000;
        let refused = |clients| connections(&experiment, 1, &[], clients).unwrap_err().to_string();
        assert!(refused(1).contains("60000 connections of one client: it calls one port"), "{}", refused(1));
        assert!(refused(2).contains("30000 connections of one client"), "{}", refused(2));
        match connections(&experiment, 1, &[], 3) {
            Ok(granted) => assert_eq!(granted, Granted { connections: 60_000, fewer: None }),
            Err(error) => {
                assert!(error.to_string().contains("20000 connections: they need 20256"), "{error}");
            }
        }
    }

    #[test]
    fn no_rate_above_what_the_reference_answers_at_all() {
        let found =
            Capacity { body_bytes: 100, rate_per_s: 900.0, samples_per_s: vec![950.0, 1000.0, 980.0] };
        assert!(
            possible(&[RequestedRate::PerSecond(1000.0), RequestedRate::OfCapacity(1.0)], &found).is_ok()
        );
        let error = possible(&[RequestedRate::PerSecond(10.0), RequestedRate::PerSecond(1001.0)], &found)
            .unwrap_err()
            .to_string();
        assert!(error.contains("1001") && error.contains("at most 1000"), "{error}");
    }

    #[test]
    fn our_own_responder_has_a_largest_answer() {
        let mut experiment = Experiment::default();
        experiment.workload.body_bytes = vec![100, BODY_BYTES_MAX + 1];
        let own = ServerChoice::Hostgap(OwnProgram { program: "hostgap".into(), version: "0.1.0" });
        assert!(answers_suffice(&experiment, &own).is_err());
        experiment.workload.body_bytes.pop();
        assert!(answers_suffice(&experiment, &own).is_ok());
    }
}
